"""Nothing in this compiled module is for Python; see ``batch_faults.pyx``."""
