"""``kfast demo`` and ``make demo-spark``: demonstrations on a real Kafka."""
