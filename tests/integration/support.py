"""What tests of this folder share: waiting for conditions, reading, other clients as oracles."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, TypeVar

import confluent_kafka
from confluent_kafka.admin import AdminClient

import kfast
from kfast import KafkaConsumer, PartitionRecords, TopicPartition

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of importlib.resources
    import kafka as kafka_python

KafkaPythonConsumer = kafka_python.KafkaConsumer
KafkaPythonPartition = kafka_python.TopicPartition

T = TypeVar("T")

Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Offset, timestamp, timestamp type, key, value, headers."""

QUICK_JAVA: Final = ("-XX:TieredStopAtLevel=1",)
"""Options of a Java that lives for some minutes: compiling it well costs more than it brings."""
QUICK_JAVA_ENVIRONMENT: Final = {"JDK_JAVA_OPTIONS": " ".join(QUICK_JAVA)}
"""The same for programs that start brokers of their own."""

CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUP_COMMAND: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
"""Kafka's own tools, by their main classes."""

PATIENCE_SECONDS: Final = 60.0
EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
_LOOK_SECONDS: Final = 0.02
_numbers = itertools.count(1)


def until(condition: Callable[[], T], what: str, timeout_seconds: float = PATIENCE_SECONDS) -> T:
    """Wait for a condition to hold and return its value."""
    deadline = time.monotonic() + timeout_seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_seconds:g} s: {what}"
        time.sleep(_LOOK_SECONDS)
    return found


@contextmanager
def consuming(servers: str, *topics: str, **configs: Any) -> Iterator[KafkaConsumer]:
    """Give a consumer that reads from the earliest offset and is closed at the end."""
    settings = {"auto_offset_reset": "earliest", "bootstrap_servers": servers, **configs}
    with KafkaConsumer(*topics, **settings) as consumer:
        yield consumer


@contextmanager
def assigned(
    servers: str, partitions: Iterable[TopicPartition], **configs: Any
) -> Iterator[KafkaConsumer]:
    """Give a consumer of these partitions."""
    with consuming(servers, **configs) as consumer:
        consumer.assign(partitions)
        yield consumer


