"""Parquet and Arrow: slices as columns, in row groups that do not depend on the batches.

pyarrow and NumPy are imported here, and only when a read writes one of these formats.

The batches of an Arrow stream are compressed on threads of their own and written in order:
compressing takes longer than reading and decoding together, and pyarrow compresses the buffers of
one batch at once, of which one has nearly all bytes.
"""

from __future__ import annotations

import contextlib
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import kfast
from kfast._base.optional import optional_package
from kfast._base.threads import OrderedCalls
from kfast.cli.formats import COLUMNS
from kfast.cli.typed_values import with_command_hint
from kfast.columns.arrow import CapsulePair, dictionary_of, integer_column
from kfast.deserializers import needs_headers
from kfast.deserializers.formats import known_root
from kfast.records.building import build_partition_records, empty_partition_records
from kfast.table.file_formats import parquet_writer

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from kfast.cli.output import Output
    from kfast.cli.slices import Slice
    from kfast.cli.typed_values import ErrorsFile

_PENDING_BYTES: Final = 16 << 20
"""Of batches that are not written: what is left to do when the reader has gone."""


class ArrowStream:
    """Writes the batches of tables; a context manager, whose end is that of the stream."""

    def __init__(self, pa: Any, output: Output, schema: Any, options: Any) -> None:
        self._pa = pa
        self._output = output
        self._schema = schema
        self._options = options
        self._writer = pa.ipc.new_stream(output, schema, options=options)
        self._has_inner_dictionaries = any(
            "dictionary<" in str(kind) for kind in schema.types if not pa.types.is_dictionary(kind)
        )
        self._dictionaries: list[Any] | None = None
        """Those that were written last."""
        self._encoding: OrderedCalls[memoryview] = OrderedCalls()

    def write_table(self, table: Any) -> None:
        """Write a table. A batch with other dictionaries than the one before it has them first."""
        for batch in table.to_batches():
            dictionaries = [
                column.dictionary
                for column in batch.columns
                if self._pa.types.is_dictionary(column.type)
            ]
            if self._has_inner_dictionaries or dictionaries != self._dictionaries:
                self._drain(0)
                self._writer.write_batch(batch)
                self._dictionaries = dictionaries
            else:
                self._encoding.submit(batch.nbytes, partial(self._encoded, batch))
                self._drain(_PENDING_BYTES)

    def _drain(self, most_bytes: int) -> None:
        """Write what is encoded, and wait until no more bytes than these are not."""
        for message in self._encoding.results(most_bytes):
            self._output.write(message)

    def _encoded(self, batch: Any) -> memoryview:
        """Return the message of a batch: a stream of its own without what comes before it."""
        into = self._pa.BufferOutputStream()
        with self._pa.ipc.new_stream(into, self._schema, options=self._options) as writer:
            writer.write_batch(batch.slice(0, 0))
            begin = into.tell()
            writer.write_batch(batch)
            end = into.tell()
        return memoryview(into.getvalue())[begin:end]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc_type is None:
                self._drain(0)
                self._writer.close()
        finally:
            self._encoding.close()


_GROUP_ROWS: Final = 1 << 20
_GROUP_BYTES: Final = 64 << 20
_STREAM_BYTES: Final = 4 << 20
"""Of an Arrow stream, which has no row groups, so that it is written while more is read."""
_ON_ERROR: Final = {"fail": "raise", "null": "null", "skip": "skip"}
_WHITE_SPACE: Final = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\n\r]+')


def compact_json(raw: bytes) -> str:
    """Return JSON (RFC 8259) as it came, without white space between its parts.

    Numbers keep their digits, objects the order of their keys and duplicates, strings their
    escapes. Raises ValueError for anything else, such as NaN, a byte order mark or text behind it.
    """
    text = raw.decode()
    try:
        json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return _WHITE_SPACE.sub(lambda match: match[1] or "", text)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DESERIALIZERS: Final[dict[str, Any]] = {
    "text": kfast.Utf8(),
    "json": compact_json,
    "int32": kfast.Int32(),
    "int64": kfast.Int64(),
    "float32": kfast.Float32(),
    "float64": kfast.Float64(),
    "uuid": kfast.Uuid(),
}
"""What makes a column of a kind; of the others the bytes are written."""


