"""Orders as Avro values."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
fastavro = pytest.importorskip("fastavro")


AVRO_TEXT = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["buy", "sell"]}},
            {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "price", "type": ["null", "double"], "default": None},
            {"name": "lines", "type": {"type": "array", "items": "int"}},
        ],
    }
)
ORDER = {"id": 7, "placed": 1000, "side": "sell", "at": 5, "price": 2.5, "lines": [1, 2]}


def avro(row: dict[str, Any], text: str = AVRO_TEXT) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, json.loads(text), row)
    return out.getvalue()


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload
