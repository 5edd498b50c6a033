"""Arrays of a batch of simulated clusters: what changes, what is fixed, what is reported.

Records keep one entity's fields together in memory and cross the Python/numba border as one array, which makes a call
several times cheaper than one array per field. Letters in shape comments: B environments, N jobs of the longest
episode, S servers, E placement entries of a job, M jobs on a server, T job types, D demand classes, W and P the caps on
workers and parameter servers, J job slots, F features, C cluster features, A actions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ENV_DTYPE = np.dtype(
    [
        ("noise_key", np.uint64),  # keys the per-interval speed noise
        ("speed_sum", np.float64),  # sum over jobs of estimated speed / best isolated speed
        ("slowdown_sum", np.float64),  # sum over active jobs of 1 - 1 / stretch
        ("pending_wait", np.float64),  # waiting before admission not yet charged to `jct`, in intervals
        ("interval", np.int32),  # index of the current scheduling interval
        ("num_jobs", np.int32),  # jobs of this episode
        ("next_job", np.int32),  # first job not yet admitted
        ("num_active", np.int32),  # length of the filled part of `active`
        ("num_finished", np.int32),
        ("window_size", np.int32),  # filled job slots
        ("pinned_server", np.int32),  # tasks of this interval go there only; -1: the placement strategy decides
        ("free_cpus", np.int32),  # cluster totals
        ("free_gpus", np.int32),
        ("num_decisions", np.int32),  # in this episode
        ("num_legal", np.int32),  # legal job actions, void not counted
        ("busy_servers", np.int32),  # servers that hold a task
        ("num_intervals_full", np.int32),  # intervals in which some wanted task did not fit
        ("used_cpu_s", np.float64),  # allocated CPU unit seconds so far
        ("used_gpu_s", np.float64),
    ],
    align=True,
)

JOB_DTYPE = np.dtype(
    [
        ("arrival_s", np.float64),
        ("epochs", np.float64),  # total epochs as the user estimates them
        ("true_epochs", np.float64),  # epochs at which the job really completes
        ("epochs_done", np.float64),
        ("samples_per_epoch", np.float64),
        ("start_s", np.float64),  # first time it trained; NaN before
        ("finish_s", np.float64),  # NaN before
        ("stretch", np.float64),  # current stretch of its communication, >= 1
        ("speed", np.float64),  # estimated samples/s under the current placement
        ("relative_speed", np.float64),  # speed / best isolated speed of its type
        ("dominant_share", np.float64),
        ("gpu_s", np.float64),  # GPU unit seconds held so far
        ("type", np.int16),
        ("workers", np.int16),
        ("ps", np.int16),
        ("last_workers", np.int16),  # allocation of the previous interval
        ("last_ps", np.int16),
        ("num_entries", np.int16),  # servers that hold tasks of it
        ("slot", np.int16),  # row of the observation window, -1 outside
        ("is_on_network", np.bool_),  # communicates across servers
        ("intervals_run", np.int32),
        ("num_resizes", np.int32),
    ],
    align=True,
)

ENTRY_DTYPE = np.dtype([("server", np.int16), ("workers", np.int16), ("ps", np.int16)], align=True)

SERVER_DTYPE = np.dtype(
    [
        ("load", np.float64),  # used units: sum of fractions, or plain sum (released DL2)
        ("rank", np.float64),  # load, or infinity when no type's task fits any more (not with least_loaded_single)
        ("free_cpus", np.int32),
        ("free_gpus", np.int32),
        ("link_use", np.float64),  # sum of the link use of the tasks here whose jobs are on the network
        ("num_jobs", np.int16),  # jobs with a task here
    ],
    align=True,
)

SERVER_SPEC_DTYPE = np.dtype([("cpus", np.int32), ("gpus", np.int32), ("gpu_kind", np.int16)], align=True)

# Demand classes of a type: server units one action needs.
TYPE_CLASSES_DTYPE = np.dtype([("worker", np.int16), ("ps", np.int16), ("bundle", np.int16)], align=True)
DEMAND_DTYPE = np.dtype([("cpus", np.int32), ("gpus", np.int32), ("initial_fit", np.int32)], align=True)

RULES_DTYPE = np.dtype(
    [
        ("interval_s", np.float64),
        ("link_sharing", np.float64),
        ("speed_noise", np.float64),
        ("total_cpus", np.float64),
        ("total_gpus", np.float64),
        ("max_workers", np.float64),  # configured caps
        ("max_ps", np.float64),
        ("max_intervals", np.int32),
        ("window", np.int32),
        ("pcie_group", np.int32),
        ("placement", np.int8),
        ("scaling_cost", np.int8),
        ("is_measured", np.bool_),
        ("is_ideal_overlap", np.bool_),
        ("initial_bundle", np.bool_),
        ("mask_resources", np.bool_),
        ("window_skips_capped", np.bool_),
        ("auto_advance", np.bool_),
        ("exact_finish", np.bool_),
        ("load_by_sum", np.bool_),
        ("fit_online", np.bool_),  # refit the estimate from observed speeds
        ("refresh_whole_mask", np.bool_),  # a placement can change the legality of other jobs' actions anywhere
    ],
    align=True,
)

# Codes of the named choices, in the order of the Literals in dl2env.config.
LEAST_LOADED, PACK, SPREAD, LEAST_LOADED_SINGLE = range(4)
PLACEMENTS = {"least_loaded": 0, "pack": 1, "spread": 2, "least_loaded_single": 3}
NO_COST, HOT, CHECKPOINT = range(3)
SCALING_COSTS = {"none": 0, "hot": 1, "checkpoint": 2}

REWARD_TERMS = ("progress", "jct", "ideal_progress", "speed_gain")
"""Columns of `Report.reward_terms`."""


class State(NamedTuple):
    """Mutable state, fixed parameters and the observation of B clusters; every kernel's first argument."""

    env: NDArray[np.void]  # (B,) ENV_DTYPE
    jobs: NDArray[np.void]  # (B, N) JOB_DTYPE, in arrival order
    active: NDArray[np.int32]  # (B, N) indices of admitted, unfinished jobs in arrival order
    entries: NDArray[np.void]  # (B, N, E) ENTRY_DTYPE: where a job's tasks are
    servers: NDArray[np.void]  # (B, S) SERVER_DTYPE
    least_loaded: NDArray[np.int16]  # (B, 2 R) tournament tree of server ranks, R >= S a power of two; root at 1
    server_jobs: NDArray[np.int32]  # (B, S, M) indices of the jobs on a server
    server_entries: NDArray[np.int16]  # (B, S, M) which entry of that job the server is
    num_fit: NDArray[np.int32]  # (B, D) servers that can hold a demand class
    specs: NDArray[np.void]  # (S,) SERVER_SPEC_DTYPE
    types: NDArray[np.void]  # (T,) speed.parameters.TYPE_DTYPE
    classes: NDArray[np.void]  # (T,) TYPE_CLASSES_DTYPE
    demands: NDArray[np.void]  # (D,) DEMAND_DTYPE
    compute_s: NDArray[np.float64]  # (T, G)
    table: NDArray[np.float64]  # (T, W + 2, P + 2) measured samples/s, or empty
    estimate: NDArray[np.float64]  # (1 or B, T, W + 2, P + 2, 2): step seconds, of these communication
    best_speed: NDArray[np.float64]  # (1 or B, T) best estimated isolated samples/s
    fit: NDArray[np.float64]  # (B, T, 5, 6) normal equations of the online fit, or (0, ...)
    type_features: NDArray[np.float32]  # (T, K) columns of the observation that describe the type
    rules: NDArray[np.void]  # (1,) RULES_DTYPE
    window: NDArray[np.int32]  # (B, J) job index per slot, -1 when empty
    obs_jobs: NDArray[np.float32]  # (B, J, F)
    obs_cluster: NDArray[np.float32]  # (B, C)
    mask: NDArray[np.bool_]  # (B, 3J + 1)


class Report(NamedTuple):
    """What one step did, per environment."""

    reward_terms: NDArray[np.float64]  # (B, len(REWARD_TERMS))
    interval_ended: NDArray[np.bool_]  # (B,)
    is_illegal: NDArray[np.bool_]  # (B,) the action was masked, or failed
    terminated: NDArray[np.bool_]  # (B,) the last job has completed
    truncated: NDArray[np.bool_]  # (B,) the interval limit was reached
