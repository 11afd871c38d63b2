"""Schemas of typed columns: from any form a user or a registry gives to one tree of types.

Pure functions and immutable values: no I/O, no NumPy, no Python object per record.
"""
