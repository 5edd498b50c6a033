"""Learning while scheduling: one cluster, jobs that keep coming, and a policy that is updated meanwhile."""
