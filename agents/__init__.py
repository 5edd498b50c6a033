"""Learned schedulers: networks, supervised warm-up, PPO fine-tuning, checkpoints. Needs torch; dl2env does not."""
