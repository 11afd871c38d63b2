"""RowChanges: what the records of a topic change in a table that is its source's, by key.

Owns what an event means, in the columns that Arrow batches of ``ArrowBatches`` have; ``upserts``
applies it. A value is Debezium's envelope (``op``, ``before``, ``after``), or a row itself, which
may have ``__deleted`` and ``__op`` as Debezium's ``ExtractNewRecordState`` writes them:

===================================  ==============================================================
record                               change
===================================  ==============================================================
``op`` c, u, r; a row                the row is inserted, or updated
``op`` u, whose key was another      the row of the key before is deleted, too
``op`` d; ``__deleted``; no value    the row of the record's key is deleted
``op`` t (truncate)                  all rows are deleted; only where one partition says all
``op`` m (message)                   none
===================================  ==============================================================

A record that cannot be applied exactly is an error that names it: a null key, a key that is not
that of its row, a column whose value Debezium has left out. Which columns there are is checked
before any record (`upsert_columns`). Any thread, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kfast._base.optional import optional_package
from kfast.errors import ConfigurationError, KafkaError, did_you_mean
from kfast.table.projection import OutputColumn, Projection, sql_type
from kfast.table.upserts import DELETED

if TYPE_CHECKING:
    import pyarrow as pa

    from kfast.table.entries import TableShape

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Debezium's placeholder for a value that the database has not logged, as it did not change."""
_FLAG, _OPERATION = "__deleted", "__op"
_UPSERTED, _DELETED, _TRUNCATED, _IGNORED = ("c", "u", "r"), "d", "t", "m"
_NO_KEYS: Final = frozenset({"float", "double"})
_HINT_KEYS: Final = "--key json --key-schema COLUMNS (key=kfast.Json({...})), or another format"


@dataclass(frozen=True, slots=True)
class UpsertColumns:
    """The columns of a table with keys, and where a value has them."""

    keys: tuple[str, ...]
    columns: tuple[OutputColumn, ...]
    """Of the table: those of the rows, then those of the records."""
    is_envelope: bool
    """Whether values are envelopes, and rows are in ``after``."""


def upsert_columns(
    projection: Projection, keys: Collection[str], more: Collection[str] = ()
) -> UpsertColumns:
    """Return the columns of a table with keys.

    ``projection`` has the columns ``key`` and ``value``; ``more`` are columns of the records that
    the table has besides, by the names of the projection.

    Raises
    ------
    ConfigurationError
        Values have no columns, or no such key; or the keys of the records are not these.
    """
    value, key = projection.column("value"), projection.column("key")
    if value is None or key is None or not _is_struct(value.json_type):
        raise ConfigurationError(
            "--upsert needs values with columns",
            found=f"values are {'left out' if value is None else sql_type(value.json_type)}",
            hint="--value json --value-schema COLUMNS (value=kfast.Debezium({...}))",
        )
    members = _members(value.json_type)
    is_envelope = {"op", "after"} <= members.keys() and _is_struct(members["after"])
    rows = _members(members["after"]) if is_envelope else members
    if not is_envelope:
        rows = {name: kind for name, kind in rows.items() if name not in (_FLAG, _OPERATION)}
    _check_keys(keys, rows, key.json_type)
    extra = [column for column in projection.columns if column.name in more]
    for column in extra:
        if column.name in rows:
            raise ConfigurationError(
                f"columns: {column.name} is a column of the rows, too",
                hint="leave it out of the columns (-c)",
            )
    columns = [OutputColumn(name, name, kind) for name, kind in rows.items()]
    return UpsertColumns(tuple(keys), (*columns, *extra), is_envelope)


def check_keys(url: str, table: TableShape, shape: TableShape) -> None:
    """Check that an ingest has the keys of its table; ``ConfigurationError`` if it has not."""
    # Of a table whose commits were removed only the offsets are left.
    if not table.schema or table.keys == shape.keys:
        return
    has = "rows with the key " + ", ".join(table.keys) if table.keys else "a row for each record"
    does = "upserts by " + ", ".join(shape.keys) if shape.keys else "appends records"
    raise ConfigurationError(
        f"{url} has {has}",
        found=f"this ingest {does}",
        hint="use --upsert (upsert=) as before, or write to another folder",
    )


def _check_keys(keys: Collection[str], rows: Mapping[str, Any], key_type: Any) -> None:
    if DELETED in rows:
        raise ConfigurationError(
            f"the rows have the column {DELETED}, which says what is deleted",
            hint="leave it out of the schema",
        )
    in_keys = _members(key_type) if _is_struct(key_type) else {}
    if not in_keys and len(keys) == 1:
        in_keys = dict.fromkeys(keys, key_type)
    for name in keys:
        if name not in rows:
            near = did_you_mean(name, rows)
            raise ConfigurationError(
                f"upsert: the rows have no column {name}",
                found=f"they have {', '.join(rows)}",
                hint=f"did you mean {near}?" if near else "name columns of the rows",
            )
        kind = sql_type(rows[name])
        if isinstance(rows[name], Mapping) or kind in _NO_KEYS:
            raise ConfigurationError(
                f"upsert: {name} is {kind}, which cannot be compared as a key",
                hint="use a number without a fraction, a text, a date, a time or a decimal",
            )
        if name not in in_keys or sql_type(in_keys[name]) != kind:
            has = sql_type(in_keys[name]) if name in in_keys else sql_type(key_type)
            raise ConfigurationError(
                f"upsert: the keys of the records need {name} as {kind}, the rows' type",
                cause="a record without a value deletes the row of its key",
                found=f"{'it is' if name in in_keys else 'keys are'} {has}",
                hint=_HINT_KEYS,
            )


