"""Schedulers: the contract, the heuristics and their registry."""

from dl2env.schedulers.registry import get_scheduler, scheduler_names

__all__ = ["get_scheduler", "scheduler_names"]
