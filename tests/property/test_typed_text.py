"""Texts of typed columns against their oracle: any schema, any rows, any selection."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kfast._native.column_text import ColumnTexts
from kfast.columns.column_text import text_source
from kfast.columns.typed import StructColumn
from kfast.schemas.types import DataType, Kind, SchemaField
from tests.reference.typed_text import cell_text, json_text
from tests.soaking import examples
from tests.unit.records.typed_samples import typed

INTEGERS = {
    Kind.INT8: (8, True), Kind.INT16: (16, True), Kind.INT32: (32, True), Kind.INT64: (64, True),
    Kind.UINT8: (8, False), Kind.UINT16: (16, False), Kind.UINT32: (32, False),
    Kind.UINT64: (64, False), Kind.DATE32: (32, True), Kind.TIME32: (32, True),
    Kind.TIME64: (64, True), Kind.TIMESTAMP: (64, True), Kind.DURATION: (64, True),
}  # fmt: skip
UNITS = st.sampled_from(["s", "ms", "us", "ns"])
LEAVES = st.one_of(
    st.sampled_from(
        [*(kind for kind in INTEGERS if kind <= Kind.UINT64), Kind.BOOL, Kind.FLOAT32, Kind.FLOAT64,
         Kind.STRING, Kind.BINARY, Kind.DATE32, Kind.UUID, Kind.DICTIONARY]
    ).map(DataType),
    st.builds(lambda unit: DataType(Kind.TIME32, unit=unit), st.sampled_from(["s", "ms"])),
    st.builds(lambda unit: DataType(Kind.TIME64, unit=unit), st.sampled_from(["us", "ns"])),
    st.builds(lambda unit: DataType(Kind.DURATION, unit=unit), UNITS),
    st.builds(lambda unit, utc: DataType(Kind.TIMESTAMP, unit=unit, is_utc=utc), UNITS,
              st.booleans()),
    st.builds(lambda p, s: DataType(Kind.DECIMAL128, precision=p, scale=min(p, s)),
              st.integers(1, 38), st.integers(0, 38)),
    st.builds(lambda p, s: DataType(Kind.DECIMAL256, precision=p, scale=min(p, s)),
              st.integers(39, 76), st.integers(0, 76)),
    st.builds(lambda size: DataType(Kind.FIXED_BINARY, size=size), st.integers(1, 20)),
)  # fmt: skip
NAMES = st.lists(st.text(min_size=1, max_size=4), min_size=4, max_size=4, unique=True)


def structs(members: list[tuple[DataType, bool]], names: list[str]) -> DataType:
    fields = (SchemaField(name, *each) for name, each in zip(names, members, strict=False))
    return DataType(Kind.STRUCT, fields=tuple(fields))


def deeper(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    field = st.tuples(inner, st.booleans())
    keys = st.sampled_from([Kind.STRING, Kind.INT64, Kind.BOOL, Kind.UINT32]).map(DataType)
    return st.one_of(
        st.builds(structs, st.lists(field, min_size=1, max_size=4), NAMES),
        field.map(lambda item: DataType(Kind.LIST, fields=(SchemaField("item", *item),))),
        st.builds(
            lambda key, value: DataType(
                Kind.MAP, fields=(SchemaField("key", key, False), SchemaField("value", *value))
            ),
            keys,
            field,
        ),
    )


TREES = st.recursive(LEAVES, deeper, max_leaves=8).map(lambda made: SchemaField("", made))


def values(field: SchemaField) -> st.SearchStrategy[Any]:
    made: st.SearchStrategy[Any]
    kind = field.type.kind
    if kind is Kind.STRUCT:
        made = st.fixed_dictionaries({child.name: values(child) for child in field.type.fields})
    elif kind is Kind.LIST:
        made = st.lists(values(field.type.item), max_size=3)
    elif kind is Kind.MAP:
        key, value = field.type.fields
        made = st.lists(
            st.tuples(values(key), values(value)), max_size=3, unique_by=lambda pair: pair[0]
        )
    elif kind in {Kind.STRING, Kind.DICTIONARY}:
        made = st.text(max_size=30)
    elif kind in {Kind.BINARY, Kind.FIXED_BINARY, Kind.UUID}:
        size = 16 if kind is Kind.UUID else field.type.size
        made = st.binary(min_size=size, max_size=size or 40)
        made = st.uuids() if kind is Kind.UUID else made
    elif kind is Kind.BOOL:
        made = st.booleans()
    elif kind in {Kind.FLOAT32, Kind.FLOAT64}:
        short = st.builds(lambda a, b: a / 10**b, st.integers(-(10**6), 10**6), st.integers(0, 6))
        made = st.floats() | short
        if kind is Kind.FLOAT32:
            made = st.floats(width=32)
    elif kind in {Kind.DECIMAL128, Kind.DECIMAL256}:
        most = 10 ** min(field.type.precision, 28) - 1
        scale = field.type.scale
        made = st.integers(-most, most) | st.integers(-200, 200).filter(lambda n: abs(n) <= most)
        made = made.map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))
    else:
        bits, is_signed = INTEGERS[kind]
        least = -(1 << (bits - 1)) + 1 if is_signed else 0
        most = (1 << (bits - is_signed)) - 1
        made = st.integers(least, most) | st.integers(max(least, -(10**6)), min(most, 10**6))
    return st.none() | made if field.is_nullable else made


@st.composite
def tables(draw: st.DrawFn) -> tuple[SchemaField, list[Any]]:
    root = draw(TREES)
    return root, draw(st.lists(values(root), min_size=1, max_size=6))


@examples(150)
@given(tables(), st.data())
def test_texts_are_those_of_the_oracle(
    table: tuple[SchemaField, list[Any]], data: st.DataObject
) -> None:
    """CL-200: selected rows, too; and all of it is JSON."""
    root, rows = table
    outer = SchemaField("", DataType(Kind.STRUCT, fields=(root.renamed("v"),)))
    column: StructColumn = typed(outer, [{"v": row} for row in rows])
    first = data.draw(st.integers(0, len(rows) - 1))
    step = data.draw(st.integers(1, 2))
    part, wanted = column[first::step], rows[first::step]
    for is_json, oracle in ((True, json_text), (False, cell_text)):
        texts = ColumnTexts(is_json=is_json)
        texts.write(text_source(part.member("v")))
        found = [texts[row] for row in range(len(texts))]
        expected = [None if row is None else oracle(root, row) for row in wanted]
        assert found == [None if each is None else each.encode() for each in expected]
    texts = ColumnTexts(is_json=True)
    texts.write(text_source(part.node))
    for row, value in enumerate(wanted):
        text = texts[row]
        assert text is not None
        assert text.decode() == f'{{"v":{json_text(root, value)}}}'
        json.loads(text, parse_constant=lambda name: 1 / 0)