def _is_struct(json_type: Any) -> bool:
    return isinstance(json_type, Mapping) and json_type["type"] == "struct"


def _members(json_type: Any) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in json_type["fields"]}


class Changes(NamedTuple):
    """The changes of some records, in their order."""

    rows: pa.RecordBatch
    """Columns of the table, and ``DELETED``."""
    is_truncated: bool = False
    """Whether all rows were deleted before these."""


class RowChanges:
    """Reads the changes of records of one partition.

    Batches have the columns ``key``, ``value`` and ``offset``, and those of records that the table
    has. ``is_ordered`` says whether the records of the table are all in this partition, so that a
    truncation is before or after each of them.
    """

    def __init__(
        self,
        columns: UpsertColumns,
        topic: str,
        partition: int,
        *,
        is_ordered: Callable[[], bool],
    ) -> None:
        self._columns = columns
        self._topic = topic
        self._partition = partition
        self._is_ordered = is_ordered
        self._arrow = optional_package("pyarrow", "--upsert")
        self._compute = optional_package("pyarrow.compute", "--upsert")

    def changes(self, batch: pa.RecordBatch) -> Changes:
        """Return the changes of a batch of records.

        Raises ``KafkaError`` for a record that cannot be applied.
        """
        arrow, compute = self._arrow, self._compute
        value = batch.column("value")
        operation = self._operations(value, batch)
        is_truncated = False
        if (last := _last(compute, operation, _TRUNCATED)) >= 0:
            self._check_order(batch, last)
            batch, is_truncated = batch.slice(last + 1), True
            value, operation = batch.column("value"), operation.slice(last + 1)
        if _last(compute, operation, _IGNORED) >= 0:
            kept = compute.not_equal(operation, _IGNORED)
            batch, operation = batch.filter(kept), operation.filter(kept)
            value = batch.column("value")
        is_deleted = compute.equal(operation, _DELETED)
        keys = self._key_columns(batch)
        rows = self._rows(value, "after")
        self._check_rows(batch, rows, keys, is_deleted)
        arrays, names = [], []
        for column in self._columns.columns:
            name = column.name
            if name in keys:
                array = compute.if_else(is_deleted, keys[name], rows[name])
            else:
                array = rows[name] if name in rows else batch.column(name)
            arrays.append(array)
            names.append(name)
        changed_rows = arrow.RecordBatch.from_arrays([*arrays, is_deleted], names=[*names, DELETED])
        return Changes(self._with_keys_before(changed_rows, value, operation), is_truncated)

    # --- events -----------------------------------------------------------------------------------

    def _operations(self, value: pa.StructArray, batch: pa.RecordBatch) -> pa.Array:
        """Return the operation of each record; d of one without a value."""
        arrow, compute = self._arrow, self._compute
        is_value = value.is_valid()
        members = _flat(value)
        if self._columns.is_envelope:
            operation = members["op"].cast(arrow.string())
        else:
            operation = arrow.array(["u"] * len(value), arrow.string())
            if _OPERATION in members:
                operation = compute.fill_null(members[_OPERATION].cast(arrow.string()), "u")
            if _FLAG in members:
                flag = members[_FLAG]
                is_flagged = compute.equal(flag.cast(arrow.string()), "true")
                operation = compute.if_else(
                    compute.fill_null(is_flagged, False), _DELETED, operation
                )
        operation = compute.if_else(is_value, operation, _DELETED)
        valid = arrow.array([*_UPSERTED, _DELETED, _TRUNCATED, _IGNORED])
        bad = compute.invert(compute.is_in(operation, value_set=valid))
        if (row := _first(compute, bad)) >= 0:
            raise self._error(
                batch,
                row,
                "has no operation of Debezium's",
                found=f"op is {operation[row].as_py()!r}",
                hint="c, u, d, r, t and m are known; check the schema of the values",
            )
        return operation

    def _check_order(self, batch: pa.RecordBatch, row: int) -> None:
        if not self._is_ordered():
            raise self._error(
                batch,
                row,
                "truncates the table, whose records are in several partitions",
                cause="which records of other partitions are before it is not known",
                hint="leave them out of the topic (Debezium's skipped.operations=t), or give the "
                "topic one partition",
            )

    def _key_columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        key = batch.column("key")
        columns = self._columns.keys
        members = (
            _flat(key) if self._arrow.types.is_struct(key.type) else dict.fromkeys(columns, key)
        )
        keys = {name: members[name] for name in columns}
        for name, array in keys.items():
            if array.null_count:
                raise self._error(
                    batch,
                    _first(self._compute, array.is_null()),
                    f"has no {name} in its key",
                    hint="a table without a primary key cannot be upserted: set Debezium's "
                    "message.key.columns",
                )
        return keys

    def _rows(self, value: pa.StructArray, member: str) -> dict[str, pa.Array]:
        """Return the columns of rows; ``member`` is that of an envelope."""
        members = _flat(value)
        return _flat(members[member]) if self._columns.is_envelope else members

    def _check_rows(
        self,
        batch: pa.RecordBatch,
        rows: Mapping[str, pa.Array],
        keys: Mapping[str, pa.Array],
        is_deleted: pa.Array,
    ) -> None:
        """Check that rows have the keys of their records, and all values."""
        compute = self._compute
        for name, key in keys.items():
            is_same = compute.fill_null(compute.equal(rows[name], key), False)
            row = _first(compute, compute.invert(compute.or_(is_same, is_deleted)))
            if row >= 0:
                raise self._error(
                    batch,
                    row,
                    f"has a row whose {name} is not that of its key",
                    cause="a record without a value could not delete that row",
                    found="no row" if not rows[name][row].is_valid else None,
                    hint="upsert by the columns of the topic's keys",
                )
        for column in self._columns.columns:
            if column.json_type not in ("string", "binary") or column.name not in rows:
                continue
            text = UNAVAILABLE if column.json_type == "string" else UNAVAILABLE.encode()
            row = _first(compute, compute.equal(rows[column.name], text))
            if row >= 0 and not is_deleted[row].as_py():
                raise self._error(
                    batch,
                    row,
                    f"does not have the value of {column.name}",
                    cause="PostgreSQL does not log large values that did not change",
                    hint="ALTER TABLE ... REPLICA IDENTITY FULL; leave the column out; or begin "
                    "with a new snapshot",
                )

    def _with_keys_before(
        self, changed_rows: pa.RecordBatch, value: pa.StructArray, operation: pa.Array
    ) -> pa.RecordBatch:
        """Return the changes with deletions of the rows whose key an update has changed."""
        arrow, compute = self._arrow, self._compute
        if not self._columns.is_envelope or "before" not in _flat(value):
            return changed_rows
        before = self._rows(value, "before")
        keys = self._columns.keys
        if not all(name in before for name in keys):
            return changed_rows
        is_other = None
        for name in keys:
            differs = compute.not_equal(before[name], changed_rows.column(name))
            is_other = differs if is_other is None else compute.or_kleene(is_other, differs)
        is_other = compute.and_(compute.fill_null(is_other, False), compute.equal(operation, "u"))
        if _first(compute, is_other) < 0:
            return changed_rows
        arrays = [
            before[name].filter(is_other)
            if name in keys
            else arrow.nulls(compute.sum(is_other).as_py(), changed_rows.schema.field(name).type)
            for name in changed_rows.schema.names[:-1]
        ]
        count = len(arrays[0])
        deletions = arrow.RecordBatch.from_arrays(
            [*arrays, arrow.array([True] * count)], schema=changed_rows.schema
        )
        places = compute.multiply(arrow.array(range(changed_rows.num_rows), arrow.int64()), 2)
        earlier = compute.subtract(places.filter(is_other), 1)
        order = compute.sort_indices(arrow.concat_arrays([places, earlier]))
        both = arrow.Table.from_batches([changed_rows, deletions], schema=changed_rows.schema)
        (batch,) = both.take(order).combine_chunks().to_batches()
        return batch

    # --- errors -----------------------------------------------------------------------------------

    def _error(self, batch: pa.RecordBatch, row: int, message: str, **parts: Any) -> KafkaError:
        offset = int(batch.column("offset")[row].as_py())
        return KafkaError(
            f"{self._topic}-{self._partition} offset {offset} {message}",
            topic=self._topic,
            partition=self._partition,
            offset=offset,
            **parts,
        )

    def __repr__(self) -> str:
        return f"<RowChanges {self._topic}-{self._partition}>"


def _flat(array: pa.StructArray) -> dict[str, pa.Array]:
    """Return the members of a struct, null where it is."""
    names = [array.type.field(number).name for number in range(array.type.num_fields)]
    return dict(zip(names, array.flatten(), strict=True))


def _first(compute: Any, flags: pa.Array) -> int:
    """Return the first row of which something is true, -1 if there is none."""
    return int(compute.index(flags, True).as_py())


def _last(compute: Any, operation: pa.Array, name: str) -> int:
    """Return the last row with an operation, -1 if there is none."""
    rows = compute.indices_nonzero(compute.fill_null(compute.equal(operation, name), False))
    return int(rows[-1].as_py()) if len(rows) else -1
