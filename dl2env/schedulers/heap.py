"""A binary heap of jobs by key, for kernels: the engine and plans keep their candidates in one."""

from __future__ import annotations

from dl2env.jit import inline_kernel


@inline_kernel
def precedes(candidates, i, j):
    """Whether job i comes before job j: the higher key, of equal keys the earlier job."""
    return candidates[i].key > candidates[j].key or (candidates[i].key == candidates[j].key and i < j)


@inline_kernel
def sink(heap, size, candidates, i):
    """Puts job i in the place of the heap's root and lets it sink."""
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and precedes(candidates, heap[child + 1], heap[child]):
            child += 1
        if not precedes(candidates, heap[child], i):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = i


@inline_kernel
def rise(heap, size, candidates, i):
    """Adds job i to a heap of the given size."""
    at = size
    while at > 0:
        parent = (at - 1) // 2
        if not precedes(candidates, i, heap[parent]):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = i


@inline_kernel
def replace_root(heap, size, candidates, is_kept):
    """Moves the heap's root, whose key has changed, to its place, or takes it out. Returns the new size."""
    i = heap[0]
    if not is_kept:
        size -= 1
        i = heap[size]
    if size > 0:
        sink(heap, size, candidates, i)
    return size
