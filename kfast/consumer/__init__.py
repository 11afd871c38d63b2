"""What a consumer does with a cluster, without I/O: subscription, positions, fetches, groups."""
