"""A format of typed values for tests, decoded by Python through the compiled builders.

A value is the number of a row and a text: ``b"5 abc"``. A number that is none is TYPE at its path,
no text is MISSING.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar

from kfast._native.builder_operations import build
from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.record_errors import ErrorKind
from kfast.deserializers.typed import MODE_RAISE, Piece, TypedDeserializer
from kfast.schemas.layout import layout
from kfast.schemas.schema import Schema
from kfast.schemas.types import SchemaField

SCHEMA = {"id": {"n": "int64"}, "text": "string not null"}
NUMBER_NODE, TEXT_NODE = 2, 3


class Lines(TypedDeserializer):
    """The format; ``piece`` is the most rows that one call decodes."""

    __slots__ = ()
    format_name: ClassVar[str] = "a line"

    def __init__(self, **options: Any) -> None:
        self._options = options

    @property
    def root(self) -> SchemaField:
        return Schema(SCHEMA).root

    def _decode(
        self, column: BytesColumn, headers: HeadersColumn | None, mode: int, most_bytes: int
    ) -> Piece:
        steps: list[Any] = []
        for row, value in enumerate(column[: self._options.get("piece", len(column))].to_list()):
            steps.append(("row",))
            bad = None
            if value is None:
                steps.append(("null", 0))
                continue
            number, _, text = value.partition(b" ")
            if not number.isdigit():
                bad = (ErrorKind.TYPE, NUMBER_NODE, 0)
            elif not text:
                bad = (ErrorKind.MISSING, TEXT_NODE, len(value))
            if bad is None:
                steps += [
                    ("struct", 0),
                    ("struct", 1),
                    ("fixed", NUMBER_NODE, struct.pack("=q", int(number))),
                    ("bytes", TEXT_NODE, text),
                ]
                continue
            steps.append(("error", row, bad[0], bad[1], bad[2], 0, []))
            if mode == MODE_RAISE:
                break
            steps.append(("null", 0))
        built, errors, results, _full, _size = build(layout(self.root), steps)
        assert not any(results)
        return Piece(self.root, built, errors)

    def _schema_ids(
        self, _column: BytesColumn, _headers: HeadersColumn | None, rows: Any
    ) -> list[int | str | None]:
        return [int(row) + 100 for row in rows]

    def _type_at(self, _raw: bytes, _position: int) -> str:
        return "a word"

    def _shown_at(self, raw: bytes, position: int) -> str:
        return f'"{raw[position : position + 5].decode()}"'
