"""``kfast demo``: what kfast does, shown on a real Kafka."""
