"""From a socket to columns without a real broker: what one answer costs, by its size."""
