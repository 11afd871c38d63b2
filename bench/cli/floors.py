"""Writes records that are in memory with pyarrow: ``python -m bench.cli.floors FORM FILE RECORDS``.

What a command that reads the same records and writes the same file is compared with. Prints the
seconds that writing took, without making the table.
"""

from __future__ import annotations

import sys
import time

import pyarrow as pa
from pyarrow import csv, parquet

from bench.data import TopicSpec


def table_of(records: int) -> pa.Table:
    """Return the topic of the benchmark as a table of five columns."""
    spec = TopicSpec(records=records)
    values, keys, partitions, times = [], [], [], []
    for block in spec.blocks():
        for value, key, partition, time_ms, _ in block:
            values.append(value)
            keys.append(key)
            partitions.append(partition)
            times.append(time_ms)
    return pa.table(
        {
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(range(len(values)), pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("ms", tz="UTC")),
            "key": pa.array([(key or b"").hex() for key in keys], pa.string()),
            "value": pa.array([value.decode() for value in values], pa.string()),
        }
    )


def main(form: str, target: str, records: str) -> None:
    """Write a file and print the seconds."""
    table = table_of(int(records))
    started = time.perf_counter()
    if form == "csv":
        csv.write_csv(table, target)
    else:
        parquet.write_table(table, target, compression="zstd")
    print(time.perf_counter() - started)


if __name__ == "__main__":
    main(*sys.argv[1:])
