"""kfast: an Apache Kafka consumer that delivers columns.

>>> import kfast
>>> with kfast.KafkaConsumer("orders", bootstrap_servers="localhost:9092") as consumer:
...     for batch in consumer.batches(timeout_ms=100):
...         print(batch.offsets, batch.timestamps, batch.values)

Everything public is here; the modules below are an implementation detail, but for
``kfast.errors``, ``kfast.structs`` and ``kfast.transactions``.

A name is imported when it is first used (PEP 562): a process that only needs a part of kfast, as
those that Spark starts do, does not pay for the rest.
"""

from __future__ import annotations

import atexit
import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfast import errors, structs, transactions
    from kfast._native.buffers import trim_pool
    from kfast.application.health import ConsumerHealth
    from kfast.application.rebalance_listener import ConsumerRebalanceListener
    from kfast.bulk import read_topic, scan_topic
    from kfast.columns.bytes import BytesColumn
    from kfast.columns.headers import HeadersColumn
    from kfast.columns.record_errors import RecordError, RecordErrors
    from kfast.columns.text import StringColumn
    from kfast.columns.typed import (
        DecimalColumn,
        DictionaryColumn,
        ListColumn,
        MapColumn,
        StructColumn,
    )
    from kfast.columns.uuid import UuidColumn
    from kfast.config import ConsumerConfig
    from kfast.consumer.group.assignors import (
        ConsumerPartitionAssignor,
        CooperativeStickyAssignor,
        GroupMember,
        RangeAssignor,
        RebalanceProtocol,
        RoundRobinAssignor,
        StickyAssignor,
    )
    from kfast.deserializers import (
        Float32,
        Float64,
        Int32,
        Int64,
        Struct,
        Utf8,
        Uuid,
    )
    from kfast.deserializers.avro import Avro
    from kfast.deserializers.debezium import Debezium
    from kfast.deserializers.json import Json
    from kfast.deserializers.protobuf import Protobuf
    from kfast.errors import KafkaError
    from kfast.kafka_consumer import KafkaConsumer
    from kfast.local.acl import Acl
    from kfast.local.local_kafka import LocalKafka
    from kfast.local.local_registry import LocalRegistry
    from kfast.records.consumer_record import ConsumerRecord
    from kfast.records.consumer_records import ConsumerRecords
    from kfast.records.partition_records import PartitionRecords
    from kfast.registry.registered_schema import RegisteredSchema
    from kfast.registry.schema_registry import SchemaRegistry
    from kfast.schemas.field import Field
    from kfast.schemas.schema import Schema
    from kfast.settings.sources import load_config
    from kfast.settings.types import ConsumerSettings
    from kfast.table.compaction import CompactionSummary, compact_table, table_files
    from kfast.table.ingest import IngestSummary, ingest
    from kfast.topic_scan import TopicScan
    from kfast.types import (
        ConsumerGroupMetadata,
        OAuthToken,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        SubscriptionPattern,
        TopicPartition,
    )

    __version__: str

if type(__spec__.loader).__name__ == "zipimporter":  # where --py-files of Spark puts it
    raise ImportError(
        f"kfast cannot be imported from a zip: {__file__}\n"
        "cause: it has compiled modules, which Python does not import from a zip\n"
        "try: install it on all nodes, or pack an environment for spark.archives (docs/cluster.md)"
    )

