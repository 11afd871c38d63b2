"""Record data as two independent Python clients read it: second oracles beside ``decoder.py``.

kafka-python decodes in Python and needs a package of its own for snappy; aiokafka compiles.
"""

from __future__ import annotations

import warnings
from typing import Any

from tests.reference.decoder import DecodedRecord

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # importing kafka-python warns about what it uses
    from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
    from kafka.codec import has_snappy as kafka_python_has_snappy
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

__all__ = [
    "KAFKA_PYTHON_HAS_SNAPPY",
    "AiokafkaRecords",
    "KafkaPythonRecords",
    "Row",
    "aiokafka_rows",
    "as_rows",
    "kafka_python_rows",
]

Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Offset, timestamp (-1 for none), key, value, headers."""

KAFKA_PYTHON_HAS_SNAPPY: bool = kafka_python_has_snappy()


def as_rows(records: list[DecodedRecord]) -> list[Row]:
    """Rows of records from kfast or the oracle."""
    return [
        (r.offset, r.timestamp, r.key, r.value, tuple((k.decode(), v) for k, v in r.headers))
        for r in records
    ]


def _rows(memory_records: Any) -> list[Row]:
    rows: list[Row] = []
    while memory_records.has_next():
        batch = memory_records.next_batch()
        assert batch.validate_crc()
        rows += [
            (
                record.offset,
                -1 if record.timestamp is None else record.timestamp,
                None if record.key is None else bytes(record.key),
                None if record.value is None else bytes(record.value),
                tuple((k, None if v is None else bytes(v)) for k, v in record.headers),
            )
            for record in batch
        ]
    return rows


def kafka_python_rows(data: bytes) -> list[Row]:
    return _rows(KafkaPythonRecords(data))


def aiokafka_rows(data: bytes) -> list[Row]:
    return _rows(AiokafkaRecords(data))
