"""Fetching: plans, sessions and responses, and the buffer of what has been fetched."""
