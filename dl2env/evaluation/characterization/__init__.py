"""The characterization of a population of training jobs: findings beside published figures, tables, plots, a report."""
