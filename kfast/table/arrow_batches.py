"""ArrowBatches: the records of one partition as ``pyarrow.RecordBatch`` in the query's schema.

Owns the conversion of kfast's columns. Offsets are passed on without a copy; timestamps are
multiplied once (Kafka's milliseconds, Spark's microseconds), and those that a column cannot hold
are malformed (``time_limits``); variable-length columns are gathered
once, as Arrow's layout requires; topic, partition and timestamp type are arrays made once per task
and sliced. Nothing is done per record in Python. Keys and values are decoded here too, since
``mode`` says what happens to the whole record of a malformed one:

=============  ===================================================================================
PERMISSIVE     it is null; a value's bytes go to ``_corrupt_record``, and code and path of what is
               bad to ``_corrupt_reason``, if the schema has those columns
DROPMALFORMED  the record is left out
FAILFAST       `DeserializationError` with topic, partition and offset
=============  ===================================================================================

Depends on Spark's types, not on pyspark. Any thread, one at a time.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from kfast._base.optional import optional_package
from kfast.columns.arrow import CapsulePair, constant_column
from kfast.columns.bytes import BytesColumn
from kfast.columns.operations import values_column
from kfast.columns.text import StringColumn
from kfast.deserializers import needs_headers
from kfast.deserializers.formats import deserializer_of
from kfast.errors import KafkaError
from kfast.records.arrow_stream import row_ranges
from kfast.schemas.formats import FORMATS, STRUCT
from kfast.table.arrow_types import arrow_schema, is_wider
from kfast.table.projection import RESCUED
from kfast.table.read_counts import UnknownCounts
from kfast.table.time_limits import COLUMN, MICROSECONDS, BadTimes, TimeLimits, time_limits
from kfast.table.value_decoder import DecodedValues, ValueDecoder
from kfast.table.value_types import field_of_spark, wanted_paths

if TYPE_CHECKING:
    import pyarrow as pa

    from kfast.deserializers import Deserializer
    from kfast.deserializers.formats import Spelling
    from kfast.records.partition_records import PartitionRecords
    from kfast.records.row_columns import RowColumns
    from kfast.registry.registered_schema import SchemaSource
    from kfast.schemas.types import SchemaField
    from kfast.table.dead_letter_sink import DeadLetterSink
    from kfast.table.projection import Projection

BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 16 << 20
"""Most rows of a batch, and most bytes of one of its columns unless one record is larger."""

_SPANS: Final = {"keys": ("key",), "values": ("value", "corrupt"), "headers": ("headers",)}
"""Columns of variable length, and the output columns each is the source of."""


def deserializers_of(
    projection: Projection,
    registry: SchemaSource | None = None,
    spelled: Spelling | None = None,
) -> dict[str, Deserializer]:
    """Return the deserializers of key and value, without those that are not decoded.

    Columns of typed formats have the type that the projection says; JSON needs no other schema.
    ``spelled`` is that of ``deserializer_of``.
    """
    deserializers = {}
    for source in ("key", "value"):
        if not projection.decodes(source):
            continue
        form = projection.format_of(source)
        row, arguments = FORMATS[form.kind], dict(form.arguments)
        options = dict(arguments.pop("options", {}))
        column = projection.column(source)
        if row.name == STRUCT:
            arguments["schema"] = [tuple(pair) for pair in arguments["schema"]]
        elif row.is_typed and column is not None:
            field = field_of_spark(column.json_type, column.name)
            paths = wanted_paths(field)
            if "columns" in row.options and paths is not None:
                options["columns"] = paths
            elif "columns" not in row.options:
                arguments["schema"] = field
        descriptors = arguments.get("descriptor_set")
        if isinstance(descriptors, Mapping):
            arguments["descriptor_set"] = base64.b64decode(descriptors["base64"])
        if "registry" in row.arguments:
            arguments["registry"] = registry
        deserializer = deserializer_of(
            form.kind, column=source, options=options, spelled=spelled, **arguments
        )
        assert deserializer is not None  # what is not decoded was left out
        deserializers[source] = deserializer
    return deserializers


class ArrowBatches:
    """Makes the batches of one partition; ``schema`` is that of each batch.

    ``deserializers`` are those of key and value, by default those of the projection, and ``limits``
    those of timestamps. ``bad_records`` counts the keys, values and timestamps so far that are
    malformed; ``dead_letters`` gets them. ``unknown`` has the fields of documents so far that no
    column is read from.
    """

    def __init__(
        self,
        projection: Projection,
        topic: str,
        partition: int,
        deserializers: Mapping[str, Deserializer] | None = None,
        dead_letters: DeadLetterSink | None = None,
        limits: TimeLimits | None = None,
    ) -> None:
        self._dead_letters = dead_letters
        self._limits = limits or time_limits(projection)
        self._arrow = optional_package("pyarrow", "decoding into Arrow")
        self.schema: pa.Schema = arrow_schema(projection)
        self._projection = projection
        if deserializers is None:
            deserializers = deserializers_of(projection)
        self._decoders = {
            source: ValueDecoder(source, deserializer, _column_field(projection, source))
            for source, deserializer in deserializers.items()
        }
        self._constants: dict[str, Any] = {"topic": topic, "partition": partition}
        self._constant_arrays: dict[tuple[str, int], pa.Array] = {}
        self._has_headers = any(map(needs_headers, deserializers.values()))
        self.bad_records = 0
        self.unknown = UnknownCounts()
        self._spans = [
            name
            for name, sources in _SPANS.items()
            if any(projection.wants(source) for source in sources)
        ]

    def batches(self, records: PartitionRecords) -> Iterator[pa.RecordBatch]:
        """Yield records as batches of bounded size, in order; none is empty."""
        for start, stop in self._pieces(records.partition_rows.rows):
            for first in range(start, stop, BATCH_ROWS):
                last = min(stop, first + BATCH_ROWS)
                whole = last - first == len(records)
                rest = records if whole else records[first:last]
                while len(rest):
                    batch, used = self._batch(rest)
                    if batch.num_rows:
                        yield batch
                    rest = rest[used:] if used < len(rest) else rest[:0]

    def _pieces(self, rows: RowColumns) -> Iterable[tuple[int, int]]:
        """Return row ranges of bounded bytes: one range if the columns' memory is within the bound.

        Columns outside the projection are not accessed, as that would build them.
        """
        spans = [getattr(rows, name) for name in self._spans]
        if all(
            isinstance(column, BytesColumn) and column.data.nbytes <= BATCH_BYTES
            for column in spans
        ):
            return [(0, len(rows))]
        return row_ranges(rows, BATCH_BYTES)

    def _batch(self, records: PartitionRecords) -> tuple[pa.RecordBatch, int]:
        """Return a batch of the first records, and their number: all, if columns are not large."""
        decoded: dict[str, DecodedValues] = {}
        used, stops = len(records), self._projection.mode == "FAILFAST"
        for name, decoder in self._decoders.items():
            decoded[name] = decoder.decode(
                records[:used] if used < len(records) else records,
                stops=stops,
                spelling=self._projection.spelling,
            )
            used = len(decoded[name])
        if used < len(records):
            records = records[:used]
            decoded = {name: values.cut(used) for name, values in decoded.items()}
        times = None if self._limits is None else self._limits.check(records.timestamps)
        if times is not None and stops:
            raise times.error(records, self._projection.spelling.on_error_hint)
        records, decoded, times = self._without_bad(records, decoded, times)
        for name, values in decoded.items():
            if values.node is not None and values.node.unknown is not None:
                self.unknown.add(values.node.unknown.total, values.node.unknown.paths, name)
        arrays = []
        for number, column in enumerate(self._projection.columns):
            field = self.schema.field(number)
            array = self._array(column.source, records, decoded, times, field)
            if array.null_count and not column.is_nullable:
                raise _null_error(column.name, array, records)
            arrays.append(array)
        return self._arrow.RecordBatch.from_arrays(arrays, schema=self.schema), used

    def _without_bad(
        self,
        records: PartitionRecords,
        decoded: dict[str, DecodedValues],
        times: BadTimes | None,
    ) -> tuple[PartitionRecords, dict[str, DecodedValues], BadTimes | None]:
        """Count what is bad; with ``DROPMALFORMED`` return the records without it."""
        columns: dict[str, DecodedValues | BadTimes] = {**decoded}
        if times is not None:
            columns[COLUMN] = times
        bad = [column.is_bad for column in columns.values() if column.is_bad is not None]
        if not bad:
            return records, decoded, None
        if self._dead_letters is not None:
            self._dead_letters.take(records, columns)
        if self._projection.mode != "DROPMALFORMED":
            self.bad_records += sum(int(np.count_nonzero(mask)) for mask in bad)
            return records, decoded, times
        is_bad = np.logical_or.reduce(bad)
        self.bad_records += int(np.count_nonzero(is_bad))
        kept = np.flatnonzero(~is_bad)
        return records[kept], {name: values.select(kept) for name, values in decoded.items()}, None

    # --- columns ----------------------------------------------------------------------------------

    def _array(
        self,
        source: str,
        records: PartitionRecords,
        decoded: Mapping[str, DecodedValues],
        times: BadTimes | None,
        field: pa.Field,
    ) -> pa.Array:
        if source in self._constants:
            return self._constant(source, self._constants[source], len(records), field.type)
        if source == "offset":
            return self._fixed(field.type, records.offsets)
        if source == COLUMN:
            return self._times(field.type, records.timestamps, times)
        if source == "timestamptype":
            kinds = records.partition_rows.rows.timestamp_types
            if isinstance(kinds, int):
                return self._constant(source, kinds, len(records), field.type)
            return self._fixed(field.type, kinds.astype(np.int32))
        if source == "headers":
            return self._headers(records, field)
        if source == "corrupt":
            return self._corrupt(records, decoded.get("value"), field)
        if source == "reason":
            return self._reasons(len(records), decoded, times, field)
        if source == RESCUED:
            return self._rescued(records, decoded["value"], field)
        if source not in decoded:
            column = records.keys if source == "key" else records.values
            return retyped(self._arrow.array(CapsulePair(values_column("", column))), field)
        values = decoded[source]
        if values.node is None:
            array = self._arrow.array(CapsulePair(values_column("", values.values)))
            if is_wider(array.type, field.type):  # that of a table, which has it from before
                return array.cast(field.type)
            return retyped(array, field)
        from kfast.columns.column_arrow import arrow_of  # noqa: PLC0415 - typed columns only

        array = self._arrow.array(CapsulePair(arrow_of(values.node, "", is_nullable=True)))
        if not array.type.equals(field.type):
            raise _too_large(field.name, array.type, field.type)
        return array

    def _constant(self, source: str, value: str | int, count: int, kind: pa.DataType) -> pa.Array:
        """Return ``count`` times the same value: a slice of the longest such array made so far."""
        key = (source, 0 if source in self._constants else int(value))
        array = self._constant_arrays.get(key)
        if array is None or len(array) < count:
            if isinstance(value, str):
                array = self._arrow.array(CapsulePair(constant_column("", value, count)))
            else:  # pyarrow's scalars import pandas, which takes as long as a small task
                array = self._fixed(kind, np.full(count, value, np.int32))
            self._constant_arrays[key] = array
        return array.slice(0, count)

    def _fixed(self, kind: pa.DataType, values: NDArray[Any]) -> pa.Array:
        """Return numbers without nulls as an array over the same memory."""
        data = np.ascontiguousarray(values)
        return self._arrow.Array.from_buffers(
            kind, len(data), [None, self._arrow.py_buffer(data)], 0
        )

    def _times(
        self, kind: pa.DataType, times_ms: NDArray[np.int64], times: BadTimes | None
    ) -> pa.Array:
        """Return timestamps in microseconds, null where the column cannot hold them.

        It holds more than the names of folders do.
        """
        beyond = None if times is None else MICROSECONDS.check(times_ms)
        if beyond is None:
            return self._fixed(kind, times_ms * 1000)
        data = np.where(beyond.is_bad, 0, times_ms) * 1000
        bits = np.packbits(~beyond.is_bad, bitorder="little")
        buffers = [self._arrow.py_buffer(bits), self._arrow.py_buffer(data)]
        return self._arrow.Array.from_buffers(kind, len(data), buffers)

    def _headers(self, records: PartitionRecords, field: pa.Field) -> pa.Array:
        """Return headers; null for a record without any, as in ``format("kafka")``."""
        array = retyped(self._arrow.array(CapsulePair(records.headers.arrow_column(""))), field)
        is_there = records.headers.counts > 0
        if is_there.all():
            return array
        bits = np.packbits(is_there, bitorder="little")
        buffers = [self._arrow.py_buffer(bits), *array.buffers()[1:2]]
        return self._arrow.Array.from_buffers(
            array.type, len(array), buffers, -1, 0, [array.values]
        )

    def _rescued(
        self, records: PartitionRecords, decoded: DecodedValues, field: pa.Field
    ) -> pa.Array:
        column = decoded.rescued(records.headers if self._has_headers else None)
        if column is None:
            return self._arrow.nulls(len(records), field.type)
        return self._arrow.array(CapsulePair(column.arrow_column("")))

    def _corrupt(
        self, records: PartitionRecords, decoded: DecodedValues | None, field: pa.Field
    ) -> pa.Array:
        if decoded is None or decoded.is_bad is None:
            return self._arrow.nulls(len(records), field.type)
        raw = decoded.raw
        assert raw is not None  # an ingest, whose consumer decodes, has no such column
        lengths = np.where(decoded.is_bad, raw.lengths, np.int32(-1))
        bad = BytesColumn(raw.spans[0], raw.starts, lengths)
        return self._arrow.array(CapsulePair(bad.arrow_column("")))

    def _reasons(
        self,
        count: int,
        decoded: Mapping[str, DecodedValues],
        times: BadTimes | None,
        field: pa.Field,
    ) -> pa.Array:
        """Return ``code path`` of bad values, behind ``key`` if the key is bad.

        A timestamp is named only if key and value are not bad.
        """
        texts: dict[int, str] = {} if times is None else times.reasons()
        for source, values in sorted(decoded.items(), reverse=True):  # the key counts
            before = "key " if source == "key" else ""
            texts.update({row: before + text for row, text in values.reasons().items()})
        if not texts:
            return self._arrow.nulls(count, field.type)
        raw: list[bytes | None] = [None] * count
        for row, text in texts.items():
            raw[row] = text.encode()
        column = StringColumn(BytesColumn.from_values(raw))
        return self._arrow.array(CapsulePair(column.arrow_column("")))

    def __repr__(self) -> str:
        return f"<ArrowBatches {self._constants['topic']}-{self._constants['partition']}>"


def _column_field(projection: Projection, source: str) -> SchemaField | None:
    """Return the type that decoded keys or values become, None if no column has them."""
    column = projection.column(source)
    return None if column is None else field_of_spark(column.json_type, column.name)


def retyped(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return nested columns with the names and nullability of a field; no data is copied.

    Raises ``KafkaError`` if a value is null where the field is NOT NULL.
    """
    arrow = optional_package("pyarrow", "decoding into Arrow")
    kind = field.type
    if array.type.equals(kind) and not kind.num_fields:
        return array
    if not kind.num_fields:
        raise _too_large(field.name, array.type, kind)
    if arrow.types.is_list(kind):
        children = [_child(array.values, kind.value_field)]
        buffers = array.buffers()[:2]
    else:
        children = [
            _child(array.field(number), kind.field(number)) for number in range(kind.num_fields)
        ]
        buffers = array.buffers()[:1]
    return arrow.Array.from_buffers(kind, len(array), buffers, array.null_count, 0, children)


def _child(array: pa.Array, field: pa.Field) -> pa.Array:
    child = retyped(array, field)
    if child.null_count and not field.nullable:
        raise KafkaError(
            f"field {field.name} is NOT NULL in the schema, but there are nulls",
            hint="leave NOT NULL out of the schema",
        )
    return child


def _too_large(name: str, actual: pa.DataType, expected: pa.DataType) -> KafkaError:
    return KafkaError(
        f"column {name}: {actual} in place of {expected}",
        hint="a batch of Arrow holds values of up to 2 GiB",
    )


def _null_error(name: str, array: pa.Array, records: PartitionRecords) -> KafkaError:
    row = next(number for number, value in enumerate(array.is_null().to_pylist()) if value)
    offset = int(records.offsets[row])
    return KafkaError(
        f"{records.topic_partition} offset {offset}: {name} is null",
        cause=f"the schema says that {name} is NOT NULL",
        hint="leave NOT NULL out of the schema",
        topic=records.topic,
        partition=records.partition,
        offset=offset,
    )
