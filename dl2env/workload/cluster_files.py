"""Clusters from lists of servers."""

from __future__ import annotations

from dl2env.workload.traces.head import Head


def node_format_of(head: Head) -> str | None:
    """Name of the server-list format that a file is of; None if it is none."""
    return None
