"""The ceiling: a Python data source that yields prepared Arrow batches.

Its rate is the most that any Python source can reach here with the same columns, types and number
of tasks: no network, no decoding, only Spark's conversion from Arrow to rows. Runs on Spark's
workers; a batch is made once per worker and schema, by the first task that needs it.

It can receive the topic as well, as the drain of ``bench.e2e`` does: nothing is decoded or checked,
and the rows are still the prepared ones. Broker and workers share the machine, so this, and not the
ceiling without it, is what a source that reads Kafka could reach here.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bench.data import TopicSpec, pooled_records, text_values
from bench.e2e.drain import Drain, first_address
from kfast.demo.data import START_MS, sensor_readings

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

FORMAT: Final = "kfast_ceiling"
BATCH_ROWS: Final = 65_536
FETCH_BYTES: Final = 3 << 20
"""``max.partition.fetch.bytes`` of a task that receives: that of a task of kfast's."""


class CeilingSource(DataSource):  # type: ignore[misc]
    """Batches of any of the columns of ``format("kafka")``.

    Options: ``kind`` and ``valueBytes`` of the values, as in ``TopicSpec``; ``records`` and
    ``partitions``, the number of rows and tasks; ``batchRows``, the rows of a batch. A ``value``
    column that is a struct has the fields of sensor readings. ``receiveFrom`` is the broker, and
    ``subscribe`` the topic, that tasks receive from while they yield as many rows.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return FORMAT

    def reader(self, schema: Any) -> CeilingReader:
        """Return the reader."""
        spec = TopicSpec(
            self.options["kind"],
            int(self.options["valueBytes"]),
            records=int(self.options["records"]),
            partitions=int(self.options["partitions"]),
        )
        return CeilingReader(
            schema,
            spec,
            int(self.options.get("batchRows", BATCH_ROWS)),
            self.options.get("receiveFrom", ""),
            self.options.get("subscribe", ""),
        )


class CeilingReader(DataSourceReader):  # type: ignore[misc]
    """Yields one batch repeatedly; receives ``topic`` from ``servers`` meanwhile unless empty."""

    def __init__(
        self, schema: Any, spec: TopicSpec, batch_rows: int, servers: str, topic: str
    ) -> None:
        self._schema = schema
        self._spec = spec
        self._batch_rows = batch_rows
        self._servers = servers
        self._topic = topic

    def partitions(self) -> list[InputPartition]:
        """Return one task per partition: its number, and its number of rows."""
        if self._servers:
            ends = partition_ends(self._servers, self._topic)
            return [InputPartition(part) for part in ends.items()]
        each, more = divmod(self._spec.records, self._spec.partitions)
        return [
            InputPartition((number, each + (number < more)))
            for number in range(self._spec.partitions)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        whole = _batch(self._schema.json(), self._spec.kind, self._spec.value_bytes)
        batch = whole.slice(0, self._batch_rows)
        number, rows = partition.value
        for count in self._received(number, rows) if self._servers else [rows]:
            left = count
            while left > 0:
                yield batch if left >= self._batch_rows else batch.slice(0, left)
                left -= self._batch_rows

    def _received(self, partition: int, rows: int) -> Iterator[int]:
        """Receive a partition; yield the number of records of each response.

        The next Fetch is in flight while Spark processes the rows.
        """
        drain = Drain(first_address(self._servers), self._topic, [partition], FETCH_BYTES)
        drain.send()
        while rows:
            count = min(drain.walk(drain.receive()), rows)
            rows -= count
            if rows:
                drain.send()
            yield count


def partition_ends(servers: str, topic: str) -> dict[int, int]:
    """Return the number of records of each partition of a topic; on the driver."""
    from kfast import KafkaConsumer, TopicPartition  # noqa: PLC0415 - on the driver

    with KafkaConsumer(bootstrap_servers=servers) as consumer:
        numbers = sorted(consumer.partitions_for_topic(topic) or ())
        found = consumer.end_offsets([TopicPartition(topic, number) for number in numbers])
    return {tp.partition: end for tp, end in found.items()}


@functools.cache
def _batch(schema_json: str, kind: str, value_bytes: int) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - on workers
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    struct: Any = StructType
    schema = to_arrow_schema(struct.fromJson(json.loads(schema_json)), timezone="UTC")
    blocks = (
        sensor_readings(BATCH_ROWS, 1)
        if kind == "sensor"
        else pooled_records(text_values(value_bytes), BATCH_ROWS, 1)
    )
    records = [record for block in blocks for record in block]
    values = [record[0] for record in records]
    numbers = np.arange(BATCH_ROWS)
    made: dict[str, Callable[[], Any]] = {
        "key": lambda: [record[1] for record in records],
        "value": lambda: values,
        "topic": lambda: ["a-topic-of-this-benchmark"] * BATCH_ROWS,
        "partition": lambda: np.zeros(BATCH_ROWS, np.int32),
        "offset": lambda: numbers,
        "timestamp": lambda: (START_MS + numbers) * 1000,
        "timestampType": lambda: np.zeros(BATCH_ROWS, np.int32),
    }
    arrays = []
    for field in schema:
        if pa.types.is_struct(field.type):
            rows = np.frombuffer(b"".join(values), struct_dtype(field.type))
            arrays.append(struct_array(field.type, rows))
        else:
            arrays.append(pa.array(made[field.name](), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def struct_dtype(kind: Any) -> np.dtype[Any]:
    """Return the NumPy layout, little-endian without padding, of a struct in Arrow."""
    return np.dtype([(field.name, field.type.to_pandas_dtype()) for field in kind])


def struct_array(kind: Any, rows: NDArray[Any]) -> pa.StructArray:
    """Return rows of that layout as Arrow columns."""
    import pyarrow as pa  # noqa: PLC0415 - on workers

    children = [pa.array(np.ascontiguousarray(rows[field.name]), field.type) for field in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind))
