"""Any schema, any rows: columns, selections, joins, pickles and Arrow have the same values."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kfast.columns.operations import concat_values, select_values, values_list
from kfast.schemas.types import DataType, Kind, SchemaField
from tests.property.column_trees import TREES, values
from tests.soaking import examples
from tests.unit.records.typed_samples import typed


@st.composite
def tables(draw: st.DrawFn) -> tuple[SchemaField, list[Any]]:
    root = draw(TREES)
    rows = draw(st.lists(values(root), max_size=8))
    return root, [None if row is None else row for row in rows]


def plain(value: Any) -> Any:
    """Return a value with maps as dicts, as columns give them."""
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):
            return {key: plain(item) for key, item in value}
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def normal(value: Any) -> Any:
    """Return a value whose empty maps and lists are alike."""
    if isinstance(value, dict):
        return {key: normal(item) for key, item in value.items()} or []
    if isinstance(value, list | tuple):
        return [normal(item) for item in value]
    return value


@examples(150)
@given(tables(), st.data())
def test_columns_have_their_rows(table: tuple[SchemaField, list[Any]], data: st.DataObject) -> None:
    """TC-42: selected, joined, copied and pickled."""
    root, rows = table
    expected = [normal(plain(row)) for row in rows]
    column = typed(root, rows)
    assert normal(values_list(column)) == expected
    numbers = st.lists(st.integers(-len(rows), len(rows) - 1)) if rows else st.just([])
    chosen = data.draw(st.one_of(numbers, st.slices(len(rows))))
    picked = np.array(chosen, np.intp) if isinstance(chosen, list) else chosen
    part = select_values(column, picked)
    wanted = [expected[i] for i in chosen] if isinstance(chosen, list) else expected[chosen]
    assert normal(values_list(part)) == wanted
    if not isinstance(part, np.ndarray):
        assert normal(pickle.loads(pickle.dumps(part)).to_list()) == wanted
        assert normal(part.compact().to_list() if hasattr(part, "compact") else wanted) == wanted
    joined = concat_values([part, column, part])
    assert normal(values_list(joined)) == wanted + expected + wanted


@examples(100)
@given(tables())
def test_arrow_has_the_same_rows(table: tuple[SchemaField, list[Any]]) -> None:
    """TC-43: every export is valid and has the values."""
    root, rows = table
    column = typed(SchemaField("", pa_struct(root)), [{"v": row} for row in rows])
    for part in (column, column[1:], column[::2]):
        array = pa.array(part)
        array.validate(full=True)
        got = [normal(maps(row, part.schema.root)) for row in array.to_pylist()]
        assert got == normal(part.to_list())


def pa_struct(root: SchemaField) -> Any:

    return DataType(Kind.STRUCT, fields=(root.renamed("v"),))


def maps(value: Any, field: SchemaField) -> Any:
    """Return what pyarrow gives with maps as dicts; a repeated key has its last value."""

    if value is None:
        return None
    kind = field.type.kind
    if kind is Kind.STRUCT:
        return {child.name: maps(value[child.name], child) for child in field.type.fields}
    if kind is Kind.LIST:
        return [maps(item, field.type.item) for item in value]
    if kind is Kind.MAP:
        return {key: maps(item, field.type.fields[1]) for key, item in value}
    return value
