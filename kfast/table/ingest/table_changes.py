"""TableChanges: what the records of a batch change in a table with keys, until it is published.

Owns the changes of all partitions in memory, in the order in which they were read: the last change
of each key is what is merged. They are few or many, but never more than a number of rows or bytes:
then the batch is published. `PartitionChanges` has the part of one partition that `PartitionFiles`
has otherwise: its offsets, and the ranges that are complete.

A batch has the changes of all partitions up to their positions, so all are cut before it is
published. One thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from kfast._base.optional import optional_package
from kfast.table.arrow_batches import ArrowBatches
from kfast.table.batches import ReadRange
from kfast.table.row_changes import Changes, RowChanges, UpsertColumns
from kfast.table.upserts import ChangedRows, last_changes

_MOST_CHANGES_PER_KEY: Final = 10
"""A batch that changes few keys often is published as well, so that a run makes progress."""

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from kfast.deserializers import Deserializer
    from kfast.records.partition_records import PartitionRecords
    from kfast.table.ingest.options import IngestOptions
    from kfast.table.projection import Projection
    from kfast.types import TopicPartition


class TableChanges:
    """The changes of a batch; it is full at a number of rows or bytes.

    ``is_ordered`` is that of `RowChanges`.
    """

    def __init__(self, options: IngestOptions, is_ordered: Callable[[], bool]) -> None:
        self._arrow = optional_package("pyarrow", "--upsert")
        self._is_ordered = is_ordered
        self._keys = options.upsert
        self._most_rows = options.rows_per_file
        self._most_bytes = min(options.bytes_per_file, options.memory_bytes // 4)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._schema: pa.Schema | None = None
        self._is_truncated = False
        self._added = 0

    def define(
        self,
        columns: UpsertColumns,
        projection: Projection,
        deserializers: Mapping[str, Deserializer],
    ) -> None:
        """Read these columns from the next range of each partition on.

        ``projection`` has the columns that are read.
        """
        self._columns = columns
        self._projection = projection
        self._deserializers = deserializers

    def reader(self, tp: TopicPartition) -> tuple[ArrowBatches, RowChanges]:
        """What makes changes of the records of a partition."""
        batches = ArrowBatches(self._projection, *tp, self._deserializers)
        return batches, RowChanges(self._columns, *tp, is_ordered=self._is_ordered)

    def partition(self, tp: TopicPartition, from_offset: int) -> PartitionChanges:
        """The changes of one partition, whose records are read from an offset on."""
        return PartitionChanges(tp, from_offset, self)

    def add(self, changes: Changes) -> bool:
        """Take changes that follow those before; return whether the batch is full."""
        if changes.is_truncated:
            self._waiting, self._rows, self._bytes = [], 0, 0
            self._is_truncated = True
        self._schema = changes.rows.schema
        if changes.rows.num_rows:
            self._waiting.append(changes.rows)
            self._rows += changes.rows.num_rows
            self._bytes += changes.rows.nbytes
        self._added += changes.rows.num_rows
        if not self._has(1):
            return False
        self._reduce()
        return self._has(0.5) or self._added >= _MOST_CHANGES_PER_KEY * self._most_rows

    def _has(self, share: float) -> bool:
        """Whether there is a share of what a batch has at most."""
        return self._rows >= self._most_rows * share or self._bytes >= self._most_bytes * share

    def _reduce(self) -> None:
        """Leave the last change of each key."""
        assert self._schema is not None  # of what was added
        table = last_changes(
            self._arrow.Table.from_batches(self._waiting, schema=self._schema), self._keys
        ).combine_chunks()
        self._waiting = table.to_batches()
        self._rows, self._bytes = table.num_rows, table.nbytes

    def take(self) -> ChangedRows | None:
        """The changes since the last call, None without records."""
        if self._schema is None:
            return None
        self._reduce()
        table = self._arrow.Table.from_batches(self._waiting, schema=self._schema)
        changes = ChangedRows(table, self._is_truncated)
        self._waiting, self._rows, self._bytes, self._added = [], 0, 0, 0
        self._schema, self._is_truncated = None, False
        return changes


class PartitionChanges:
    """The records of one partition, from ``from_offset`` on, as changes of a table.

    ``position`` is the end of what was read, ``done`` has the ranges that are complete.
    """

    open_outputs = 0
    waiting_bytes = 0
    """Of the files of a range, which this has not."""

    def __init__(self, tp: TopicPartition, from_offset: int, table: TableChanges) -> None:
        self.topic_partition = tp
        self.position = from_offset
        self.done: list[ReadRange] = []
        self._from_offset = from_offset
        self._reader: tuple[ArrowBatches, RowChanges] | None = None
        self._table = table
        self._rows = 0
        self._lost_offsets = 0
        self._bad: NDArray[np.int64] = np.zeros(0, np.int64)

    @property
    def has_records(self) -> bool:
        """Whether the range that was begun has any offset."""
        return self.position > self._from_offset

    def note_bad(self, offsets: NDArray[np.int64]) -> None:
        """Take the offsets of malformed keys and values, whose records are left out."""
        self._bad = np.concatenate((self._bad, offsets))

    def write(self, records: PartitionRecords, until: int | None = None) -> bool:
        """Take records that follow those before; return whether the batch is full.

        With ``until`` they are before it, though records behind it may be left out.
        """
        is_full = False
        if self._reader is None:
            self._reader = self._table.reader(self.topic_partition)
        batches, reader = self._reader
        for batch in batches.batches(records):
            changes = reader.changes(batch)
            self._rows += changes.rows.num_rows
            is_full |= self._table.add(changes)
        self.position = records.next_offset
        if until is not None:
            self.position = min(self.position, until)
        return is_full

    def move_to(self, position: int, *, is_lost: bool = False) -> None:
        """Move to a later position, between which and the present one is no record."""
        if is_lost:
            self._lost_offsets += position - self.position
        self.position = position

    def spill(self) -> None:
        """Nothing is in memory here."""

    def cut(self) -> None:
        """End the range at the position and begin the next, unless it is empty."""
        if not self.has_records:
            return
        bad = int(np.searchsorted(self._bad, self.position))
        decoded = None if self._reader is None else self._reader[0]
        self.done.append(
            ReadRange(
                *self.topic_partition,
                self._from_offset,
                self.position,
                lost_offsets=self._lost_offsets,
                bad_records=bad + (0 if decoded is None else decoded.bad_records),
                unknown_fields=0 if decoded is None else decoded.unknown.fields,
                unknown_paths="" if decoded is None else decoded.unknown.text,
                changes=self._rows,
            )
        )
        self._bad = self._bad[bad:]
        self._reader = None
        self._rows = self._lost_offsets = 0
        self._from_offset = self.position

    def discard(self) -> None:
        """Nothing is on disk."""

    def __repr__(self) -> str:
        return f"<PartitionChanges {self.topic_partition} {self._from_offset}:{self.position}>"
