"""JSON into Parquet as it is done without kfast: ``python -m bench.cli.parquet_loop SERVERS TOPIC
RECORDS FILE``.

confluent-kafka reads, orjson makes a dict of each value, and pyarrow makes columns of the dicts and
writes them, in row groups of the size that ``kfast ingest`` has.
"""

from __future__ import annotations

import sys
from typing import Any

import orjson
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from pyarrow import parquet

_AT_ONCE = 10_000
_GROUP_ROWS = 1 << 19
_SCHEMA = pa.schema(
    {
        "partition": pa.int32(),
        "offset": pa.int64(),
        "value": pa.struct(
            {
                "id": pa.int64(),
                "ts": pa.timestamp("us", "UTC"),
                "user": pa.string(),
                "price": pa.float64(),
                "qty": pa.int32(),
                "side": pa.string(),
            }
        ),
    }
)


def main(servers: str, topic: str, records: str, target: str) -> None:
    """Read that many records into a file."""
    left = int(records)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "loop"})
    known = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in known])
    with parquet.ParquetWriter(target, _SCHEMA, compression="zstd") as writer:
        batches: list[pa.RecordBatch] = []
        while left > 0:
            rows: list[dict[str, Any]] = []
            for message in consumer.consume(_AT_ONCE, timeout=1.0):
                value = orjson.loads(message.value())
                value["ts"] *= 1000
                rows.append(
                    {
                        "partition": message.partition(),
                        "offset": message.offset(),
                        "value": value,
                    }
                )
            left -= len(rows)
            batches.append(pa.RecordBatch.from_pylist(rows, schema=_SCHEMA))
            if left <= 0 or sum(batch.num_rows for batch in batches) >= _GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(batches))
                batches = []
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
