"""kfast: an Apache Kafka consumer that delivers columns.

>>> import kfast
>>> with kfast.KafkaConsumer("orders", bootstrap_servers="localhost:9092") as consumer:
...     for batch in consumer.batches():
...         batch.offsets, batch.timestamps, batch.values

Everything public is here; the modules below are an implementation detail, but for
``kfast.errors`` and ``kfast.transactions``.
"""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, version

from kfast import errors, transactions
from kfast._consumer_health import ConsumerHealth
from kfast._consumer_listener import ConsumerRebalanceListener
from kfast.bulk import read_topic, scan_topic
from kfast.config import ConsumerConfig
from kfast.consumer.assignors import (
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
from kfast.errors import KafkaError
from kfast.kafka_consumer import KafkaConsumer
from kfast.local_kafka import LocalKafka
from kfast.records import (
    BytesColumn,
    ConsumerRecord,
    ConsumerRecords,
    HeadersColumn,
    PartitionRecords,
    StringColumn,
    UuidColumn,
)
from kfast.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    SubscriptionPattern,
    TopicPartition,
)

try:
    __version__ = version("kfast")
except PackageNotFoundError:  # imported from a source tree that was never installed
    __version__ = "0.0.0"

logging.getLogger("kfast").addHandler(logging.NullHandler())

__all__ = [
    "BytesColumn",
    "ConsumerConfig",
    "ConsumerGroupMetadata",
    "ConsumerHealth",
    "ConsumerPartitionAssignor",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerRecords",
    "CooperativeStickyAssignor",
    "Float32",
    "Float64",
    "GroupMember",
    "HeadersColumn",
    "Int32",
    "Int64",
    "KafkaConsumer",
    "KafkaError",
    "LocalKafka",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionRecords",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "StringColumn",
    "Struct",
    "SubscriptionPattern",
    "TopicPartition",
    "Utf8",
    "Uuid",
    "UuidColumn",
    "__version__",
    "errors",
    "read_topic",
    "scan_topic",
    "transactions",
]
