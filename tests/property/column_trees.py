"""Drawn trees of columns, and values for them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kfast.schemas.types import DataType, Kind, SchemaField

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
