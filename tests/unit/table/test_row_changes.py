"""Z-08: what a record changes in a table with keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kfast.errors import ConfigurationError, KafkaError
from kfast.table.projection import OutputColumn, Projection
from kfast.table.row_changes import RowChanges, upsert_columns
from kfast.table.upserts import DELETED

ROW = pa.struct([("id", pa.int64()), ("name", pa.string())])
ENVELOPE = pa.struct([("op", pa.string()), ("before", ROW), ("after", ROW)])


def json_type(kind: pa.DataType) -> Any:
    if not pa.types.is_struct(kind):
        return {"int64": "long"}.get(str(kind), str(kind))
    fields = [
        {"name": each.name, "type": json_type(each.type), "nullable": True, "metadata": {}}
        for each in kind
    ]
    return {"type": "struct", "fields": fields}


def reader(*, value: Any = ENVELOPE, is_ordered: bool = True) -> RowChanges:
    projection = Projection(
        (
            OutputColumn("key", "key", json_type(pa.struct([("id", pa.int64())]))),
            OutputColumn("value", "value", json_type(value)),
            OutputColumn("offset", "offset", "long"),
        )
    )
    return RowChanges(upsert_columns(projection, ["id"]), "t", 0, is_ordered=lambda: is_ordered)


def batch(*records: tuple[int | None, Any], value: Any = ENVELOPE, offset: int = 10) -> Any:
    return pa.record_batch(
        [
            pa.array([None if key is None else {"id": key} for key, _ in records]).cast(
                pa.struct([("id", pa.int64())])
            ),
            pa.array([event for _, event in records], value),
            pa.array(range(offset, offset + len(records)), pa.int64()),
        ],
        names=["key", "value", "offset"],
    )


def row(key: int, name: str | None = "a") -> dict[str, Any]:
    return {"id": key, "name": name}


def event(op: str, after: Any = None, before: Any = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after}


def rows_of(changes: Any) -> list[tuple[int, str | None, bool]]:
    return [(each["id"], each["name"], each[DELETED]) for each in changes.rows.to_pylist()]


def test_operations_of_an_envelope() -> None:
    """Z-08: rows of c, u and r; deletions of d and of records without a value; nothing of m."""
    changes = reader().changes(
        batch(
            (1, event("r", row(1))),
            (2, event("c", row(2, None))),
            (None, event("m")),
            (1, event("u", row(1, "b"), row(1))),
            (2, event("d", None, row(2))),
            (2, None),
        )
    )
    assert rows_of(changes) == [
        (1, "a", False),
        (2, None, False),
        (1, "b", False),
        (2, None, True),
        (2, None, True),
    ]
    assert not changes.is_truncated


def test_an_update_that_changes_the_key_deletes_the_row_before() -> None:
    """Z-08: in its place in the order; a row before without a key says nothing."""
    changes = reader().changes(
        batch(
            (1, event("c", row(1))),
            (5, event("u", row(5), row(1))),
            (1, event("c", row(1, "again"))),
            (1, event("u", row(1, "b"), {"id": None, "name": None})),
        )
    )
    assert rows_of(changes) == [
        (1, "a", False),
        (1, None, True),
        (5, "a", False),
        (1, "again", False),
        (1, "b", False),
    ]


def test_a_truncation_drops_the_changes_before_it() -> None:
    """Z-08: also the last of several; without an order of all records it is refused."""
    records = batch(
        (1, event("c", row(1))), (None, event("t")), (None, event("t")), (2, event("c", row(2)))
    )
    changes = reader().changes(records)
    assert (rows_of(changes), changes.is_truncated) == ([(2, "a", False)], True)
    changes = reader().changes(batch((None, event("t"))))
    assert (rows_of(changes), changes.is_truncated) == ([], True)
    with pytest.raises(KafkaError, match="t-0 offset 12 truncates the table"):
        reader(is_ordered=False).changes(records)


def test_flattened_rows() -> None:
    """Z-08: a mark of deletion as text or boolean, and the operation."""
    for kind, yes, no in ((pa.string(), "true", "false"), (pa.bool_(), True, False)):
        value = pa.struct([*ROW, ("__deleted", kind), ("__op", pa.string())])
        changes = reader(value=value).changes(
            batch(
                (1, {**row(1), "__deleted": no, "__op": "c"}),
                (2, {**row(2), "__deleted": None, "__op": None}),
                (1, {**row(1), "__deleted": yes, "__op": "c"}),
                (2, {**row(2), "__deleted": no, "__op": "d"}),
                (3, None),
                value=value,
            )
        )
        assert [(key, is_deleted) for key, _, is_deleted in rows_of(changes)] == [
            (1, False),
            (2, False),
            (1, True),
            (2, True),
            (3, True),
        ]
        assert changes.rows.schema.names == ["id", "name", DELETED]


def test_a_batch_without_records() -> None:
    """Z-08: has the columns of the others."""
    assert (
        reader().changes(batch()).rows.schema
        == reader().changes(batch((1, event("c", row(1))))).rows.schema
    )


def test_the_column_of_deletions_is_not_one_of_rows() -> None:
    """Z-12: a schema with it is refused."""
    value = pa.struct([*ROW, (DELETED, pa.string())])
    with pytest.raises(ConfigurationError, match="which says what is deleted"):
        reader(value=value)
