"""Kafka's wire protocol, sans-IO: bytes to messages and back.

``messages`` has one file of definitions per API, in the terms of ``schema``; ``decoders`` and
``encoders`` are made from a definition and a version, ``message`` applies them, ``headers`` adds
the frame. Record data is decoded by the compiled ``record_batch``.
"""
