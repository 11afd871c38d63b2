"""Upserts: the last change of each key of a batch, merged into a Delta table in one commit.

Owns the order of changes of one key, and the merge by the ``deltalake`` package. What a record
changes is said by ``row_changes``; this module knows neither records nor the table's own log: the
offsets of a batch are in the ``commit_properties`` of its commit, so that a table has the rows of a
batch and its offsets, or neither.

A batch is applied as a whole: a row is updated, inserted or deleted by the last change of its key.
So a batch that is applied again changes nothing more, which is also why rows of one key have to be
in order: those of one partition are, and a key is in one partition.

The files of a merge have no order of their own, and rows that did not change are copied with those
of their file. Used by the process that publishes; one thread at a time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kfast._base.optional import optional_package
from kfast.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

DELETED: Final = "_kfast_deleted"
"""Column of changes, a boolean: the row of this key is deleted."""
_POSITION: Final = "_kfast_position"
_SOURCE: Final = "change"
_TARGET: Final = "row"


class ChangedRows(NamedTuple):
    """The changes of a batch: the last one of each key."""

    rows: pa.Table
    """The columns of the table, and ``DELETED``."""
    is_truncated: bool = False
    """Whether all rows that were in the table before are deleted."""


def last_changes(changes: pa.Table, keys: Collection[str]) -> pa.Table:
    """Return the last change of each key, in the order of the changes.

    ``changes`` has the columns ``keys``, none of them null, and is in the order of the records.
    """
    pyarrow = optional_package("pyarrow", "--upsert")
    names = [*keys]
    positions = pyarrow.array(range(changes.num_rows), pyarrow.int64())
    last = (
        changes.select(names)
        .append_column(_POSITION, positions)
        .group_by(names, use_threads=False)
        .aggregate([(_POSITION, "max")])
        .column(f"{_POSITION}_max")
    )
    if len(last) == changes.num_rows:
        return changes
    return changes.take(last.combine_chunks().sort())


def merge_batch(
    table: Any,
    rows: pa.Table,
    keys: Collection[str],
    commit_properties: Any,
    *,
    is_truncated: bool = False,
    writer_properties: Any = None,
) -> None:
    """Apply a batch to a Delta table in one commit, which there is also if nothing changes.

    Parameters
    ----------
    table : deltalake.DeltaTable
        At the version that the batch is applied to; at that of the commit afterwards.
    rows : pyarrow.Table
        At most one row per key: the columns of the table, and ``DELETED``, which says that the key
        is deleted. Keys are not null.
    keys : collection of str
        Names of the key columns.
    commit_properties : deltalake.CommitProperties
        Of the commit: metadata, application transactions, retries.
    is_truncated : bool
        Whether all rows that were in the table before are deleted.
    writer_properties : deltalake.WriterProperties, optional
        Of the Parquet files.

    Raises
    ------
    ConfigurationError
        A column of the table is not in the rows: it was added meanwhile.
    deltalake.exceptions.CommitFailedError
        Another writer has committed what conflicts with the batch. The table is unchanged: the
        batch can be applied to its new version.
    """
    names = [field.name for field in table.schema().fields]
    for name in names:
        if name not in rows.column_names:
            raise ConfigurationError(
                f"{table.table_uri} has the column {name}, and the rows to upsert have not",
                found=f"they have {', '.join(n for n in rows.column_names if n != DELETED)}",
                hint="write to another folder, or drop the column",
            )
    before = table.version()
    columns = {_quoted(name): f"{_SOURCE}.{_quoted(name)}" for name in names}
    deleted = f"{_SOURCE}.{_quoted(DELETED)}"
    # Not streamed, the range of the batch's keys leaves out files of others. That of decimals would
    # leave out files that have them: deltalake compares their bounds as float64.
    is_streamed = any(_is_decimal(rows.schema.field(key).type) for key in keys)
    merger = table.merge(
        rows,
        " AND ".join(f"{_TARGET}.{_quoted(key)} = {_SOURCE}.{_quoted(key)}" for key in keys),
        source_alias=_SOURCE,
        target_alias=_TARGET,
        streamed_exec=is_streamed,
        commit_properties=commit_properties,
        writer_properties=writer_properties,
    )
    merger = (
        merger.when_matched_delete(deleted)
        .when_matched_update(columns)
        .when_not_matched_insert(columns, f"NOT {deleted}")
    )
    if is_truncated:
        merger = merger.when_not_matched_by_source_delete()
    merger.execute()
    if table.version() == before:  # nothing changed, and a merge commits nothing then
        table.create_write_transaction(
            [], mode="append", schema=table.schema(), commit_properties=commit_properties
        )
        table.update_incremental()


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(optional_package("pyarrow", "--upsert").types.is_decimal(kind))


def _quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"
