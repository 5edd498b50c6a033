"""Kernels that follow a rule: one decision at a time, or all decisions of whole intervals.

Both serve the candidate with the highest key, of equal keys the earliest job, until no candidate is left. Whole
intervals need neither window, mask nor observation, and keyed rules keep their candidates in a heap: a key is worked
out again only after its job was served, or where tasks that fitted before no longer do.
"""

from __future__ import annotations

from dl2env.jit import inline_kernel, kernel
from dl2env.schedulers.codes import FIRST_SHARED
from dl2env.schedulers.heap import rise, sink
from dl2env.schedulers.rules import plan, prepare, score_keyed, score_shared
from dl2env.sim.decisions import EXHAUSTED, FAILED, is_legal, place
from dl2env.sim.dynamics import advance
from dl2env.sim.features import write_cluster
from dl2env.sim.placement import BUNDLE, PS, WORKER
from dl2env.sim.state import LEAST_LOADED_SINGLE


@kernel
def choose(state, mask, code, params, scratch, actions, servers):
    """Writes the next action of each environment.

    Args:
        state: The batch.
        mask: (B, A) legal actions.
        code: The rule.
        params: (NUM_PARAMS,) its parameters.
        scratch: Scratch.
        actions: (B,) comes filled with void.
        servers: (B,) server to pin, comes filled with -1.
    """
    candidates = scratch.candidates
    for b in range(mask.shape[0]):
        for k in range(state.env[b].num_active):
            candidates[state.active[b, k]].legal = 0
        num_candidates = 0
        for slot in range(state.window.shape[1]):
            if state.window[b, slot] < 0:
                break
            legal = int(mask[b, 3 * slot]) | int(mask[b, 3 * slot + 1]) << 1 | int(mask[b, 3 * slot + 2]) << 2
            candidates[state.window[b, slot]].legal = legal
            num_candidates += int(legal != 0)
        if num_candidates == 0:
            continue
        plan(state, b, code, params, scratch)
        if code >= FIRST_SHARED:
            prepare(state, b, code, params, scratch)
        found = False
        best = 0.0
        for slot in range(state.window.shape[1]):
            i = state.window[b, slot]
            if i < 0:
                break
            legal = candidates[i].legal
            if legal == 0:
                continue
            if code >= FIRST_SHARED:
                key, kind, server = score_shared(state, b, i, legal, code, params, scratch)
            else:
                key, kind, server = score_keyed(state, b, i, legal, code, params, scratch)
            if kind >= 0 and (not found or key > best):
                found = True
                best = key
                actions[b] = 3 * slot + kind
                servers[b] = server


@inline_kernel
def _legal_kinds(state, b, i):
    """Bits of the kinds of tasks that are legal for a job."""
    legal = int(is_legal(state, b, i, WORKER)) << WORKER
    legal |= int(is_legal(state, b, i, PS)) << PS
    return legal | int(is_legal(state, b, i, BUNDLE)) << BUNDLE


@inline_kernel
def _serve(state, b, i, candidate):
    """Places the candidate's task; returns the outcome of `place`."""
    env = state.env[b]
    env.num_decisions += 1
    env.pinned_server = candidate.server
    outcome = place(state, b, i, candidate.kind)
    env.pinned_server = -1
    return outcome


@kernel
def _serve_keyed(state, b, code, params, scratch):
    """Takes the decisions of one interval under a keyed rule; False when a task did not fit, which ends it."""
    env = state.env[b]
    is_volatile = state.rules[0].refresh_whole_mask
    active = state.active[b]
    candidates = scratch.candidates
    heap = scratch.heap
    size = 0
    num_exhausted = 0
    next_job = 0
    while True:
        is_new = next_job < env.num_active
        if is_new:
            i = active[next_job]
            next_job += 1
        elif size == 0:
            return True
        else:
            i = heap[0]
            version = env.num_decisions if is_volatile or candidates[i].server >= 0 else num_exhausted
            if candidates[i].version == version:
                outcome = _serve(state, b, i, candidates[i])
                if outcome == FAILED:
                    return False
                if outcome == EXHAUSTED:
                    num_exhausted += 1
        key, kind, server = score_keyed(state, b, i, _legal_kinds(state, b, i), code, params, scratch)
        candidate = candidates[i]
        candidate.key = key
        candidate.kind = kind
        candidate.server = server
        candidate.version = env.num_decisions if is_volatile or server >= 0 else num_exhausted
        if is_new:
            if kind >= 0:
                rise(heap, size, candidates, i)
                size += 1
        elif kind >= 0:
            sink(heap, size, candidates, i)
        else:
            size -= 1
            if size > 0:
                sink(heap, size, candidates, heap[size])


@kernel
def _serve_by_scan(state, b, code, params, scratch):
    """As `_serve_keyed`, looking at every job before each decision."""
    env = state.env[b]
    candidates = scratch.candidates
    while True:
        for k in range(env.num_active):
            i = state.active[b, k]
            candidates[i].legal = _legal_kinds(state, b, i)
        if code >= FIRST_SHARED:
            prepare(state, b, code, params, scratch)
        best = -1
        for k in range(env.num_active):
            i = state.active[b, k]
            legal = candidates[i].legal
            if legal == 0:
                continue
            if code >= FIRST_SHARED:
                key, kind, server = score_shared(state, b, i, legal, code, params, scratch)
            else:
                key, kind, server = score_keyed(state, b, i, legal, code, params, scratch)
            if kind >= 0 and (best < 0 or key > candidates[best].key):
                best = i
                candidates[i].key = key
                candidates[i].kind = kind
                candidates[i].server = server
        if best < 0:
            return True
        if _serve(state, b, best, candidates[best]) == FAILED:
            return False


@inline_kernel
def _offers_choice(state, b):
    """Whether the present decision is one that a stepwise run would ask for; see `DynamicsConfig.auto_advance`."""
    if not state.rules[0].auto_advance or state.env[b].num_decisions == 0:
        return True
    for k in range(state.env[b].num_active):
        if _legal_kinds(state, b, state.active[b, k]) != 0:
            return True
    return False


@kernel
def run_intervals(state, is_done, num_intervals, num_illegal, code, params, scratch):
    """Takes all decisions of whole intervals; see `ClusterSimulator.run_intervals`.

    Args:
        state: The batch.
        is_done: (B,) environments to leave alone; updated.
        num_intervals: How many at most.
        num_illegal: (B,) counts of tasks that did not fit; added to.
        code: The rule.
        params: (NUM_PARAMS,) its parameters.
        scratch: Scratch.
    """
    for b in range(is_done.shape[0]):
        env = state.env[b]
        for _ in range(num_intervals):
            if is_done[b]:
                break
            plan(state, b, code, params, scratch)
            # Where only the least-loaded server counts, a placement can also make tasks possible again.
            if code >= FIRST_SHARED or state.rules[0].placement == LEAST_LOADED_SINGLE:
                served = _serve_by_scan(state, b, code, params, scratch)
            else:
                served = _serve_keyed(state, b, code, params, scratch)
            if not served:
                num_illegal[b] += 1
            elif _offers_choice(state, b):
                env.num_decisions += 1  # void
            terminated, truncated = advance(state, b, scratch.terms)
            env.pending_wait = 0.0
            is_done[b] = terminated or truncated
        write_cluster(state.obs_cluster[b], env, state.rules[0], state.servers.shape[1])
