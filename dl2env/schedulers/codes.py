"""Numbers by which kernels know the rules, and what each kind of rule may depend on."""

from __future__ import annotations

# A job's key depends on that job (and on which tasks still fit) alone, so a priority queue can hold the candidates.
KEYED = FIFO, DRF, SRTF, OPTIMUS = range(4)

FIRST_PLANNED = 50
"""Keyed rules from here on work out an order and wanted numbers of tasks for all jobs at an interval's start."""

PLANNED = (
    BEST_CONFIG,
    SJF,
    SRPT,
    EASY,
    LAS,
    TIRESIAS_2DAS,
    TIRESIAS_GITTINS,
    MAXMIN,
    THEMIS,
    GAVEL_MAXMIN,
    GAVEL_MAKESPAN,
    POLLUX,
    ELASTICFLOW,
    AFS,
) = range(FIRST_PLANNED, FIRST_PLANNED + 14)

FIRST_SHARED = 100
"""From here on a key may change with any placement, so every decision looks at every job."""

SHARED = (
    VOID,
    RANDOM,
    TETRIS,
    MARGINAL,
    RANDOM_RULES,
    RANDOM_RELEASED_RULES,
) = range(FIRST_SHARED, FIRST_SHARED + 6)
