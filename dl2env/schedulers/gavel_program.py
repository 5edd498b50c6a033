"""Gavel's programs: shares of time on kinds of GPUs.

The two objectives differ in what the speeds of jobs are multiplied by to be compared (`write_weights`). The smallest
of these normalised speeds is made as large as possible: it is the highest level for which shares of time exist with
which every job reaches it, or the most it can have.
"""

from __future__ import annotations

import math

from dl2env.jit import inline_kernel, kernel
from dl2env.schedulers.gavel_rates import COST, CPUS, GPUS, LOAD, PRICE, gain_on, given_level

BASIS, WORK, VECTORS = range(3)  # parts of `Scratch.program`
VALUE, COLUMN, MEMBER = range(3)  # rows of the last part
HIGHEST = 0.0
"""Members of a basis: slots of fractions count from 1, slacks from -1 down, and between them is the highest load."""

MAX_PIVOTS = 60
"""Then a level counts as out of reach; some five per kind are common."""

SLACK = 1e-3
"""Kinds may be planned this much too full: placement is coarser than that."""


@inline_kernel
def _respond(state, b, i, level, fractions, scratch):
    """Adds to the loads of kinds the cheapest time fractions with which job i reaches a level, or its most.

    Returns what they cost at the present prices.
    """
    kinds = scratch.kinds
    rates = scratch.rates[state.jobs[b, i].type]
    num_kinds = state.compute_s.shape[1]
    most = 0.0
    for g in range(num_kinds):
        fractions[i, g] = 0.0
        most = max(most, gain_on(state, b, i, g, scratch))
    need = min(level - given_level(state, b, i, scratch), most)
    if need <= 0.0:
        return 0.0
    cheapest = math.inf
    first = -1
    second = -1
    for g in range(num_kinds):  # one kind, for a part of the time
        gain = gain_on(state, b, i, g, scratch)
        if gain >= need:
            cost = need / gain * rates[g, COST] * kinds[g, PRICE]
            if cost < cheapest:
                cheapest = cost
                first = g
                second = -1
    for g in range(num_kinds):  # a slow kind and a fast one, all of the time
        slow = gain_on(state, b, i, g, scratch)
        if slow <= 0.0 or slow >= need:
            continue
        for h in range(num_kinds):
            fast = gain_on(state, b, i, h, scratch)
            if fast > need:
                part = (need - slow) / (fast - slow)
                cost = part * rates[h, COST] * kinds[h, PRICE] + (1.0 - part) * rates[g, COST] * kinds[g, PRICE]
                if cost < cheapest:
                    cheapest = cost
                    first = h
                    second = g
    fraction = need / gain_on(state, b, i, first, scratch)
    if second >= 0:
        slow = gain_on(state, b, i, second, scratch)
        fraction = (need - slow) / (gain_on(state, b, i, first, scratch) - slow)
        fractions[i, second] = 1.0 - fraction
        kinds[second, LOAD] += (1.0 - fraction) * rates[second, COST]
    fractions[i, first] = fraction
    kinds[first, LOAD] += fraction * rates[first, COST]
    return cheapest


@inline_kernel
def _respond_all(state, b, level, slot, scratch):
    """Answers of all jobs to the present prices: their fractions in a slot, the loads of kinds, and what they cost."""
    for g in range(state.compute_s.shape[1]):
        scratch.kinds[g, LOAD] = 0.0
    cost = 0.0
    for k in range(state.env[b].num_active):
        cost += _respond(state, b, state.active[b, k], level, scratch.fractions[slot], scratch)
    return cost


@inline_kernel
def _solve(program, num_rows, is_transposed):
    """Solves basis * x = right side, or its transpose, by elimination.

    The right side, in column `num_rows` of `program[WORK]`, becomes x.
    """
    work = program[WORK]
    for r in range(num_rows):
        for c in range(num_rows):
            work[r, c] = program[BASIS, c, r] if is_transposed else program[BASIS, r, c]
    for c in range(num_rows):
        pivot = c
        for r in range(c + 1, num_rows):
            if abs(work[r, c]) > abs(work[pivot, c]):
                pivot = r
        for x in range(c, num_rows + 1):
            swapped = work[c, x]
            work[c, x] = work[pivot, x]
            work[pivot, x] = swapped
        for r in range(num_rows):
            if r != c:
                factor = work[r, c] / work[c, c]
                for x in range(c, num_rows + 1):
                    work[r, x] -= factor * work[c, x]
    for r in range(num_rows):
        work[r, num_rows] /= work[r, r]


