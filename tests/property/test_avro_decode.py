"""Any Avro schema and value: the columns have what fastavro reads, row by row."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from kfast.errors import ConfigurationError
from kfast.schemas.avro_columns import only
from kfast.schemas.avro_plan import compile_plan, target_of
from kfast.schemas.avro_text import parse_avro
from kfast.schemas.selection import select
from kfast.schemas.types import Kind, SchemaField
from tests.property.avro_rows import comparable, decode
from tests.property.avro_schemas import LOGICAL, PRIMITIVES, Schemas, value_of
from tests.reference.avro_encoder import any_blocks, encode
from tests.soaking import examples

UNION, ENUM = 16, 15
LEAVES = (*PRIMITIVES[1:], *LOGICAL)


def plain(schema: Any) -> Any:
    """The schema without logical types: fastavro then gives what was encoded."""
    if isinstance(schema, list):
        return [plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: plain(value) if key in {"type", "items", "values", "fields"} else value
        for key, value in schema.items()
        if key not in {"logicalType", "precision", "scale"}
    }


def fastavro_rows(writer: Any, reader: Any, values: Sequence[bytes]) -> list[Any]:
    """What fastavro reads, or its exception."""
    one, other = fastavro.parse_schema(plain(writer)), fastavro.parse_schema(plain(reader))
    rows: list[Any] = []
    for value in values:
        stream = io.BytesIO(value)
        try:
            rows.append(fastavro.schemaless_reader(stream, one, other))
        except Exception as error:
            rows.append(error)
        else:
            assert stream.tell() == len(value)
    return rows


def in_column(column: SchemaField, value: Any) -> Any:
    """What a column has for a value of fastavro's."""
    kind = column.type.kind
    if value is None:
        return None
    if kind is Kind.STRUCT:
        return {f.name: in_column(f, value[f.name]) for f in column.type.fields}
    if kind is Kind.LIST:
        return [in_column(column.type.item, item) for item in value]
    if kind is Kind.MAP:
        return [(key, in_column(column.type.fields[1], item)) for key, item in value.items()]
    if kind is Kind.UUID:
        return UUID(value) if isinstance(value, str) else UUID(bytes=value)
    if kind in {Kind.DECIMAL128, Kind.DECIMAL256}:
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-column.type.scale)
    if kind in {Kind.BINARY, Kind.FIXED_BINARY} and isinstance(value, str):
        return value.encode("latin-1")  # a default, which fastavro leaves as it is in the schema
    if kind is Kind.FLOAT32:
        return float(np.float32(value))
    return value


@given(st.integers(0))
@examples(150)
def test_columns_have_what_fastavro_reads(seed: int) -> None:
    """TC-65, TC-66, TC-74: blocks of any form, nulls, rows equal messages."""
    rng = Random(seed)
    schema = Schemas(rng, LEAVES, are_columns=True).record()
    parsed = parse_avro(json.dumps(schema))
    target = target_of(parsed)
    values = [
        encode(schema, value_of(schema, rng), any_blocks(rng)) for _ in range(rng.randint(1, 8))
    ]
    expected = [in_column(target.column, row) for row in fastavro_rows(schema, schema, values)]
    given_values: list[bytes | None] = list(values)
    for _ in range(rng.randrange(3)):
        at = rng.randint(0, len(expected))
        given_values.insert(at, None)
        expected.insert(at, None)
    rows, errors = decode(target, [compile_plan(parsed, target, 64)], given_values)
    assert not errors
    assert len(rows) == len(given_values)
    assert comparable(rows) == comparable(expected)


@given(st.integers(0))
@examples(300)
def test_a_writers_values_are_read_as_fastavro_resolves_them(seed: int) -> None:
    """TC-63, TC-64, TC-67, TC-72: several writers in one batch, row by row."""
    rng = Random(seed)
    schemas = Schemas(rng, are_columns=True)
    writers = [schemas.record()]
    reader = schemas.evolved(writers[0], is_root=True)
    writers.append(reader)
    try:
        target = target_of(parse_avro(json.dumps(reader)))
        plans = [compile_plan(parse_avro(json.dumps(w)), target, 64) for w in writers]
    except ConfigurationError:
        event("refused")
        return
    row_plans = [rng.randrange(2) for _ in range(6)]
    values = [
        encode(writers[plan], value_of(writers[plan], rng), any_blocks(rng)) for plan in row_plans
    ]
    expected = [
        fastavro_rows(writers[plan], reader, [value])[0]
        for plan, value in zip(row_plans, values, strict=True)
    ]
    rows, errors = decode(target, plans, values, row_plans=np.array(row_plans, np.int32))
    bad = {error[0]: error for error in errors}
    assert len(rows) == len(values)
    for at, (row, other) in enumerate(zip(rows, expected, strict=True)):
        if at in bad:
            event(f"error {bad[at][2]}")
            assert isinstance(other, Exception), (bad[at], other)
            assert row is None
        else:
            assert not isinstance(other, Exception), other
            assert comparable(row) == comparable(in_column(target.column, other))


@given(st.integers(0))
@examples(150)
def test_some_columns_are_those_of_the_whole(seed: int) -> None:
    """TC-71: a projection decodes nothing else, and reads over anything."""
    rng = Random(seed)
    schema = Schemas(rng).record()
    whole = parse_avro(json.dumps(schema))
    names = [field["name"] for field in schema["fields"]]
    wanted = rng.sample(names, rng.randint(1, len(names)))
    try:
        target = target_of(only(whole, select(wanted)))
    except ConfigurationError:
        event("no column")
        return
    values = [encode(schema, value_of(schema, rng), any_blocks(rng)) for _ in range(4)]
    rows, errors = decode(target, [compile_plan(whole, target, 64)], values)
    expected = [in_column(target.column, row) for row in fastavro_rows(schema, schema, values)]
    assert [error[2] for error in errors] == []
    assert comparable(rows) == comparable(expected)
    # Cut short, or with a byte more, a row is bad and the others stay.
    for damaged in (values[1][:-1], values[1] + b"\0"):
        rows, errors = decode(
            target, [compile_plan(whole, target, 64)], [values[0], damaged, *values[2:]]
        )
        assert [error[0] for error in errors] == [1]
        assert comparable(rows) == comparable([expected[0], None, *expected[2:]])


@given(st.integers(0))
@examples(150)
def test_a_changed_byte_is_an_error_or_what_fastavro_reads(seed: int) -> None:
    """TC-69, TC-74: never another row's values."""
    rng = Random(seed)
    schema = Schemas(rng, are_columns=True).record()
    parsed = parse_avro(json.dumps(schema))
    target = target_of(parsed)
    values = [encode(schema, value_of(schema, rng), any_blocks(rng)) for _ in range(3)]
    before, _ = decode(target, [compile_plan(parsed, target, 64)], values)
    if not values[1]:
        return
    damaged = bytearray(values[1])
    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    values[1] = bytes(damaged)
    rows, errors = decode(target, [compile_plan(parsed, target, 64)], values)
    assert len(rows) == 3
    assert comparable([rows[0], rows[2]]) == comparable([before[0], before[2]])
    if errors:
        event(f"error {errors[0][2]}")
        assert rows[1] is None
        return
    (other,) = fastavro_rows(schema, schema, [values[1]])
    assert not isinstance(other, Exception), other
    assert comparable(rows[1]) == comparable(in_column(target.column, other))
