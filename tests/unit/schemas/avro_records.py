"""Schemas of Avro records."""

from __future__ import annotations

from typing import Any


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": key, "type": value} for key, value in fields.items()],
    }
