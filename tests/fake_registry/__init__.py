"""A schema registry in this process, with faults on request."""
