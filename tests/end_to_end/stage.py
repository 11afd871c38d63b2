"""A fake cluster on real sockets with consumers of it, and ways to read that cannot hang."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

from kfast import KafkaConsumer, TopicPartition
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer

PATIENCE_S: Final = 60.0
"""Far longer than anything takes; a test that reaches it has failed."""

QUICK: Final = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 100,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
}

Found = dict[TopicPartition, list[tuple[int, Any]]]


class Stage:
    """A running cluster.

    Parameters
    ----------
    cluster : FakeCluster
        What is served.
    tls : ssl.SSLContext or None
        Makes every listener one for TLS.
    **configs
        Settings of all consumers, on top of ``QUICK``.
    """

    def __init__(
        self, cluster: FakeCluster, tls: ssl.SSLContext | None = None, **configs: Any
    ) -> None:
        self.cluster = cluster
        self.server = BrokerServer(cluster, tls)
        self._configs = {**QUICK, **configs}
        self._stack = ExitStack()

    def consumer(self, *topics: str, **configs: Any) -> KafkaConsumer:
        """Return a consumer that is closed when the stage is."""
        settings = {
            "bootstrap_servers": self.server.bootstrap_servers,
            **self._configs,
            **configs,
        }
        return self._stack.enter_context(KafkaConsumer(*topics, **settings))

    def __enter__(self) -> Self:
        self._stack.enter_context(self.server)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()


def read(consumer: KafkaConsumer, count: int) -> Found:
    """Poll until ``count`` records came; return (offset, value) per partition."""
    found: Found = {}
    total = 0

    def step() -> bool:
        nonlocal total
        for partition, rows in consumer.poll(timeout_ms=200).items():
            found.setdefault(partition, []).extend((row.offset, row.value) for row in rows)
            total += len(rows)
        return total >= count

    eventually(step, lambda: f"{total} of {count} records")
    return found


def offsets(found: Found, partition: int = 0, topic: str = "t") -> list[int]:
    return [offset for offset, _ in found.get(TopicPartition(topic, partition), [])]


def partitions(*numbers: int, topic: str = "t") -> Iterable[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def eventually(
    condition: Callable[[], bool], describe: Callable[[], str] = lambda: "it did not happen"
) -> None:
    """Call something that takes its own time until it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, describe()


def error_of(consumer: KafkaConsumer) -> Exception:
    """Poll until something is raised, and return it."""
    found: list[Exception] = []

    def step() -> bool:
        try:
            consumer.poll(timeout_ms=100)
        except Exception as error:
            found.append(error)
        return bool(found)

    eventually(step, lambda: "no error was raised")
    return found[0]
