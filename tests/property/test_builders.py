"""Any tree, any appends, any rows rolled back: columns are those of the rows that stayed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kfast._native.builder_operations import build
from kfast.schemas.layout import constant_bytes, layout
from kfast.schemas.types import SchemaField
from tests.property.column_trees import TREES, values
from tests.soaking import examples
from tests.unit._native.column_model import Operation, appends, values_of


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
