"""Reading a whole topic into other libraries."""

# ruff: noqa: T201

from __future__ import annotations

from typing import assert_type

import kfast
from kfast import ConsumerRecords, Int64, PartitionRecords, TopicPartition


def whole() -> ConsumerRecords:
    records = kfast.read_topic(
        "orders",
        start="earliest",
        end="latest",
        columns=["key", "value"],
        bootstrap_servers="localhost:9092",
        key_deserializer=Int64(),
    )
    assert_type(records, ConsumerRecords)
    print(records.to_arrow(), records.to_numpy().dtype, records.to_pandas(), records.to_polars())
    return records


def streaming() -> int:
    total = 0
    start = {TopicPartition("orders", 0): 5}
    for batch in kfast.scan_topic([*start], start=start, bootstrap_servers="localhost:9092"):
        assert_type(batch, PartitionRecords)
        print(batch.to_arrow(), batch.to_numpy().dtype)
        total += batch.nbytes
    return total


def version() -> str:
    return kfast.__version__
