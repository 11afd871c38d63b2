"""Columns described for the Arrow C data interface, without an Arrow library."""
