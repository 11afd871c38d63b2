"""PartitionRecords: the records of one partition, as columns.

Owns: one chunk of one partition: its partition, its columns and the position after it. It never
mixes partitions (B-09) and never has a row that is not a record (E-07); all arrays it returns are
read-only and keep their memory alive (D-25).

It behaves as ``Sequence[ConsumerRecord]`` but is deliberately not registered as one: DataFrame
libraries check for sequences before Arrow, and would read it row by row.

Thread: any; immutable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kfast._base.optional import optional_package
from kfast.columns.arrow import Capsule, CapsulePair, requested_columns
from kfast.columns.headers import HeadersColumn
from kfast.columns.operations import Values
from kfast.columns.record_errors import NO_ERRORS, RecordErrors
from kfast.columns.spans import (
    Rows,
    block_bytes,
    row_number,
    row_selection,
    rows_covered,
)
from kfast.errors import IllegalStateError
from kfast.records.arrow_stream import (
    Flatten,
    Form,
    PartitionRows,
    record_batch,
    record_schema,
    record_stream,
)
from kfast.records.consumer_record import ConsumerRecord
from kfast.records.data_frames import pandas_frame, polars_frame, structured_array
from kfast.records.deserializing import OnError, decode_rows
from kfast.records.preview import html_preview, partition_title, text_preview
from kfast.records.row_columns import RowColumns, concat_rows
from kfast.types import TopicPartition

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    _RecordSequence = Sequence[ConsumerRecord]
else:
    _RecordSequence = object


class PartitionRecords(_RecordSequence):
    """Some records of one partition, in offset order, one array per column.

    Made by ``poll``; not by users.

    Parameters
    ----------
    topic : str
        Topic of all the records.
    partition : int
        Partition of all the records.
    rows : RowColumns
        The columns.
    next_offset : int
        The position after these records, to commit once they are processed. It is greater than
        the last offset plus one where the log has gaps (compaction, aborted transactions).
    high_watermark : int
        End of the partition at the time of the fetch, -1 if unknown.
    leader_epoch : int
        Epoch of the leader that wrote these records, -1 if unknown (KIP-320).
    log_start_offset : int
        Start of the log at the time of the fetch, -1 if unknown.
    topic_id : bytes or None
        Id of the topic that they were read from (KIP-516), None if unknown: a topic that is deleted
        and created again has another one.
    errors : RecordErrors
        Values that were nulled or records that were skipped because they could not be read
        (``on_deserialization_error``). A selection has those of its rows; skipped records belong
        to the row after them, or to the last row.

    Notes
    -----
    ``records[i]`` is a :class:`ConsumerRecord`, ``records[a:b]`` and ``records[mask]`` are
    PartitionRecords over the same memory. A small piece keeps a whole received frame alive:
    :attr:`pinned_nbytes` is how much, :meth:`compact` copies the piece out. A pickle or a deep copy
    is compact, too.

    Examples
    --------
    >>> orders = kfast.read_topic("orders", bootstrap_servers="localhost:9092")
    >>> batch = orders[kfast.TopicPartition("orders", 0)]
    >>> batch.offsets, batch.keys.to_list(), batch.next_offset
    (array([0, 1]), [b'k1', b'k2'], 2)
    >>> batch[batch.keys == b"k2"].offsets
    array([1])
    """

    __slots__ = (
        "_count",
        "_rows",
        "errors",
        "high_watermark",
        "leader_epoch",
        "log_start_offset",
        "next_offset",
        "partition",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        rows: RowColumns,
        *,
        next_offset: int,
        high_watermark: int = -1,
        leader_epoch: int = -1,
        log_start_offset: int = -1,
        topic_id: bytes | None = None,
        errors: RecordErrors = NO_ERRORS,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.next_offset = next_offset
        self.high_watermark = high_watermark
        self.leader_epoch = leader_epoch
        self.log_start_offset = log_start_offset
        self.topic_id = topic_id
        self.errors = errors
        self._rows = rows
        self._count = len(rows)

    @classmethod
    def concat(cls, chunks: Sequence[PartitionRecords]) -> PartitionRecords:
        """Return consecutive chunks of one partition as one; the payload is copied.

        Raises
        ------
        ValueError
            There is no chunk, or they belong to several partitions.
        IllegalStateError
            They have different columns.
        """
        if len({chunk.topic_partition for chunk in chunks}) != 1:
            raise ValueError("only chunks of one partition can be joined")
        if len(chunks) == 1:
            return chunks[0]
        last = chunks[-1]
        filled = with_rows(chunks) or [last]
        return last._with(
            concat_rows([chunk._rows for chunk in filled]),
            last.next_offset,
            RecordErrors.concat([chunk.errors for chunk in chunks]),
        )

    def _with_errors(self, row: int, errors: RecordErrors) -> PartitionRecords:
        """Return these records with errors of skipped ones before the first, or after the last."""
        both = [errors, self.errors] if row == 0 else [self.errors, errors]
        rows = self._rows.with_errors(row, len(errors)) if len(self) else self._rows
        return self._with(rows, self.next_offset, RecordErrors.concat(both))

    def _with(self, rows: RowColumns, next_offset: int, errors: RecordErrors) -> PartitionRecords:
        return PartitionRecords(
            self.topic,
            self.partition,
            rows,
            next_offset=next_offset,
            high_watermark=self.high_watermark,
            leader_epoch=self.leader_epoch,
            log_start_offset=self.log_start_offset,
            topic_id=self.topic_id,
            errors=errors,
        )

    # --- columns ----------------------------------------------------------------------------------

    @property
    def deserialization_errors(self) -> int:
        """How many ``errors`` there are."""
        return len(self.errors)

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def columns(self) -> frozenset[str]:
        """Names of the selected columns, which exports have."""
        return self._rows.selected

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Offset of each record, ascending, with gaps where the log has gaps; shape (n,)."""
        return self._rows.offsets

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Milliseconds since 1970 UTC, -1 for none; shape (n,)."""
        return self._rows.timestamps

    @property
    def last_timestamp(self) -> int:
        """Timestamp of the last record in milliseconds, -1 for none; not of an empty chunk."""
        return self._rows.last_timestamp

    @property
    def datetimes(self) -> NDArray[np.datetime64]:
        """Timestamps as ``datetime64[ms]`` (UTC), NaT for none; shape (n,)."""
        return self._rows.datetimes

    @property
    def timestamp_types(self) -> NDArray[np.int8]:
        """0 create time, 1 log append time; shape (n,)."""
        return self._rows.type_array

    @property
    def keys(self) -> Any:
        """Keys: a BytesColumn, or the deserializer's column.

        Its static type is ``Any``: the deserializer is chosen when the program runs. Annotate the
        variable (``BytesColumn``, ``StringColumn``, ``UuidColumn``, ``NDArray``) to have its use
        checked.

        Raises
        ------
        IllegalStateError
            The column was not selected.
        """
        return self._chosen("key", self._rows.keys)

    @property
    def values(self) -> Any:
        """Values: a BytesColumn, or the deserializer's column.

        Its static type is ``Any``: the deserializer is chosen when the program runs. Annotate the
        variable (``BytesColumn``, ``StringColumn``, ``UuidColumn``, ``NDArray``) to have its use
        checked.

        Raises
        ------
        IllegalStateError
            The column was not selected.
        """
        return self._chosen("value", self._rows.values)

    @property
    def headers(self) -> HeadersColumn:
        """Headers, parsed at the first access.

        Raises
        ------
        IllegalStateError
            The column was not selected.
        """
        return cast("HeadersColumn", self._chosen("headers", self._rows.headers))

    def _chosen(self, name: str, column: Values | HeadersColumn | None) -> Any:
        if column is None:
            raise IllegalStateError(
                f'column "{name}" of {self.topic_partition} was not selected',
                hint=f'add "{name}" to columns',
            )
        return column

    @property
    def nbytes(self) -> int:
        """Bytes of the serialized keys and values and of the index columns."""
        return self._rows.nbytes

    @property
    def pinned_nbytes(self) -> int:
        """Bytes of the memory blocks that these records keep alive; :meth:`compact` reduces it.

        Usually whole received frames, which other records may keep alive as well. Python objects
        made by a callable are not counted.
        """
        return block_bytes(self.blocks())

    def blocks(self) -> Iterator[Any]:
        """Yield the buffers that the records keep alive."""
        yield from self._rows.blocks()
        yield from self.errors.blocks()

    # --- rows -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> ConsumerRecord: ...
    @overload
    def __getitem__(self, rows: slice | list[int] | NDArray[Any]) -> PartitionRecords: ...
    def __getitem__(self, rows: Any) -> ConsumerRecord | PartitionRecords:
        if not hasattr(rows, "__index__") or isinstance(rows, np.ndarray):
            return self.select(rows)
        row = row_number(rows, len(self))
        return self._rows.record(row, self.topic, self.partition, self.leader_epoch)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self._rows.records(self.topic, self.partition, self.leader_epoch)

    def __reversed__(self) -> Iterator[ConsumerRecord]:
        return iter(list(self)[::-1])

    def __contains__(self, record: object) -> bool:
        return any(record == own for own in self)

    def index(self, record: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the row of a record; raises ValueError when it is not there."""
        return list(self).index(record, start, len(self) if stop is None else stop)

    def count(self, record: Any) -> int:
        """Return how often a record occurs; ``len(records)`` is the number of records."""
        return sum(record == own for own in self)

    def select(self, rows: slice | ArrayLike) -> PartitionRecords:
        """Return some rows; index arrays are copied, payload bytes are not.

        Parameters
        ----------
        rows : slice, ndarray of bool of shape (n,), or row numbers
            A slice, of any step, covers the rows between its bounds, row numbers those up to the
            highest one, and a mask all rows. ``next_offset`` is the offset after the last row
            covered, as if the rest had not been read yet: committing it passes over no record
            behind the selection. When the last row of all is covered, it does not change.

        Raises
        ------
        IndexError
            A mask of another length, or a row that does not exist.
        """
        chosen = row_selection(rows, len(self))
        next_offset = self.next_offset
        covered = rows_covered(rows, chosen, len(self))
        if covered < len(self):
            offsets = self._rows.offsets
            next_offset = int(offsets[covered - 1]) + 1 if covered else int(offsets[0])
        selected = self._rows.select(chosen)
        errors = self.errors
        if self._rows.errors is not None:
            errors = errors.select(rows_of(self._rows.errors, chosen))
        return self._with(selected, next_offset, errors)

    def compact(self) -> PartitionRecords:
        """Return the same records in memory of their own.

        Keys, values and headers are copied into one buffer of exactly their size, so that the
        received frame, which may be much larger, can be freed.
        """
        return self._with(self._rows.compact(), self.next_offset, self.errors.compact())

    def decode(
        self, *, keys: object = None, values: object = None, on_error: OnError = "raise"
    ) -> PartitionRecords:
        """Return the same records with raw keys or values deserialized.

        Parameters
        ----------
        keys, values : deserializer, optional
            What ``key_deserializer`` and ``value_deserializer`` take; None leaves the column. A
            header that names a schema counts if the records were read with their headers.
        on_error : {"raise", "null", "skip"}
            As ``on_deserialization_error`` of a consumer.

        Raises
        ------
        DeserializationError
            A value cannot be read and ``on_error`` is ``"raise"``.
        IllegalStateError
            The column is not selected, or was deserialized before.
        """
        rows, errors = decode_rows(
            self._rows, self.errors, self.topic_partition, keys, values, on_error
        )
        return self._with(rows, self.next_offset, errors)

    # --- conversions ------------------------------------------------------------------------------

    @property
    def partition_rows(self) -> PartitionRows:
        """The rows and their partition, for exporters."""
        return PartitionRows(self.topic, self.partition, self._rows)

    def to_numpy(self) -> NDArray[Any]:
        """Return a structured array of shape (n,), one field per column.

        Variable-length columns are ``object`` fields; numeric nulls make it a ``MaskedArray``.
        """
        return structured_array([self.partition_rows])

    def to_arrow(
        self, view: bool = False, topic_dictionary: bool = True, flatten: Flatten = False
    ) -> pa.RecordBatch:
        """Return a ``pyarrow.RecordBatch``.

        Parameters
        ----------
        view : bool
            Bytes and strings as ``binary_view`` and ``string_view`` over the received memory,
            without a copy. Not every function of Arrow takes them.
        topic_dictionary : bool
            ``topic`` as ``dictionary<int32, string>``, 4 bytes a row; False: as ``string``.
        flatten : bool or "all"
            Members of struct keys and values as columns of their own, null where the struct is; a
            name that is taken becomes ``value.name``. ``"all"``: those of nested structs too.

        Raises
        ------
        MissingDependencyError
            pyarrow is not installed.
        """
        pyarrow = optional_package("pyarrow", "to_arrow()")
        form = Form.of(view=view, topic_dictionary=topic_dictionary, flatten=flatten)
        return pyarrow.record_batch(CapsulePair(record_batch(self.partition_rows, form)))

    def to_pandas(self, topic_dictionary: bool = True, flatten: Flatten = False) -> pd.DataFrame:
        """Return a pandas DataFrame, made through Arrow; the README says which dtypes it has.

        Parameters
        ----------
        topic_dictionary : bool
            ``topic`` as ``category``; False: as strings.
        flatten : bool or "all"
            Members of struct keys and values as columns of their own, null where the struct is; a
            name that is taken becomes ``value.name``. ``"all"``: those of nested structs too.

        Raises
        ------
        MissingDependencyError
            pandas or pyarrow is not installed.
        """
        return pandas_frame(
            [self.partition_rows], topic_dictionary=topic_dictionary, flatten=flatten
        )

    def to_polars(self, topic_dictionary: bool = True, flatten: Flatten = False) -> pl.DataFrame:
        """Return a polars DataFrame; pyarrow is not needed.

        Parameters
        ----------
        topic_dictionary : bool
            ``topic`` as ``Categorical``; False: as ``String``.
        flatten : bool or "all"
            Members of struct keys and values as columns of their own, null where the struct is; a
            name that is taken becomes ``value.name``. ``"all"``: those of nested structs too.

        Raises
        ------
        MissingDependencyError
            polars is not installed.
        """
        return polars_frame(
            [self.partition_rows], topic_dictionary=topic_dictionary, flatten=flatten
        )

    def __arrow_c_schema__(self) -> Capsule:
        return record_schema(self.partition_rows)

    def __arrow_c_array__(self, requested_schema: Capsule = None) -> tuple[Capsule, Capsule]:
        form = Form(dict(requested_columns(requested_schema)))
        return record_batch(self.partition_rows, form).capsules()

    def __arrow_c_stream__(self, requested_schema: Capsule = None) -> Capsule:
        return record_stream([self.partition_rows], Form(dict(requested_columns(requested_schema))))

    def __repr__(self) -> str:
        return text_preview(partition_title(self), [self])

    def _repr_html_(self) -> str:
        return html_preview(partition_title(self), [self])

    def __str__(self) -> str:
        span = f" offsets {self.offsets[0]}..{self.offsets[-1]}" if len(self) else ""
        return (
            f"<PartitionRecords {self.topic_partition} n={len(self)}{span} "
            f"next_offset={self.next_offset}>"
        )


def with_rows(chunks: Sequence[PartitionRecords]) -> list[PartitionRecords]:
    """Return the chunks that have rows.

    The errors of those without, whose records were all skipped, are counted as those of other
    skipped records: with the row after them, or with the last row.
    """
    kept: list[PartitionRecords] = []
    skipped: list[RecordErrors] = []
    for chunk in chunks:
        if not len(chunk):
            skipped.append(chunk.errors)
        else:
            kept.append(chunk._with_errors(0, RecordErrors.concat(skipped)) if skipped else chunk)
            skipped = []
    if skipped and kept:
        kept[-1] = kept[-1]._with_errors(-1, RecordErrors.concat(skipped))
    return kept


def rows_of(counts: NDArray[np.int32], chosen: Rows) -> NDArray[np.intp]:
    """Return the numbers of the errors of some rows, of which each has ``counts``."""
    ends = np.cumsum(counts, dtype=np.intp)
    sizes = counts[chosen]
    starts = (ends - counts)[chosen]
    before = np.cumsum(sizes, dtype=np.intp) - sizes
    numbers: NDArray[np.intp] = np.arange(int(sizes.sum())) + np.repeat(starts - before, sizes)
    return numbers
