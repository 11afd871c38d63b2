"""The bound: a data source that reads Kafka with one socket and no consumer.

A task fetches a partition's records, decodes them with kfast's compiled code, converts the wanted
columns to Arrow, and returns them to Spark while the broker prepares the next response. It has no
error handling, metadata, groups, other threads or limits: only the parts of ``format("kfast")``
that process the bytes of the records. The difference to the ceiling is the least cost of reading
Kafka on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bench.e2e.drain import Drain, first_address
from bench.spark.ceiling import FETCH_BYTES, partition_ends, struct_array, struct_dtype
from kfast._native.columns import gather, repeat_value
from kfast.columns.bytes import BytesColumn
from kfast.columns.spans import index_array

if TYPE_CHECKING:
    import pyarrow as pa

    from kfast._native.record_index import RecordIndex

FORMAT: Final = "kfast_bare"


class BareSource(DataSource):  # type: ignore[misc]
    """The columns of ``format("kafka")``, from the start of a topic to its end.

    Options: ``kafka.bootstrap.servers`` and ``subscribe``. A ``value`` column that is a struct has
    little-endian fields without padding.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return FORMAT

    def reader(self, schema: Any) -> BareReader:
        """Return the reader."""
        return BareReader(
            schema, self.options["kafka.bootstrap.servers"], self.options["subscribe"]
        )


class BareReader(DataSourceReader):  # type: ignore[misc]
    """Reads one partition per task."""

    def __init__(self, schema: Any, servers: str, topic: str) -> None:
        self._schema = schema
        self._servers = servers
        self._topic = topic

    def partitions(self) -> list[InputPartition]:
        """Return one task per partition: its number, and its number of rows."""
        return [InputPartition(part) for part in partition_ends(self._servers, self._topic).items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the records."""
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - on workers

        number, rows = partition.value
        schema = to_arrow_schema(self._schema, timezone="UTC")
        return read_partition(self._servers, self._topic, number, rows, schema)


def read_partition(
    servers: str, topic: str, partition: int, rows: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition as they arrive."""
    columns = _Columns(schema, topic, partition)
    return map(columns.batch, _decoded(servers, topic, partition, rows))


def _decoded(servers: str, topic: str, partition: int, rows: int) -> Iterator[RecordIndex]:
    drain = Drain(first_address(servers), topic, [partition], FETCH_BYTES)
    drain.send()
    while rows > 0:
        frame = drain.receive()
        chunks = list(drain.decode(frame))
        rows -= sum(map(len, chunks))
        if rows > 0:
            drain.send()
        yield from chunks
        del chunks, frame  # before the next is received: its memory is used again


class _Columns:
    """Converts decoded records of one partition to Arrow."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        import pyarrow as pa  # noqa: PLC0415 - on workers

        self._arrow = pa
        self._schema = schema
        self._repeated = {"topic": topic, "partition": partition, "timestampType": 0}
        self._longest: dict[str, pa.Array] = {}

    def batch(self, chunk: RecordIndex) -> pa.RecordBatch:
        """Return the columns of the schema for some records."""
        arrays = [self._array(field, chunk) for field in self._schema]
        return self._arrow.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: pa.Field, chunk: RecordIndex) -> pa.Array:
        if field.name in self._repeated:
            return self._constant(field, len(chunk))
        if field.name == "offset":
            return self._fixed(field.type, chunk.offsets)
        if field.name == "timestamp":
            return self._fixed(field.type, index_array(chunk.timestamps, np.int64) * 1000)
        if self._arrow.types.is_struct(field.type):
            values = BytesColumn(chunk.data, chunk.value_starts, chunk.value_lengths)
            return struct_array(field.type, values.view(struct_dtype(field.type)))
        return self._binary(chunk, field.name)

    def _constant(self, field: pa.Field, count: int) -> pa.Array:
        made = self._longest.get(field.name)
        if made is None or len(made) < count:
            value = self._repeated[field.name]
            if isinstance(value, str):
                made = self._variable(field.type, count, *repeat_value(value.encode(), count))
            else:
                made = self._fixed(field.type, np.full(count, value, np.int32))
            self._longest[field.name] = made
        return made.slice(0, count)

    def _fixed(self, kind: pa.DataType, data: Any) -> pa.Array:
        buffer = self._arrow.py_buffer(data)
        count = buffer.size * 8 // kind.bit_width
        return self._arrow.Array.from_buffers(kind, count, [None, buffer])

    def _binary(self, chunk: RecordIndex, name: str) -> pa.Array:
        if name == "key":
            offsets, data, _, _ = gather(chunk.data, chunk.key_starts, chunk.key_lengths)
        else:
            offsets, data, _, _ = gather(chunk.data, chunk.value_starts, chunk.value_lengths)
        return self._variable(self._arrow.binary(), len(chunk), offsets, data)

    def _variable(self, kind: pa.DataType, count: int, offsets: Any, data: Any) -> pa.Array:
        buffers = [None, self._arrow.py_buffer(offsets), self._arrow.py_buffer(data)]
        return self._arrow.Array.from_buffers(kind, count, buffers)
