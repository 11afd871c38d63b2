"""Values for deserializers, and a schema registry in memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.spans import ColumnOrigin
from kfast.registry.registered_schema import (
    AVRO,
    PROTOBUF,
    RegisteredSchema,
    SchemaAnswers,
    SchemaKey,
    SchemaReference,
)
from tests.reference.avro_encoder import sized


class Source:
    """A registry of one type of schemas, which counts what is asked of it."""

    def __init__(self, schema_type: str) -> None:
        self.schema_type = schema_type
        self.schemas: dict[SchemaKey, RegisteredSchema] = {}
        self.asked: list[SchemaKey] = []

    def add(
        self, key: SchemaKey, schema: Any, schema_type: str | None = None, **references: Any
    ) -> None:
        made = tuple(
            SchemaReference(name, name, 1, RegisteredSchema(self.schema_type, self._text(each)))
            for name, each in references.items()
        )
        kind = schema_type or self.schema_type
        self.schemas[key] = RegisteredSchema(kind, self._text(schema), made)

    def _text(self, schema: Any) -> str:
        return str(schema) if self.schema_type == PROTOBUF else json.dumps(schema)

    def wait_for(
        self, keys: Collection[SchemaKey], *, is_serialized: bool = False
    ) -> SchemaAnswers:
        assert is_serialized or self.schema_type == AVRO
        self.asked += keys
        found = {key: self.schemas[key] for key in keys if key in self.schemas}
        return SchemaAnswers(found, frozenset(keys) - found.keys())

    lookup: Any = None


def column(
    values: Sequence[bytes | None], topic: str = "orders", name: str = "value"
) -> BytesColumn:
    made = BytesColumn.from_values(values)
    return BytesColumn(*made.spans, origin=ColumnOrigin(topic, 0, name, np.arange(len(values))))


def headers_of(*rows: list[tuple[bytes, bytes]]) -> HeadersColumn:
    data, starts = b"", []
    for row in rows:
        starts.append(len(data))
        data += b"".join(sized(name) + sized(value) for name, value in row)
    return HeadersColumn(
        data, np.array(starts, np.int32), np.array([len(row) for row in rows], np.int32)
    )
