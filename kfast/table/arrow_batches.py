"""ArrowBatches: the records of one partition as ``pyarrow.RecordBatch`` in the query's schema.

Owns the conversion of kfast's columns. Offsets are passed on without a copy; timestamps are
multiplied once (Kafka's milliseconds, Spark's microseconds); variable-length columns are gathered
once, as Arrow's layout requires; topic, partition and timestamp type are arrays made once per task
and sliced. Nothing is done per record in Python. Keys and values are decoded here too, since
``mode`` says what happens to the whole record of a malformed one:

=============  ===================================================================================
PERMISSIVE     it is null, and a value's bytes go to ``_corrupt_record`` if the schema has that
               column
DROPMALFORMED  the record is left out
FAILFAST       `DeserializationError` with topic, partition and offset
=============  ===================================================================================

Depends on Spark's types, not on pyspark. Any thread, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from kfast._optional import optional_package
from kfast.deserializers import (
    DecodedColumn,
    Deserializer,
    Float32,
    Float64,
    Int32,
    Int64,
    Struct,
    Utf8,
)
from kfast.errors import DeserializationError, KafkaError
from kfast.records.arrow.arrays import constant_column
from kfast.records.arrow.nodes import CapsulePair
from kfast.records.arrow_stream import row_ranges
from kfast.records.columns.bytes import BytesColumn
from kfast.records.columns.operations import values_column
from kfast.table.arrow_types import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from kfast.records.partition_records import PartitionRecords
    from kfast.records.row_columns import RowColumns
    from kfast.table.projection import Projection

BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 16 << 20
"""Most rows of a batch, and most bytes of one of its columns unless one record is larger."""

_SPANS: Final = {"keys": ("key",), "values": ("value", "corrupt"), "headers": ("headers",)}
"""Columns of variable length, and the output columns each is the source of."""

_MAX_MS: Final = (2**63 - 1) // 1000
_FORMATS: Final[dict[str, Callable[[], Deserializer]]] = {
    "utf8": Utf8,
    "int32": Int32,
    "int64": Int64,
    "float32": Float32,
    "float64": Float64,
}


def deserializers_of(projection: Projection) -> dict[str, Deserializer]:
    """Return the deserializers of key and value, without those that are not decoded."""
    formats = {"key": projection.key_format, "value": projection.value_format}
    return {
        source: Struct(list(projection.dtype)) if name == "struct" else _FORMATS[name]()
        for source, name in formats.items()
        if projection.decodes(source)
    }


class ArrowBatches:
    """Makes the batches of one partition; ``schema`` is that of each batch.

    ``bad_records`` counts the keys and values so far that are not of the format.
    """

    def __init__(self, projection: Projection, topic: str, partition: int) -> None:
        self._arrow = optional_package("pyarrow", "decoding into Arrow")
        self.schema: pa.Schema = arrow_schema(projection)
        self._projection = projection
        self._deserializers = deserializers_of(projection)
        self._constants: dict[str, Any] = {"topic": topic, "partition": partition}
        self._constant_arrays: dict[tuple[str, int], pa.Array] = {}
        self.bad_records = 0
        self._spans = [
            name
            for name, sources in _SPANS.items()
            if any(projection.wants(source) for source in sources)
        ]

    def batches(self, records: PartitionRecords) -> Iterator[pa.RecordBatch]:
        """Yield records as batches of bounded size, in order; none is empty."""
        for start, stop in self._pieces(records.part.rows):
            for first in range(start, stop, BATCH_ROWS):
                last = min(stop, first + BATCH_ROWS)
                whole = last - first == len(records)
                batch = self._batch(records if whole else records[first:last])
                if batch.num_rows:
                    yield batch

    def _pieces(self, rows: RowColumns) -> Iterable[tuple[int, int]]:
        """Return row ranges of bounded bytes: one range if the columns' memory is within the bound.

        Columns outside the projection are not accessed, as that would build them.
        """
        spans = [getattr(rows, name) for name in self._spans]
        if all(isinstance(each, BytesColumn) and each.data.nbytes <= BATCH_BYTES for each in spans):
            return [(0, len(rows))]
        return row_ranges(rows, BATCH_BYTES)

    def _batch(self, records: PartitionRecords) -> pa.RecordBatch:
        decoded: dict[str, DecodedColumn] = {}
        for name, deserializer in self._deserializers.items():
            records = self._decode(records, name, deserializer, decoded)
        arrays = []
        for number, column in enumerate(self._projection.columns):
            field = self.schema.field(number)
            array = self._array(column.source, records, decoded, field)
            if array.null_count and not column.is_nullable:
                raise _null_error(column.name, array, records)
            arrays.append(array)
        return self._arrow.RecordBatch.from_arrays(arrays, schema=self.schema)

    # --- keys and values --------------------------------------------------------------------------

    def _decode(
        self,
        records: PartitionRecords,
        name: str,
        deserializer: Deserializer,
        decoded: dict[str, DecodedColumn],
    ) -> PartitionRecords:
        """Add the decoded keys or values to ``decoded``; return the records that are left."""
        raw = records.keys if name == "key" else records.values
        assert isinstance(raw, BytesColumn)
        mode = self._projection.mode
        made = deserializer.deserialize_column(raw, None, stop_at_first=mode == "FAILFAST")
        decoded[name] = made
        if made.first_bad < 0:
            return records
        if mode == "FAILFAST":
            raise _malformed(name, deserializer, records, raw, made.first_bad)
        assert made.is_bad is not None
        self.bad_records += int(np.count_nonzero(made.is_bad))
        if mode != "DROPMALFORMED":
            return records
        kept = np.flatnonzero(~made.is_bad)
        for each, column in decoded.items():
            values: Any = column.values
            values = values[kept] if isinstance(values, np.ndarray) else values.select(kept)
            decoded[each] = DecodedColumn(values)
        return records[kept]

    # --- columns ----------------------------------------------------------------------------------

    def _array(
        self,
        source: str,
        records: PartitionRecords,
        decoded: Mapping[str, DecodedColumn],
        field: pa.Field,
    ) -> pa.Array:
        if source in self._constants:
            return self._constant(source, self._constants[source], len(records), field.type)
        if source == "offset":
            return self._fixed(field.type, records.offsets)
        if source == "timestamp":
            return self._fixed(field.type, _microseconds(records))
        if source == "timestamptype":
            kinds = records.part.rows.timestamp_types
            if isinstance(kinds, int):
                return self._constant(source, kinds, len(records), field.type)
            return self._fixed(field.type, kinds.astype(np.int32))
        if source == "headers":
            return self._headers(records, field)
        if source == "corrupt":
            return self._corrupt(records, decoded.get("value"), field)
        if source in decoded:
            column = decoded[source].values
        else:
            column = records.keys if source == "key" else records.values
        return retyped(self._arrow.array(CapsulePair(values_column("", column))), field)

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

    def _corrupt(
        self, records: PartitionRecords, decoded: DecodedColumn | None, field: pa.Field
    ) -> pa.Array:
        if decoded is None or decoded.is_bad is None:
            return self._arrow.nulls(len(records), field.type)
        raw = records.values
        assert isinstance(raw, BytesColumn)
        lengths = np.where(decoded.is_bad, raw.lengths, np.int32(-1))
        bad = BytesColumn(raw.spans[0], raw.starts, lengths)
        return self._arrow.array(CapsulePair(bad.arrow_column("")))

    def __repr__(self) -> str:
        return f"<ArrowBatches {self._constants['topic']}-{self._constants['partition']}>"


def retyped(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return nested columns with the names and nullability of a field; no data is copied.

    Raises ``KafkaError`` if a value is null where the field is NOT NULL.
    """
    arrow = optional_package("pyarrow", "decoding into Arrow")
    kind = field.type
    if array.type.equals(kind) and not kind.num_fields:
        return array
    if not kind.num_fields:
        raise KafkaError(
            f"column {field.name}: {array.type} in place of {kind}",
            hint="a value of more than 2 GiB cannot enter Spark",
        )
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