class Reading:
    """Polls a consumer and keeps everything, checking what must hold for every batch.

    Parameters
    ----------
    consumer : KafkaConsumer
        What to poll.
    """

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.consumer = consumer
        self.batches: dict[TopicPartition, list[PartitionRecords]] = {}
        self._next: dict[TopicPartition, int] = {}

    def poll(self, timeout_ms: int = 200, max_records: int | None = None) -> int:
        """Poll once; offsets must rise within each partition (F-11)."""
        records = self.consumer.poll(timeout_ms, max_records)
        for tp, batch in records.items():
            assert len(batch)
            offsets = batch.offsets
            assert int(offsets[0]) >= self._next.get(tp, 0)
            assert (offsets[1:] > offsets[:-1]).all()
            assert batch.next_offset > int(offsets[-1])
            self._next[tp] = batch.next_offset
            self.batches.setdefault(tp, []).append(batch)
        return records.count()

    def forget(self) -> None:
        """Begin anew: the offsets may go back."""
        self.batches.clear()
        self._next.clear()

    def until(
        self,
        ends: Mapping[TopicPartition, int],
        timeout_seconds: float = PATIENCE_SECONDS,
        max_records: int | None = None,
    ) -> Reading:
        """Poll until the positions reach the ends."""
        deadline = time.monotonic() + timeout_seconds
        while not self.has_reached(ends):
            assert time.monotonic() < deadline, f"{self._next} after {timeout_seconds} s"
            self.poll(max_records=max_records)
        return self

    def until_count(self, count: int, timeout_seconds: float = PATIENCE_SECONDS) -> Reading:
        """Poll until there are so many records."""
        deadline = time.monotonic() + timeout_seconds
        while self.count < count:
            assert time.monotonic() < deadline, f"{self.count} of {count} records"
            self.poll()
        return self

    def has_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether all positions are at the ends."""
        known = self.consumer.assignment()
        return all(tp in known and self.consumer.position(tp) >= end for tp, end in ends.items())

    @property
    def count(self) -> int:
        """Records so far."""
        return sum(len(batch) for batches in self.batches.values() for batch in batches)

    def offsets(self, tp: TopicPartition) -> list[int]:
        """Return the offsets read of a partition."""
        return [offset for batch in self.batches.get(tp, ()) for offset in batch.offsets.tolist()]

    def values(self, tp: TopicPartition) -> list[Any]:
        """Return the values read of a partition."""
        return [value for batch in self.batches.get(tp, ()) for value in batch.values]

    def rows(self, tp: TopicPartition) -> list[Row]:
        """Return the records read of a partition."""
        return rows_of(self.batches.get(tp, ()))


def rows_of(batches: Iterable[PartitionRecords]) -> list[Row]:
    """Return records column by column, as they come out of kfast."""
    return [
        row
        for batch in batches
        for row in zip(
            batch.offsets.tolist(),
            batch.timestamps.tolist(),
            batch.timestamp_types.tolist(),
            batch.keys,
            batch.values,
            [list(headers) for headers in batch.headers],
            strict=True,
        )
    ]


def kfast_rows(servers: str, tp: TopicPartition, **configs: Any) -> list[Row]:
    """Read a partition with ``scan_topic``."""
    return rows_of(kfast.scan_topic(tp, bootstrap_servers=servers, **configs))


def kafka_python_rows(
    servers: str,
    tp: TopicPartition,
    isolation_level: str = "read_uncommitted",
    configs: Mapping[str, Any] = EMPTY,
) -> list[Row]:
    """Read a partition with kafka-python."""
    consumer = KafkaPythonConsumer(
        **configs,
        bootstrap_servers=servers.split(","),
        isolation_level=isolation_level,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    rows: list[Row] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        theirs = KafkaPythonPartition(*tp)
        consumer.assign([theirs])
        end = consumer.end_offsets([theirs])[theirs]
        while consumer.position(theirs) < end:
            assert time.monotonic() < deadline, f"kafka-python at {consumer.position(theirs)}"
            for records in consumer.poll(timeout_ms=500).values():
                rows += [
                    (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, list(r.headers))
                    for r in records
                ]
    finally:
        consumer.close()
    return rows


def confluent_rows(
    servers: str,
    tp: TopicPartition,
    isolation_level: str = "read_uncommitted",
    configs: Mapping[str, Any] = EMPTY,
) -> list[Row]:
    """Read a partition with confluent-kafka."""
    consumer = confluent_kafka.Consumer(
        {
            **configs,
            "bootstrap.servers": servers,
            "group.id": "oracle",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    rows: list[Row] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        consumer.assign([confluent_kafka.TopicPartition(*tp, confluent_kafka.OFFSET_BEGINNING)])
        while True:
            assert time.monotonic() < deadline, f"confluent-kafka after {len(rows)} rows"
            for message in consumer.consume(1000, 0.2):
                if message.error() is not None:
                    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                    return rows
                kind, timestamp = message.timestamp()
                rows.append(
                    (
                        message.offset(),
                        timestamp,
                        kind - 1,
                        message.key(),
                        message.value(),
                        [(str(key), value) for key, value in message.headers() or []],
                    )
                )
    finally:
        consumer.close()


def admin(servers: str) -> AdminClient:
    """Return an administrator of the cluster."""
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def delete_records(servers: str, tp: TopicPartition, before: int) -> None:
    """Remove the records of a partition before an offset, as retention would."""
    asked = [confluent_kafka.TopicPartition(*tp, before)]
    client = admin(servers)
    for future in client.delete_records(asked).values():
        future.result(PATIENCE_SECONDS)


def leader_of(servers: str, tp: TopicPartition) -> int:
    """Return who leads a partition, -1 for nobody."""
    found = admin(servers).list_topics(tp.topic, timeout=PATIENCE_SECONDS)
    return int(found.topics[tp.topic].partitions[tp.partition].leader)


def unique(prefix: str) -> str:
    """Return a name nothing else has."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


def tps(topic: str, partitions: int) -> list[TopicPartition]:
    """Return the first partitions of a topic."""
    return [TopicPartition(topic, number) for number in range(partitions)]


def program(text: str, *args: object, **more: Any) -> subprocess.Popen[str]:
    """Start a Python program with kfast at hand; its arguments are ``sys.argv[1:]``."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text), *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more},
    )


def run_program(
    text: str, *args: object, timeout_seconds: float = 90, status: int = 0, **more: Any
) -> tuple[str, str]:
    """Run a Python program to its end and return its output and its errors."""
    with program(text, *args, **more) as process:
        try:
            output, errors = process.communicate(timeout=timeout_seconds)
        finally:
            process.kill()
    assert process.returncode == status, f"exit status {process.returncode}:\n{errors}"
    return output, errors


def threads_of(client_id: str) -> Collection[str]:
    """Return the names of a consumer's threads in this process."""
    return [t.name for t in threading.enumerate() if client_id in t.name]
