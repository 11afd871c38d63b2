"""The connections to one cluster as state, without I/O: connections, requests, metadata."""