@inline_kernel
def _enter(program, num_rows, at, member):
    """Puts the column in `program[VECTORS, COLUMN]` at a place of the basis."""
    for r in range(num_rows):
        program[BASIS, r, at] = program[VECTORS, COLUMN, r]
    program[VECTORS, MEMBER, at] = member


@kernel
def reaches(state, b, level, scratch):
    """Whether time fractions exist with which every job reaches a level or its most; if so, they are kept.

    They exist if some mixture of answers of all jobs to prices of the kinds loads no kind beyond its units. The mixture
    with the least highest load is a linear program of G + 1 rows, solved by the simplex method with columns generated
    as they are needed (Dantzig and Wolfe, Operations Research 1960): its dual variables are the prices that the jobs
    answer next. It ends as soon as the highest load fits, or when even the cheapest answers cost more than all kinds
    are worth, which proves that it never will.
    """
    program = scratch.program
    vectors = program[VECTORS]
    kinds = scratch.kinds
    num_kinds = state.compute_s.shape[1]
    num_rows = num_kinds + 1
    total = 0.0
    for g in range(num_kinds):
        total += kinds[g, PRICE]  # those of the level before, or equal ones
    for g in range(num_kinds):
        kinds[g, PRICE] /= total
    if _respond_all(state, b, level, 1, scratch) > 1.0 + SLACK:
        return False
    fullest = 0
    for g in range(num_kinds):
        if kinds[g, LOAD] > kinds[fullest, LOAD]:
            fullest = g
    # The basis: a slack for each kind but the fullest, the highest load in its place, and the first answers.
    for at in range(num_rows):
        for r in range(num_rows):
            vectors[COLUMN, r] = 1.0 if r == at else 0.0
        member = -1.0 - at
        if at == fullest:
            for g in range(num_kinds):
                vectors[COLUMN, g] = -1.0
            member = HIGHEST
        elif at == num_kinds:
            for g in range(num_kinds):
                vectors[COLUMN, g] = kinds[g, LOAD]
            member = 1.0
        _enter(program, num_rows, at, member)
    free_slot = 2
    for _ in range(MAX_PIVOTS):
        for r in range(num_rows):
            program[WORK, r, num_rows] = 1.0 if r == num_kinds else 0.0
        _solve(program, num_rows, False)
        highest = 0.0
        for r in range(num_rows):
            vectors[VALUE, r] = program[WORK, r, num_rows]
            if vectors[MEMBER, r] == HIGHEST:
                highest = vectors[VALUE, r]
        if highest <= 1.0 + SLACK:
            _mix(state, b, scratch)
            return True
        for r in range(num_rows):
            program[WORK, r, num_rows] = 1.0 if vectors[MEMBER, r] == HIGHEST else 0.0
        _solve(program, num_rows, True)
        entering = -1
        steepest = 1e-12
        for g in range(num_kinds):  # a slack whose price would be below 0
            kinds[g, PRICE] = max(-program[WORK, g, num_rows], 0.0)
            if program[WORK, g, num_rows] > steepest:
                steepest = program[WORK, g, num_rows]
                entering = g
        worth = program[WORK, num_kinds, num_rows]
        member = -1.0 - entering
        for r in range(num_rows):
            vectors[COLUMN, r] = 1.0 if r == entering else 0.0
        if entering < 0:
            cost = _respond_all(state, b, level, free_slot, scratch)
            if cost > 1.0 + SLACK or cost > worth - 1e-9:
                return False
            for g in range(num_kinds):
                vectors[COLUMN, g] = kinds[g, LOAD]
            vectors[COLUMN, num_kinds] = 1.0
            member = float(free_slot)
        for r in range(num_rows):
            program[WORK, r, num_rows] = vectors[COLUMN, r]
        _solve(program, num_rows, False)
        leaving = -1
        least = math.inf
        for r in range(num_rows):
            change = program[WORK, r, num_rows]
            if change > 1e-12 and max(vectors[VALUE, r], 0.0) / change < least:
                least = max(vectors[VALUE, r], 0.0) / change
                leaving = r
        if leaving < 0:
            return False
        left = vectors[MEMBER, leaving]
        _enter(program, num_rows, leaving, member)
        if entering < 0:
            free_slot = int(left) if left > HIGHEST else _unused_slot(vectors, num_rows)
        elif left > HIGHEST:
            free_slot = int(left)
    return False


