"""Exceptions of signal handlers at every place of the public calls where a handler can run."""
