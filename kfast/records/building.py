"""Building of PartitionRecords from a decoded chunk.

``deserializing`` has what is done about keys and values that cannot be deserialized. If errors are
raised, the ``next_offset`` of the records is that of the first bad one.

Thread: the caller's, which also runs a user's callable.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.record_errors import NO_ERRORS
from kfast.columns.spans import ColumnOrigin, block_bytes
from kfast.deserializers import as_deserializer
from kfast.records.chunk_rows import ChunkRows
from kfast.records.deserializing import NO_LIMIT, Deserialization, OnError
from kfast.records.partition_records import PartitionRecords
from kfast.records.row_columns import RowColumns, selected_columns
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast._native.record_index import RecordIndex
    from kfast.columns.operations import Values
    from kfast.deserializers import Deserializer
    from kfast.errors import DeserializationError


@dataclass(slots=True)
class BuildResult:
    """The records of a chunk, or those before the first bad record and its error."""

    records: PartitionRecords
    error: DeserializationError | None = None
    """Of the record at ``records.next_offset``."""
    rest: int | None = None
    """The row of the chunk to go on with, if the columns of all would take too much memory."""
    column_bytes: int = 0
    """Memory of columns that were made by decoders, besides that of the chunk."""


def build_partition_records(
    topic: str,
    partition: int,
    index: RecordIndex,
    *,
    key_deserializer: object = None,
    value_deserializer: object = None,
    on_error: OnError = "raise",
    high_watermark: int = -1,
    log_start_offset: int = -1,
    columns: Collection[str] | None = None,
) -> BuildResult:
    """Make the columns of a decoded chunk.

    Parameters
    ----------
    topic, partition : str, int
        The chunk's partition.
    index : RecordIndex
        The decoded chunk.
    key_deserializer, value_deserializer : see `as_deserializer`
        None leaves the column a BytesColumn.
    on_error : {"raise", "null", "skip"}
        Handling of keys and values that cannot be deserialized.
    high_watermark, log_start_offset : int
        Bounds of the log at the time of the fetch, -1 if unknown.
    columns : collection of str, optional
        Names from ``COLUMN_NAMES``. Others are not exported; keys, values or headers that are not
        selected are neither deserialized nor parsed.

    Raises
    ------
    ConfigurationError
        An unknown column or an invalid deserializer.
    """
    return build_chunk(
        topic,
        partition,
        index,
        as_deserializer(key_deserializer),
        as_deserializer(value_deserializer),
        selected=selected_columns(columns),
        on_error=on_error,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
    )


def build_chunk(
    topic: str,
    partition: int,
    index: RecordIndex,
    key_deserializer: Deserializer | None,
    value_deserializer: Deserializer | None,
    *,
    selected: frozenset[str],
    on_error: OnError,
    high_watermark: int,
    log_start_offset: int,
    topic_id: bytes | None = None,
    first_row: int = 0,
    most_bytes: int = NO_LIMIT,
) -> BuildResult:
    """Same as `build_partition_records`, with arguments that have been checked.

    Rows before ``first_row`` are left out. The result has a ``rest`` if the columns of native
    deserializers would have taken more than about ``most_bytes``.
    """
    chunk = ChunkRows(topic, partition, index, selected)
    rows: RowColumns = chunk
    next_offset = index.next_offset
    error: DeserializationError | None = None
    rest: int | None = None
    column_bytes = 0
    errors = NO_ERRORS
    if key_deserializer is not None or value_deserializer is not None:
        received: ChunkRows | RowColumns = (
            chunk.select(slice(first_row, None)) if first_row else chunk
        )
        decoding = Deserialization(TopicPartition(topic, partition), received, on_error, most_bytes)
        for name, deserializer in (("key", key_deserializer), ("value", value_deserializer)):
            if deserializer is not None and name in selected:
                decoding.decode(name, deserializer)
        rows, errors = decoding.rows()
        error = decoding.error
        if decoding.count < len(received):
            next_offset = int(received.offsets[decoding.count])
            rest = first_row + decoding.count if error is None else None
        column_bytes = block_bytes(decoding.blocks())
        if column_bytes and decoding.is_all_decoded:
            rows = rows.without_payload()
    records = PartitionRecords(
        topic,
        partition,
        rows,
        next_offset=next_offset,
        high_watermark=high_watermark,
        leader_epoch=index.leader_epoch,
        log_start_offset=log_start_offset,
        topic_id=topic_id,
        errors=errors,
    )
    return BuildResult(records, error, rest, column_bytes)


def empty_partition_records(
    topic: str = "",
    partition: int = -1,
    *,
    key_deserializer: object = None,
    value_deserializer: object = None,
    columns: Collection[str] | None = None,
) -> PartitionRecords:
    """Return records without rows that have the columns and types of real ones."""
    selected = selected_columns(columns)
    none64 = np.zeros(0, np.int64)
    none32 = np.zeros(0, np.int32)
    values: dict[str, Values | None] = {"key": None, "value": None}
    for name, setting in (("key", key_deserializer), ("value", value_deserializer)):
        if name in selected:
            deserializer = as_deserializer(setting)
            origin = ColumnOrigin(topic, partition, name, none64)
            nothing = BytesColumn(b"", none32, none32, origin=origin)
            values[name] = (
                nothing
                if deserializer is None
                else deserializer.deserialize_column(nothing, None, stop_at_first=True).values
            )
    headers = HeadersColumn.empty(0) if "headers" in selected else None
    rows = RowColumns(
        selected, none64, none64, 0, values["key"], values["value"], headers, none32, none32
    )
    return PartitionRecords(topic, partition, rows, next_offset=-1)
