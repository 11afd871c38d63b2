"""Decoding of a few documents for tests, and the codes of errors."""

from __future__ import annotations

from typing import Any

from kfast.schemas.json_plan import json_plan
from kfast.schemas.schema import Schema
from tests.reference.built_values import Failure, decode_json

EMPTY, TRUNCATED, TRAILING, SYNTAX, UTF8, TYPE, RANGE, MISSING, DUPLICATE, DEPTH, MAGIC = range(
    1, 12
)
TOO_LARGE = 17


def decode(
    schema: object, *documents: bytes | None, mode: int = 1, **options: Any
) -> tuple[list[Any], list[Failure]]:
    root = Schema(schema).root
    return decode_json(json_plan(root, **options), root, documents, mode)


def one(schema: object, text: bytes, **options: Any) -> Any:
    """Return the value of one document, or ``(code, position)``."""
    # The same alone, with others around it, and with room behind it: in place and copied.
    around = [b'{"other":[1,"x"]}', text, b"[1,2]" + b" " * 80, text, b"3"]
    results = []
    for documents, row in (([text], 0), (around, 1), (around, 3)):
        values, errors = decode(schema, *documents, **options)
        assert len(values) == len(documents)
        found = [(each.code, each.position) for each in errors if each.row == row]
        results.append(found[0] if found else values[row])
    assert repr(results[0]) == repr(results[1]) == repr(results[2])
    return results[0]
