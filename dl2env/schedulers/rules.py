"""The one list of rules: which kernel scores a job under which code."""

from __future__ import annotations

from dl2env.jit import inline_kernel
from dl2env.schedulers import codes
from dl2env.schedulers.afs import plan_afs
from dl2env.schedulers.best_config import plan_best_config
from dl2env.schedulers.drf import score_drf
from dl2env.schedulers.easy import plan_easy
from dl2env.schedulers.elasticflow import plan_elasticflow
from dl2env.schedulers.fifo import score_fifo
from dl2env.schedulers.gavel import plan_gavel
from dl2env.schedulers.las import plan_las
from dl2env.schedulers.marginal import score_marginal
from dl2env.schedulers.maxmin import plan_maxmin
from dl2env.schedulers.optimus import score_optimus
from dl2env.schedulers.planned import score_planned
from dl2env.schedulers.pollux import plan_pollux
from dl2env.schedulers.random import score_random
from dl2env.schedulers.random_rules import prepare_random_rules, prepare_released_rules, score_forced
from dl2env.schedulers.sjf import plan_sjf
from dl2env.schedulers.srpt import plan_srpt
from dl2env.schedulers.srtf import score_srtf
from dl2env.schedulers.tetris import prepare_tetris, score_tetris
from dl2env.schedulers.themis import plan_themis
from dl2env.schedulers.tiresias import plan_2das, plan_gittins


@inline_kernel
def score_keyed(state, b, i, legal, code, params, scratch):
    """(key, kind of task, server) of job i under a keyed rule.

    The highest key is served next. Kind -1: the rule wants nothing more for this job. Server -1: the placement strategy
    decides. A key must not be NaN.
    """
    key = 0.0
    kind = -1
    server = -1
    if code == codes.FIFO:
        key, kind = score_fifo(state, b, i, legal)
    elif code == codes.DRF:
        key, kind = score_drf(state, b, i, legal, params)
    elif code == codes.SRTF:
        key, kind = score_srtf(state, b, i, legal)
    elif code == codes.OPTIMUS:
        key, kind = score_optimus(state, b, i, legal, params)
    elif code >= codes.FIRST_PLANNED:
        key, kind, server = score_planned(state, b, i, legal, scratch)
    return key, kind, server


@inline_kernel
def score_shared(state, b, i, legal, code, params, scratch):
    """(key, kind of task, server) of job i under a rule whose keys change with any placement; see `score_keyed`."""
    key = 0.0
    kind = -1
    server = -1
    if code == codes.RANDOM:
        key, kind = score_random(state, b, i, legal, params)
    elif code == codes.TETRIS:
        key, kind = score_tetris(state, b, i, legal, scratch)
    elif code == codes.MARGINAL:
        key, kind = score_marginal(state, b, i, legal, params)
    elif code == codes.RANDOM_RULES or code == codes.RANDOM_RELEASED_RULES:
        key, kind = score_forced(state, b, i, legal, params, scratch)
    return key, kind, server


@inline_kernel
def prepare(state, b, code, params, scratch):
    """What a shared rule works out once per decision, from the candidates' `legal` bits."""
    if code == codes.TETRIS:
        prepare_tetris(state, b, scratch)
    elif code == codes.RANDOM_RULES:
        prepare_random_rules(state, b, params, scratch)
    elif code == codes.RANDOM_RELEASED_RULES:
        prepare_released_rules(state, b, params, scratch)


@inline_kernel
def plan(state, b, code, params, scratch):
    """What a planned rule works out once per interval: order and wanted counts of every active job.

    It must not depend on what has been placed in this interval, so that it can be worked out again at any decision.
    """
    if code == codes.BEST_CONFIG:
        plan_best_config(state, b, params, scratch)
    elif code == codes.SJF:
        plan_sjf(state, b, params, scratch)
    elif code == codes.SRPT:
        plan_srpt(state, b, params, scratch)
    elif code == codes.EASY:
        plan_easy(state, b, params, scratch)
    elif code == codes.LAS:
        plan_las(state, b, params, scratch)
    elif code == codes.TIRESIAS_2DAS:
        plan_2das(state, b, params, scratch)
    elif code == codes.TIRESIAS_GITTINS:
        plan_gittins(state, b, params, scratch)
    elif code == codes.MAXMIN:
        plan_maxmin(state, b, params, scratch)
    elif code == codes.THEMIS:
        plan_themis(state, b, params, scratch)
    elif code in (codes.GAVEL_MAXMIN, codes.GAVEL_MAKESPAN):
        plan_gavel(state, b, code, params, scratch)
    elif code == codes.POLLUX:
        plan_pollux(state, b, params, scratch)
    elif code == codes.ELASTICFLOW:
        plan_elasticflow(state, b, params, scratch)
    elif code == codes.AFS:
        plan_afs(state, b, params, scratch)
