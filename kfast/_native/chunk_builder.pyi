"""Nothing in this compiled module is for Python; see ``chunk_builder.pyx``."""
