"""Comparing schedulers: runner, metrics, statistics, reports and plots."""
