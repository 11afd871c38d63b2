"""The schema registry: its API, look-ups, transport and thread, and the public `SchemaRegistry`."""
