"""Kafka's wire protocol, sans-IO: bytes to messages and back.

``messages`` holds one file per API with the readable definitions; ``schema`` is the language they
are written in, ``decoders`` and ``encoders`` turn a definition and a version into a reader and
a writer, ``message`` applies them, ``headers`` puts frames together. Record data is not decoded
here: see the compiled ``record_batch``.
"""
