from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dl2env.speed.contention import link_share, link_stretch, pcie_sharers
from tests.speed.cases import close


def test_stretch_by_hand():
    assert close(link_stretch([0.0, 1.0, 0.5, 4.0], 0.5), [1.0, 1.5, 1.25, 3.0])
    assert close(link_stretch(4, 0.0), 1.0)


def test_share_by_hand():
    # Three workers and two PSs: one worker with one PS here. It sends half of S_w away; two others send half of theirs.
    assert close(link_share(1, 1, 3, 2), 1 * 1 / 2 + 1 * 2 / 2)
    assert close(link_share(1, 0, 3, 2), 1.0)  # a worker alone exchanges all its weights
    assert close(link_share(0, 1, 3, 2), 1.5)  # a PS alone serves half of the weights of all three
    assert close(link_share(3, 2, 3, 2), 0.0)  # nothing leaves the only server


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6))
def test_every_byte_has_two_ends(tasks):
    n_w, n_p = np.array(tasks).T
    workers, ps = n_w.sum(), n_p.sum()
    if ps == 0:
        return
    local = (n_w * n_p).sum() / ps  # exchanges between a worker and a PS of the same server
    assert close(link_share(n_w, n_p, workers, ps).sum(), 2 * (workers - local), 1e-9)


def test_pcie_sharers():
    assert close(pcie_sharers([0, 1, 3, 8, 12], 8), [1, 1, 3, 8, 8])
    assert close(pcie_sharers([3, 12], 4), [3, 4])
    assert close(pcie_sharers([3, 12], 0), [1, 1])
