"""Nothing in this compiled module is for Python; see ``aborted_transactions.pyx``."""
