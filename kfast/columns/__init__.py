"""Columns of keys, values and headers: one module per kind, read-only, without Python objects."""
