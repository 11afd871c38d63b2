"""Settings with types, in keywords, in a mapping of one's own, and out of a file."""

# ruff: noqa: T201

from __future__ import annotations

from typing import Any, Unpack, assert_type

import pyarrow as pa

import kfast
from kfast import ConsumerSettings, KafkaConsumer, TopicPartition, TopicScan

BASE: ConsumerSettings = {
    "bootstrap_servers": ["h1:9092", "h2:9092"],
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_username": "app",
    "sasl_password": lambda: "secret",
    "ssl_check_hostname": True,
    "group_id": None,
}


def opened(*topics: str, **settings: Unpack[ConsumerSettings]) -> KafkaConsumer:
    merged: ConsumerSettings = {**BASE, **settings}
    return KafkaConsumer(*topics, **merged)


def from_files() -> None:
    with KafkaConsumer("orders", config=kfast.load_config(profile="prod")) as consumer:
        print(consumer.topics())
    print(kfast.ConsumerConfig.from_file("client.properties").group_id)
    with opened("orders", group_id="billing", fetch_min_bytes=1, auto_offset_reset="earliest"):
        pass


def several(untyped: dict[str, Any]) -> pa.Table:
    config = kfast.load_config()
    kfast.read_topic("orders", ["refunds", TopicPartition("returns", 0)], "log-*", config=config)
    with kfast.scan_topic("orders", columns=["value"], **untyped) as scan:
        assert_type(scan, TopicScan)
        for batch in scan:
            assert_type(batch, kfast.PartitionRecords)
        return pa.table(scan)