def _microseconds(records: PartitionRecords) -> NDArray[np.int64]:
    times = records.timestamps
    low, high = int(times.min(initial=0)), int(times.max(initial=0))
    if high > _MAX_MS or low < -_MAX_MS:
        row = int(np.argmax((times > _MAX_MS) | (times < -_MAX_MS)))
        offset = int(records.offsets[row])
        raise KafkaError(
            f"{records.topic_partition} offset {offset}: timestamp {int(times[row])} ms is beyond "
            "what Spark can hold",
            hint="leave the column timestamp out of the schema",
            topic=records.topic,
            partition=records.partition,
            offset=offset,
        )
    made: NDArray[np.int64] = times * 1000
    return made


def _malformed(
    name: str, deserializer: Deserializer, records: PartitionRecords, raw: BytesColumn, row: int
) -> DeserializationError:
    value = raw[row]
    bad_value = deserializer.explain(value or b"")
    offset = int(records.offsets[row])
    return DeserializationError(
        f"{records.topic_partition} offset {offset}: {name} {bad_value.reason}",
        found=bad_value.found,
        hint='set mode to "PERMISSIVE" or "DROPMALFORMED"',
        topic=records.topic,
        partition=records.partition,
        offset=offset,
        column=name,
        value_bytes=value,
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
