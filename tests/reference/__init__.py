"""A slow, plain-Python simulator written from `docs/architecture.md`, the independent check of the kernels.

Nothing here imports `dl2env.sim`: where both agree, two readings of the documentation agree.
"""

from tests.reference.simulator import ReferenceSimulator, StepResult

__all__ = ["ReferenceSimulator", "StepResult"]
