"""Compiled locks, signals and counters: what the threads of a consumer meet at."""
