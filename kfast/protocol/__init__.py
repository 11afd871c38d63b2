"""Kafka's wire protocol, sans-IO: bytes to messages and back.

``messages`` holds one file per API with the readable definitions; ``schema`` is the language they
are written in, ``plans`` turns a definition and a version into readers and writers, ``headers``
puts frames together. Record data is not decoded here: see the compiled ``record_batch``.
"""