@inline_kernel
def _unused_slot(vectors, num_rows):
    """A slot of fractions that no member of the basis uses."""
    for slot in range(1, num_rows + 2):
        is_used = False
        for r in range(num_rows):
            is_used |= vectors[MEMBER, r] == slot
        if not is_used:
            return slot
    return -1


@inline_kernel
def _mix(state, b, scratch):
    """Keeps the mixture of answers that the basis stands for."""
    num_kinds = state.compute_s.shape[1]
    fractions = scratch.fractions
    vectors = scratch.program[VECTORS]
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        for g in range(num_kinds):
            fractions[0, i, g] = 0.0
            for r in range(num_kinds + 1):
                if vectors[MEMBER, r] > HIGHEST and vectors[VALUE, r] > 0.0:
                    fractions[0, i, g] += vectors[VALUE, r] * fractions[int(vectors[MEMBER, r]), i, g]


@inline_kernel
def _fill(state, b, scratch):
    """Gives time that jobs have left, and units that kinds have left, to the jobs in the order of arrival."""
    kinds = scratch.kinds
    num_kinds = state.compute_s.shape[1]
    for g in range(num_kinds):
        kinds[g, LOAD] = 0.0
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        for g in range(num_kinds):
            kinds[g, LOAD] += scratch.fractions[0, i, g] * min(scratch.rates[state.jobs[b, i].type, g, COST], 1e300)
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        rest = 1.0
        for g in range(num_kinds):
            rest -= scratch.fractions[0, i, g]
        while rest > 1e-9:
            best = -1
            for g in range(num_kinds):
                gain = gain_on(state, b, i, g, scratch)
                if gain > 0.0 and kinds[g, LOAD] < 1.0 - 1e-9:
                    if best < 0 or gain > gain_on(state, b, i, best, scratch):
                        best = g
            if best < 0:
                break
            cost = scratch.rates[state.jobs[b, i].type, best, COST]
            more = rest if rest * cost <= 1.0 - kinds[best, LOAD] else (1.0 - kinds[best, LOAD]) / cost
            scratch.fractions[0, i, best] += more
            kinds[best, LOAD] += more * cost
            rest -= more


@kernel
def write_fractions(state, b, num_kinds, scratch):
    """Writes each job's shares of time on the kinds: the highest level that all jobs can reach, or their most."""
    highest = 0.0
    for k in range(state.env[b].num_active):
        i = state.active[b, k]
        for g in range(state.compute_s.shape[1]):
            scratch.fractions[0, i, g] = 0.0
            highest = max(highest, given_level(state, b, i, scratch) + gain_on(state, b, i, g, scratch))
    for g in range(state.compute_s.shape[1]):
        scratch.kinds[g, PRICE] = 1.0 / num_kinds if scratch.kinds[g, CPUS] + scratch.kinds[g, GPUS] > 0.0 else 0.0
    if highest <= 0.0:
        return
    if not reaches(state, b, highest, scratch):
        lowest = 1e-9 * highest  # if not even this can be reached, nobody gets a planned share
        while highest > 1.001 * lowest:
            level = math.sqrt(lowest * highest)
            if reaches(state, b, level, scratch):
                lowest = level
            else:
                highest = level
    _fill(state, b, scratch)
