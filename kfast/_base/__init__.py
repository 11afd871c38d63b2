"""Plumbing that knows nothing of Kafka: clock, loggers, own threads, optional packages, exits."""
