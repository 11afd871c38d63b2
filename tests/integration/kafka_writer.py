"""Writes records to a real broker with confluent-kafka: every codec, headers, transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Producer

import kfast.transactions
from kfast import OffsetAndMetadata, TopicPartition
from kfast.types import ConsumerGroupMetadata

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Compression types of Kafka, as ``compression.type`` names them."""

_TIMEOUT_SECONDS: Final = 60


@dataclass(slots=True, frozen=True)
class Message:
    """One record to write; ``partition`` and ``timestamp_ms`` None leave it to the call."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] | None = None
    timestamp_ms: int | None = None
    partition: int | None = None


class KafkaWriter:
    """Writes to one cluster; every call makes producers of its own and waits for the brokers.

    Parameters
    ----------
    bootstrap_servers : str
        The cluster.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def write(
        self,
        topic: str,
        messages: Iterable[Message | bytes | None],
        *,
        partition: int = 0,
        codec: str = "none",
        batch_records: int = 10_000,
        **configs: object,
    ) -> list[int]:
        """Write messages and return the offset each one got.

        Parameters
        ----------
        topic : str
            Where to.
        messages : iterable of Message, bytes or None
            Bytes or None stand for a message with only a value.
        partition : int
            For messages that name none.
        codec : str
            One of ``CODECS``.
        batch_records : int
            Most records in one batch; 1 makes a batch of each.
        **configs : object
            Further producer settings, underscores for dots.
        """
        with self._producer(codec, batch_records, configs) as producer:
            return _write(producer, topic, messages, partition)

    @contextmanager
    def transaction(
        self,
        transactional_id: str,
        *,
        commit: bool = True,
        codec: str = "none",
        batch_records: int = 10_000,
        **configs: object,
    ) -> Iterator[Transaction]:
        """Open a transaction; it is committed, or aborted, at the end of the ``with`` statement."""
        configs = {"transactional_id": transactional_id, **configs}
        with self._producer(codec, batch_records, configs) as producer:
            producer.init_transactions(_TIMEOUT_SECONDS)
            producer.begin_transaction()
            yield Transaction(producer)
            if commit:
                producer.commit_transaction(_TIMEOUT_SECONDS)
            else:
                producer.abort_transaction(_TIMEOUT_SECONDS)

    @contextmanager
    def _producer(
        self, codec: str, batch_records: int, configs: dict[str, object]
    ) -> Iterator[Producer]:
        settings = {
            "bootstrap.servers": self._bootstrap_servers,
            "compression.type": codec,
            "batch.num.messages": batch_records,
            "enable.idempotence": True,  # or a retry may change the order of batches
            "linger.ms": 20,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in configs.items()},
        }
        producer = Producer(settings)
        try:
            yield producer
        finally:
            producer.purge()
            producer.flush(_TIMEOUT_SECONDS)


class Transaction:
    """An open transaction.

    Attributes
    ----------
    producer : confluent_kafka.Producer
        For what the methods do not do.
    """

    def __init__(self, producer: Producer) -> None:
        self.producer = producer

    def write(
        self, topic: str, messages: Iterable[Message | bytes | None], *, partition: int = 0
    ) -> list[int]:
        """Write messages in this transaction and return the offset each one got."""
        return _write(self.producer, topic, messages, partition)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commit offsets of a group in this transaction."""
        kfast.transactions.send_offsets(self.producer, offsets, group)


def _write(
    producer: Producer,
    topic: str,
    messages: Iterable[Message | bytes | None],
    default_partition: int,
) -> list[int]:
    delivered: list[Any] = []
    count = 0
    for item in messages:
        message = item if isinstance(item, Message) else Message(item)
        partition = default_partition if message.partition is None else message.partition
        options: dict[str, Any] = {}
        if message.timestamp_ms is not None:
            options["timestamp"] = message.timestamp_ms
        if message.headers is not None:
            options["headers"] = list(message.headers)

        def on_delivery(error: object, report: Any, number: int = count) -> None:
            assert error is None, error
            delivered.append((number, report.offset()))

        while True:
            try:
                producer.produce(
                    topic,
                    message.value,
                    message.key,
                    partition,
                    on_delivery=on_delivery,
                    **options,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        count += 1
    left = producer.flush(_TIMEOUT_SECONDS)
    assert left == 0, f"{left} messages not delivered"
    assert len(delivered) == count, f"{count - len(delivered)} delivery reports missing"
    return [offset for _, offset in sorted(delivered)]
