"""Weight and gradient traffic S_w of one replica in one step, by architecture."""

from __future__ import annotations

from dl2env.errors import ConfigError
from dl2env.speed.characterization import GPUS_PER_SERVER, ring_traffic_bytes
from dl2env.speed.parameters import ARCHITECTURES, SINGLE_SERVER

TRAFFIC_RULES = {
    "1w1g": "none: a single GPU",
    "1wng": "push gradients and pull weights, 2 x (dense + touched rows)",
    "ps_worker": "push gradients and pull weights, 2 x (dense + touched rows)",
    "all_reduce": "ring all-reduce of dense gradients, 4 (n - 1) / n, and all-gather of touched rows, 2 (n - 1)",
    "pearl": "ring all-reduce of dense gradients and exchange of touched rows with the replicas that hold them, both "
    "4 (n - 1) / n",
}
"""What is sent and received; n replicas."""


def weight_traffic_bytes(
    architecture: str, num_replicas: int, dense_gradient_bytes: float, row_gradient_bytes: float
) -> float:
    """S_w: bytes that one replica sends and receives in a step.

    - Parameter servers (`ps_worker`, `1wng`): gradients there, weights back.
    - `all_reduce`: dense gradients by ring all-reduce, 4 (n - 1) / n times their size, as the recalled traffic of the
      PAI models has it. Sparse gradients cannot be added up in place: each replica gets the rows of all others by a
      ring all-gather and passes as many on, 2 (n - 1) times the rows.
    - `pearl`: every table lies on one replica. (n - 1) / n of the rows a replica looks up come from others, as many go
      out to them, and gradients go the same ways back.

    Indices (8 bytes a row) are left out.

    Args:
        architecture: Key of `dl2env.speed.parameters.ARCHITECTURES`.
        num_replicas: n.
        dense_gradient_bytes: Gradients exchanged whole.
        row_gradient_bytes: Touched rows of tables with sparse gradients.

    Raises:
        ConfigError: The architecture is unknown, or does not run on so many replicas.
    """
    if architecture not in ARCHITECTURES:
        raise ConfigError(f"architecture={architecture!r} is unknown; choose one of: {', '.join(ARCHITECTURES)}")
    is_single = ARCHITECTURES[architecture] in SINGLE_SERVER
    if num_replicas < 1 or (is_single and num_replicas > GPUS_PER_SERVER):
        limit = f"1 to {GPUS_PER_SERVER}, the GPUs of one server" if is_single else "at least 1"
        raise ConfigError(f"replicas={num_replicas} on architecture {architecture}: must be {limit}")
    if architecture == "1w1g":
        return 0.0
    if architecture in ("1wng", "ps_worker"):
        return 2.0 * (dense_gradient_bytes + row_gradient_bytes)
    if architecture == "pearl":
        return float(ring_traffic_bytes(dense_gradient_bytes + row_gradient_bytes, num_replicas))
    return float(ring_traffic_bytes(dense_gradient_bytes, num_replicas)) + 2.0 * (num_replicas - 1) * row_gradient_bytes
