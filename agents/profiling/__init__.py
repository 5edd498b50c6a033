"""From a PyTorch module to a job type: counts what one training step needs (docs/profiling.md)."""

from agents.profiling.record import JobOptions, job_type_of
from agents.profiling.results import StepProfile, StepSettings
from agents.profiling.step import profile_step
from agents.profiling.training_step import TrainingStep, load_training_step

__all__ = [
    "JobOptions",
    "StepProfile",
    "StepSettings",
    "TrainingStep",
    "job_type_of",
    "load_training_step",
    "profile_step",
]
