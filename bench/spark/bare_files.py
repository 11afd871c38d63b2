"""The bound of an ingest: reads a topic and writes Parquet files with neither Spark nor a consumer.

There is one process per concurrent task of Spark. Each reads as ``bench.spark.bare`` does and
writes with the ingest's own writer, in row groups of the same size. Files are neither flushed nor
published, and the processes are started before the clock. The difference to the ingest is the cost
of Spark, the consumer, and exactly-once.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from bench.spark.bare import read_partition
from bench.spark.ceiling import partition_ends
from kfast.table.file_formats import GROUP_BYTES, GROUP_ROWS, coded_topics, parquet_writer

PROCESSES: Final = 2

_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
_TOPIC: Final = pa.field("topic", pa.dictionary(pa.int8(), pa.string()))


def file_writer(servers: str, topic: str, folder: Path, compression: str) -> Callable[[], int]:
    """Return the function that writes a topic to files and returns their number of rows."""
    folder.mkdir(parents=True)
    ends = partition_ends(servers, topic)
    pool = ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"))
    for started in [pool.submit(_start) for _ in range(PROCESSES)]:
        started.result()

    def run() -> int:
        with pool:
            made = [
                pool.submit(_write, servers, topic, number, rows, folder, compression)
                for number, rows in ends.items()
            ]
            return sum(each.result() for each in made)

    return run


def _start() -> None:
    """Import what this module imports."""


def _write(
    servers: str, topic: str, partition: int, rows: int, folder: Path, compression: str
) -> int:
    """Write one partition; return its number of rows."""
    written = 0
    waiting: list[pa.RecordBatch] = []
    schema = _SCHEMA.append(_TOPIC)
    sources = {name.lower(): name for name in schema.names}
    path = folder / f"{topic}-{partition}.parquet"
    with parquet_writer(path, schema, sources, compression) as writer:
        for batch in read_partition(servers, topic, partition, rows, _SCHEMA):
            waiting.append(batch)
            if _is_group(waiting):
                written += _write_group(writer, topic, waiting)
                waiting = []
        if waiting:
            written += _write_group(writer, topic, waiting)
    return written


def _is_group(waiting: list[pa.RecordBatch]) -> bool:
    rows, size = sum(each.num_rows for each in waiting), sum(each.nbytes for each in waiting)
    return bool(rows >= GROUP_ROWS or size >= GROUP_BYTES)


def _write_group(writer: Any, topic: str, waiting: list[pa.RecordBatch]) -> int:
    table = pa.Table.from_batches(waiting)
    table = table.append_column(_TOPIC, coded_topics(topic, table.num_rows))
    writer.write_table(table, row_group_size=table.num_rows)
    return int(table.num_rows)
