"""Compiled work on bytes and columns; never imports a higher layer."""