class BinarySink:
    """Writes row groups of ``_GROUP_ROWS`` or ``_GROUP_BYTES``; without records, the schema."""

    is_pending = False

    def __init__(
        self,
        form: str,
        output: Output,
        columns: tuple[str, ...],
        *,
        key: str,
        value: str,
        on_error: str,
        compression: str,
        is_stream: bool,
        typed: Mapping[str, Any] | None = None,
        flatten: bool = False,
        errors: ErrorsFile | None = None,
        topic: str | None = None,
    ) -> None:
        self._flatten = flatten
        self._errors = errors
        self._topic = topic
        self._typed = typed = typed or {}
        self._pa = optional_package("pyarrow", f"--format {form}")
        self._form = form
        self._output = output
        self._columns = columns
        self._codec = None if compression == "none" else compression
        self._is_stream = is_stream
        self._selected = {"topic", "partition", "offset", "timestamp", "timestamp_type"} | (
            {"key", "value", "headers"} & {*columns}
        )
        self._deserializers = {
            name: deserializer
            for name, kind in (("key", key), ("value", value))
            if name in columns
            and (deserializer := typed.get(name) or _DESERIALIZERS.get(kind)) is not None
        }
        if any(map(needs_headers, typed.values())):  # which may name the schema
            self._selected.add("headers")
        self._on_error: Any = _ON_ERROR[on_error]
        self._stack = contextlib.ExitStack()
        self._writer: Any = None
        self._group: list[Any] = []
        self._group_rows = self._group_bytes = 0
        self._most_bytes = _STREAM_BYTES if form == "arrow" and is_stream else _GROUP_BYTES
        self._topics: dict[str, int] = {}
        self.nulled = 0
        self.skipped = 0

    def begin(self) -> None:
        """Do nothing: the schema comes with the first records."""

    def put(self, rows: Slice, most: int | None, stopped: Callable[[], bool]) -> tuple[int, int]:
        """Take rows; a full row group is written."""
        # A registry that has just failed is not asked again by what ends the file.
        topic, self._topic = self._topic, None
        batch, error = self._decoded(rows)
        self._topic = topic
        offsets = rows.offsets
        records, used = batch, len(rows)
        if most is not None and len(batch) >= most:
            # Records that cannot be read may be missing: the others are found by their offsets.
            records = batch[:most]
            used = bisect_left(offsets, int(records.offsets[-1])) + 1
        self._add(records)
        errors = batch.errors
        if self._errors is not None and len(errors):
            self._errors.add(errors[errors.offset <= offsets[used - 1]])
        if error is not None and used == len(rows):
            raise error
        if self._on_error == "skip":
            self.skipped += used - len(records)
        else:
            self.nulled += records.deserialization_errors
        return used, len(records)

    def _decoded(
        self, rows: Slice
    ) -> tuple[kfast.PartitionRecords, kfast.errors.DeserializationError | None]:
        """Return rows, or those before the first bad one and its error."""
        tp = rows.topic_partition
        chunk = build_partition_records(
            tp.topic, tp.partition, rows.index, columns=self._selected
        ).records
        batch = chunk[rows.start : rows.stop]
        if not self._deserializers:
            return batch, None
        arguments = {f"{name}s": deserializer for name, deserializer in self._deserializers.items()}
        try:
            return batch.decode(**arguments, on_error=self._on_error), None
        except kfast.errors.DeserializationError as error:
            first_bad = -1 if error.offset is None else error.offset
            good = batch[: bisect_left(rows.offsets, first_bad)]
            return good.decode(**arguments), with_command_hint(error)

    def _add(self, records: kfast.PartitionRecords) -> None:
        if not len(records):
            return
        batch = self._arrow(records)
        self._group.append(batch)
        self._group_rows += batch.num_rows
        self._group_bytes += batch.nbytes
        if self._group_rows >= _GROUP_ROWS or self._group_bytes >= self._most_bytes:
            self._write_group()

    def flush(self) -> None:
        """Do nothing: a row group is written when it is full."""

    def end(self) -> None:
        """Write the last row group and what comes behind it."""
        with self._stack:
            if self._group:
                self._write_group()
            if self._writer is None:
                empty = self._arrow(self._empty())
                self._open(self._with_topics(self._pa.Table.from_batches([empty])).schema)

    def _empty(self) -> kfast.PartitionRecords:
        """Return no records, with the columns of a schema that a registry has for the topic."""
        topic = self._topic or ""
        for name in self._typed.keys() & self._deserializers.keys() if topic else ():
            known_root(self._typed[name], topic, name)
        arguments = {
            f"{name}_deserializer": deserializer
            for name, deserializer in self._deserializers.items()
        }
        return empty_partition_records(topic, columns=self._selected, **arguments)

    def _write_group(self) -> None:
        table = self._with_topics(self._pa.Table.from_batches(self._group))
        self._group.clear()
        self._group_rows = self._group_bytes = 0
        if self._writer is None:
            self._open(table.schema)
        self._writer.write_table(table)

    def _open(self, schema: Any) -> None:
        pa, codec = self._pa, self._codec
        if self._form == "parquet" and self._has_members(schema):
            from pyarrow import parquet  # noqa: PLC0415 - optional

            writer = parquet.ParquetWriter(self._output, schema, compression=codec or "none")
        elif self._form == "parquet":
            sources = {name.replace("_", ""): name for name in self._columns}
            writer = parquet_writer(
                self._output, schema, sources, codec or "none", store_schema=True
            )
        else:
            # A file has one dictionary of topics, to which those of later batches are added.
            how = pa.ipc.IpcWriteOptions(
                compression=codec,
                emit_dictionary_deltas=not self._is_stream,
                use_threads=not self._is_stream,  # which has its own, for whole batches
            )
            if self._is_stream:
                writer = ArrowStream(pa, self._output, schema, how)
            else:
                writer = pa.ipc.new_file(self._output, schema, options=how)
        self._writer = self._stack.enter_context(writer)

    def _has_members(self, schema: Any) -> bool:
        """Whether keys or values have columns of their own, in which texts may repeat."""
        kinds = [schema.field(name).type for name in ("key", "value") if name in schema.names]
        return self._flatten or any(kind.num_fields for kind in kinds)

    def _arrow(self, batch: kfast.PartitionRecords) -> Any:
        """Return the wanted columns, with the number of the topic in the place of its name.

        Not by pyarrow's own conversions: they import pandas, which takes longer than a short read.
        """
        exported = batch.to_arrow(flatten=self._flatten)
        numbers = {
            "topic": self._topics.setdefault(batch.topic, len(self._topics)) if len(batch) else 0,
            "leader_epoch": batch.leader_epoch,
        }
        there = exported.schema.names
        members = [name for name in there if name not in COLUMNS[:-1]]
        arrays: dict[str, Any] = {}
        for name in self._columns:
            # The members of a struct that is flattened take its place.
            for column in [name] if name in numbers or name in there else members:
                arrays[column] = (
                    self._constant(numbers[name], len(batch))
                    if name in numbers
                    else exported.column(column)
                )
        return self._pa.RecordBatch.from_arrays([*arrays.values()], names=[*arrays])

    def _constant(self, number: int, count: int) -> Any:
        return self._pa.array(CapsulePair(integer_column("", np.full(count, number, np.int32))))

    def _with_topics(self, table: Any) -> Any:
        """Return a table with the names of topics, from one dictionary for all its batches."""
        if "topic" not in self._columns:
            return table
        pa, at = self._pa, table.schema.get_field_index("topic")
        names = pa.array(CapsulePair(dictionary_of([*self._topics])))
        chunks = [pa.DictionaryArray.from_arrays(chunk, names) for chunk in table.column(at).chunks]
        kind = pa.dictionary(pa.int32(), pa.string())
        return table.set_column(at, "topic", pa.chunked_array(chunks, kind))
