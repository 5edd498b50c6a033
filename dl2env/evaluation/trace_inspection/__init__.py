"""What a recorded workload holds: the account of its rows, its load on a cluster, its distributions."""
