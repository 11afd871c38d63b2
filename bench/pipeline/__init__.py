"""From a socket to columns without a real broker: the cost of a Fetch response, by its size."""
