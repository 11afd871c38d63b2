"""The ceiling: a Python data source that yields Arrow batches made before it was asked.

What it does per second is the most that any Python source can do here with the same columns, types
and number of tasks: no network, no decoding, only Spark's way from Arrow to rows. Runs on Spark's
workers; a batch is made once per worker and schema, by the first task that needs it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bench.data import TopicSpec, text_records
from kfast._demo_data import START_MS, sensor_readings

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "kfast_ceiling"
BATCH_ROWS: Final = 65_536


class CeilingSource(DataSource):  # type: ignore[misc]
    """Batches of any of Kafka's columns.

    Options: ``kind`` and ``valueBytes`` say what values are, as in ``TopicSpec``; ``records`` and
    ``partitions`` how many rows and tasks there are, ``batchRows`` how many rows a batch has. A
    ``value`` column that is a struct has the fields of sensor readings.
    """

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` is called with."""
        return FORMAT

    def reader(self, schema: Any) -> CeilingReader:
        """Return the reader."""
        spec = TopicSpec(
            self.options["kind"],
            int(self.options["valueBytes"]),
            records=int(self.options["records"]),
            partitions=int(self.options["partitions"]),
        )
        return CeilingReader(schema, spec, int(self.options.get("batchRows", BATCH_ROWS)))


class CeilingReader(DataSourceReader):  # type: ignore[misc]
    """Yields one batch again and again.

    Parameters
    ----------
    schema : StructType
        The columns.
    spec : TopicSpec
        Which topic's reading has this ceiling.
    batch_rows : int
        Rows of each batch.
    """

    def __init__(self, schema: Any, spec: TopicSpec, batch_rows: int) -> None:
        self._schema = schema
        self._spec = spec
        self._batch_rows = batch_rows

    def partitions(self) -> list[InputPartition]:
        """Return one task per partition, with its number of rows."""
        each, more = divmod(self._spec.records, self._spec.partitions)
        return [InputPartition(each + (number < more)) for number in range(self._spec.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield so many rows."""
        whole = _batch(self._schema.json(), self._spec.kind, self._spec.value_bytes)
        batch = whole.slice(0, self._batch_rows)
        left = partition.value
        while left > 0:
            yield batch if left >= self._batch_rows else batch.slice(0, left)
            left -= self._batch_rows


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
        else text_records(BATCH_ROWS, value_bytes, 1)
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
            arrays.append(_structs(field.type, b"".join(values)))
        else:
            arrays.append(pa.array(made[field.name](), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _structs(kind: Any, data: bytes) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - on workers

    dtype = np.dtype([(field.name, field.type.to_pandas_dtype()) for field in kind])
    rows = np.frombuffer(data, dtype)
    children = [pa.array(np.ascontiguousarray(rows[field.name]), field.type) for field in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind))
