"""Administrative look-ups: groups of the cluster, their members and offsets, by a non-member."""
