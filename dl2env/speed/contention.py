"""What placement and other jobs do to a server's links.

All functions work on numbers and on arrays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def link_stretch(others_use: ArrayLike, link_sharing: float) -> NDArray[np.float64]:
    """How much longer communication takes on a link that other jobs use.

    Args:
        others_use: Sum of the link use of other jobs' tasks on the server, each in 0..1.
        link_sharing: Strength of the effect, see `ClusterConfig.link_sharing`.

    Returns:
        Factor of at least 1: 1 + link_sharing * others_use.
    """
    return np.asarray(1.0 + link_sharing * np.asarray(others_use, dtype=np.float64))


def link_share(workers_here: ArrayLike, ps_here: ArrayLike, workers: ArrayLike, ps: ArrayLike) -> NDArray[np.float64]:
    """Traffic through a server's network card per step, in units of the weight traffic S_w of one worker.

    Each worker exchanges S_w / P with each of the P parameter servers (PSs); exchanges within a server stay off the
    network. So n_w workers and n_p PSs here of W and P in all move S_w * [n_w (P - n_p) + n_p (W - n_w)] / P.

    Args:
        workers_here: n_w, workers of the job on this server.
        ps_here: n_p, PSs of the job on this server.
        workers: W, all workers of the job.
        ps: P, all PSs of the job, positive.
    """
    n_w, n_p = np.asarray(workers_here, dtype=np.float64), np.asarray(ps_here, dtype=np.float64)
    total_w, total_p = np.asarray(workers, dtype=np.float64), np.asarray(ps, dtype=np.float64)
    return np.asarray((n_w * (total_p - n_p) + n_p * (total_w - n_w)) / total_p)


def pcie_sharers(workers_here: ArrayLike, pcie_group: int) -> NDArray[np.float64]:
    """Replicas of a job that share one PCIe root, by which its input time is multiplied.

    As we understand the PAI model, replicas packed on a server share its PCIe links, at most `pcie_group` of them
    (8: a whole server, 4: one root of two). 0 turns sharing off.
    """
    count = np.maximum(np.asarray(workers_here, dtype=np.float64), 1.0)
    return np.minimum(count, pcie_group) if pcie_group > 0 else np.ones_like(count)
