"""Committed offsets of a group: OffsetCommit and OffsetFetch."""
