"""Positions: reset, validation after a leader change, committed offsets, ListOffsets."""
