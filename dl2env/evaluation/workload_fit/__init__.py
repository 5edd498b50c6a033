"""Fitting generated workloads to a recorded one, and how good the fit is: what `scripts/fit_workload.py` does."""
