"""Well-known networks in plain PyTorch, one module per family, for the job types of `data/job_types/profiled.toml`.

Each factory takes `batch_size` and returns a `TrainingStep` whose module lies on the meta device: it takes no memory.
The definitions follow the publications named in them; no weights are loaded.
"""