_HOMES = {
    "Acl": "kfast.local.acl",
    "Avro": "kfast.deserializers.avro",
    "BytesColumn": "kfast.records",
    "CompactionSummary": "kfast.table.compaction",
    "ConsumerConfig": "kfast.config",
    "ConsumerGroupMetadata": "kfast.types",
    "ConsumerHealth": "kfast.application.health",
    "ConsumerPartitionAssignor": "kfast.consumer.group.assignors",
    "ConsumerRebalanceListener": "kfast.application.rebalance_listener",
    "ConsumerRecord": "kfast.records",
    "ConsumerRecords": "kfast.records",
    "ConsumerSettings": "kfast.settings.types",
    "CooperativeStickyAssignor": "kfast.consumer.group.assignors",
    "Debezium": "kfast.deserializers.debezium",
    "Field": "kfast.schemas.field",
    "Float32": "kfast.deserializers",
    "Float64": "kfast.deserializers",
    "GroupMember": "kfast.consumer.group.assignors",
    "HeadersColumn": "kfast.records",
    "IngestSummary": "kfast.table.ingest",
    "Int32": "kfast.deserializers",
    "Int64": "kfast.deserializers",
    "Json": "kfast.deserializers.json",
    "KafkaConsumer": "kfast.kafka_consumer",
    "KafkaError": "kfast.errors",
    "LocalKafka": "kfast.local.local_kafka",
    "LocalRegistry": "kfast.local.local_registry",
    "OAuthToken": "kfast.types",
    "OffsetAndMetadata": "kfast.types",
    "OffsetAndTimestamp": "kfast.types",
    "PartitionRecords": "kfast.records",
    "Protobuf": "kfast.deserializers.protobuf",
    "RangeAssignor": "kfast.consumer.group.assignors",
    "RebalanceProtocol": "kfast.consumer.group.assignors",
    "RegisteredSchema": "kfast.registry.registered_schema",
    "RoundRobinAssignor": "kfast.consumer.group.assignors",
    "Schema": "kfast.schemas.schema",
    "SchemaRegistry": "kfast.registry.schema_registry",
    "StickyAssignor": "kfast.consumer.group.assignors",
    "DecimalColumn": "kfast.records",
    "DictionaryColumn": "kfast.records",
    "ListColumn": "kfast.records",
    "MapColumn": "kfast.records",
    "StructColumn": "kfast.records",
    "RecordError": "kfast.records",
    "RecordErrors": "kfast.records",
    "StringColumn": "kfast.records",
    "Struct": "kfast.deserializers",
    "SubscriptionPattern": "kfast.types",
    "TopicPartition": "kfast.types",
    "TopicScan": "kfast.topic_scan",
    "Utf8": "kfast.deserializers",
    "Uuid": "kfast.deserializers",
    "UuidColumn": "kfast.records",
    "compact_table": "kfast.table.compaction",
    "ingest": "kfast.table.ingest",
    "load_config": "kfast.settings.sources",
    "read_topic": "kfast.bulk",
    "scan_topic": "kfast.bulk",
    "table_files": "kfast.table.compaction",
    "trim_pool": "kfast._native.buffers",
}
"""The module of each name, as above; a test compares the two."""

_MODULES = ("errors", "structs", "transactions")

__all__ = [
    "Acl",
    "Avro",
    "BytesColumn",
    "CompactionSummary",
    "ConsumerConfig",
    "ConsumerGroupMetadata",
    "ConsumerHealth",
    "ConsumerPartitionAssignor",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerRecords",
    "ConsumerSettings",
    "CooperativeStickyAssignor",
    "Debezium",
    "Field",
    "Float32",
    "Float64",
    "GroupMember",
    "HeadersColumn",
    "IngestSummary",
    "Int32",
    "Int64",
    "Json",
    "KafkaConsumer",
    "KafkaError",
    "LocalKafka",
    "LocalRegistry",
    "OAuthToken",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionRecords",
    "Protobuf",
    "RangeAssignor",
    "RebalanceProtocol",
    "RegisteredSchema",
    "RoundRobinAssignor",
    "Schema",
    "SchemaRegistry",
    "StickyAssignor",
    "DecimalColumn",
    "DictionaryColumn",
    "ListColumn",
    "MapColumn",
    "StructColumn",
    "RecordError",
    "RecordErrors",
    "StringColumn",
    "Struct",
    "SubscriptionPattern",
    "TopicPartition",
    "TopicScan",
    "Utf8",
    "Uuid",
    "UuidColumn",
    "__version__",
    "compact_table",
    "errors",
    "ingest",
    "load_config",
    "read_topic",
    "scan_topic",
    "structs",
    "table_files",
    "transactions",
    "trim_pool",
]


def _end_consumers() -> None:
    closing = sys.modules.get("kfast.application.closing")
    if closing is not None:
        closing.end_all()


# Registered with the import, so that it is called behind what a program registers later: a function
# of the program's that closes a consumer finds its threads running.
atexit.register(_end_consumers)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # a type checker would take every misspelt name for one of these

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            value = getattr(importlib.import_module(_HOMES[name]), name)
        elif name in _MODULES:
            value = importlib.import_module(f"{__name__}.{name}")
        elif name == "__version__":
            value = importlib.import_module("kfast._base.version").installed_version() or "0.0.0"
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value  # found without this function from now on
        return value
