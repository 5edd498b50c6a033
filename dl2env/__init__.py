"""dl2env: a Gymnasium environment and benchmark for reinforcement learning on deep-learning cluster scheduling."""

__version__ = "0.1.0"
