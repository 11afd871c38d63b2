"""Any tree, any appends, any rows rolled back: columns are those of the rows that stayed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kfast._native.builder_operations import build
from kfast.schemas.layout import constant_bytes, layout
from kfast.schemas.types import DataType, Kind, SchemaField
from tests.soaking import examples
from tests.unit._native.column_model import Operation, appends, values_of

LEAVES = st.sampled_from([Kind.INT64, Kind.BOOL, Kind.BINARY, Kind.DICTIONARY]).map(DataType)


def struct_type(members: list[tuple[DataType, bool]]) -> DataType:
    fields = (SchemaField(f"f{i}", made, null) for i, (made, null) in enumerate(members))
    return DataType(Kind.STRUCT, fields=tuple(fields))


def list_type(item: tuple[DataType, bool]) -> DataType:
    return DataType(Kind.LIST, fields=(SchemaField("item", *item),))


def map_type(value: tuple[DataType, bool]) -> DataType:
    key = SchemaField("key", DataType(Kind.BINARY), is_nullable=False)
    return DataType(Kind.MAP, fields=(key, SchemaField("value", *value)))


def deeper(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    field = st.tuples(inner, st.booleans())
    return st.one_of(
        st.lists(field, min_size=1, max_size=4).map(struct_type),
        field.map(list_type),
        field.map(map_type),
    )


TREES = st.recursive(LEAVES, deeper, max_leaves=8).map(lambda made: SchemaField("", made))


def values(field: SchemaField, is_root: bool = False) -> st.SearchStrategy[Any]:
    made: st.SearchStrategy[Any]
    kind = field.type.kind
    if kind is Kind.STRUCT:
        made = st.fixed_dictionaries({child.name: values(child) for child in field.type.fields})
    elif kind is Kind.LIST:
        made = st.lists(values(field.type.item), max_size=3)
    elif kind is Kind.MAP:
        made = st.lists(st.tuples(*map(values, field.type.fields)), max_size=3)
    elif kind is Kind.INT64:
        made = st.integers(-(2**63), 2**63 - 1)
    elif kind is Kind.BOOL:
        made = st.booleans()
    elif kind is Kind.BINARY:
        made = st.binary(max_size=40)
    else:
        made = st.text(max_size=3)
    return st.none() | made if field.is_nullable or is_root else made


@st.composite
def programs(draw: st.DrawFn) -> tuple[SchemaField, list[Operation], list[Any]]:
    """Rows that stay, and between them rows that are rolled back at any point."""
    root = draw(TREES)
    steps, kept = list[Operation](), list[Any]()
    row = values(root, is_root=True)
    for value, is_kept, cut in draw(
        st.lists(st.tuples(row, st.booleans(), st.integers(0, 20)), max_size=12)
    ):
        made = appends(root, 0, value)
        steps.append(("row",))
        if is_kept:
            kept.append(value)
            steps += made
        else:
            steps += [*made[: max(len(made) - cut, 0)], ("roll_back",)]
    return root, steps, kept


@examples(200)
@given(programs(), st.sampled_from([(0, 0), (100, 1000)]))
def test_rows_that_stay_are_the_columns(
    program: tuple[SchemaField, list[Operation], list[Any]], reserved: tuple[int, int]
) -> None:
    """TC-35: whatever a bad row had appended is gone."""
    root, steps, kept = program
    built, _errors, results, is_full, _size = build(layout(root), steps, *reserved)
    assert values_of(root, built) == kept
    assert not any(results)
    assert not is_full


@examples(100)
@given(st.data())
def test_constants_are_the_values_they_were_made_of(data: st.DataObject) -> None:
    root = data.draw(TREES)
    rows = data.draw(st.lists(values(root, is_root=True), max_size=5))
    if not root.is_nullable:
        rows = [row for row in rows if row is not None]
    steps = [("constant", 0, constant_bytes(root, row)) for row in rows]
    assert values_of(root, build(layout(root), steps)[0]) == rows
