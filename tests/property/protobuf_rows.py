"""Protobuf messages decoded to rows."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from kfast._native import protobuf_decode
from kfast.schemas.proto_schema import read_descriptor_set
from kfast.schemas.protobuf_columns import message_columns
from kfast.schemas.protobuf_plan import ProtobufPlan, compile_plan
from kfast.schemas.selection import select
from kfast.schemas.types import Kind, SchemaField
from tests.property.protobuf_schemas import Schemas
from tests.reference.built_columns import rows_of

RAISE, NULL = 0, 1


def plan_of(schemas: Schemas, **how: Any) -> ProtobufPlan:
    how["columns"] = select(how.get("columns"))
    pool = read_descriptor_set(schemas.descriptor_set)
    return compile_plan(message_columns(pool, schemas.name, **how))


def decode(
    plan: ProtobufPlan, values: Sequence[bytes | None], mode: int = NULL, **more: Any
) -> tuple[list[Any], list[tuple[int, ...]]]:
    """Rows as Python values, and (row, position, code, node, indexes...) of the bad ones."""
    lengths = np.array([-1 if v is None else len(v) for v in values], np.int32)
    starts = np.cumsum(np.maximum(lengths, 0), dtype=np.int64) - np.maximum(lengths, 0)
    built, raw = protobuf_decode.decode(
        plan.layout,
        plan.names,
        plan.parts,
        b"".join(v or b"" for v in values),
        starts,
        lengths,
        mode,
        **more,
    )
    errors = []
    for row, position, code, node, _detail, depth, *indexes in struct.iter_unpack(
        "=qq12i", b"" if raw is None else bytes(raw)
    ):
        errors.append((row, position, code, node, *indexes[:depth]))
    return [with_dicts(plan.column, row) for row in rows_of(plan.column, built)], errors


def with_dicts(column: SchemaField, value: Any) -> Any:
    """The value with maps as dicts, whose keys are there once."""
    if value is None:
        return None
    kind, fields = column.type.kind, column.type.fields
    if kind is Kind.STRUCT:
        return {field.name: with_dicts(field, value[field.name]) for field in fields}
    if kind is Kind.LIST:
        return [with_dicts(fields[0], item) for item in value]
    if kind is Kind.MAP:
        made = {key: with_dicts(fields[1], item) for key, item in value}
        assert len(made) == len(value)
        return made
    return value


def comparable(value: Any) -> Any:
    """A value in which NaN, -0.0 and 1.0 and 1 differ, and maps have an order."""
    if isinstance(value, dict):
        return sorted((repr(key), comparable(item)) for key, item in value.items())
    return [comparable(item) for item in value] if isinstance(value, list) else repr(value)
