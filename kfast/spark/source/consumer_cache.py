"""Consumers that outlive the task that opened them.

Owns the idle consumers of this process, by their settings. A worker process runs one task after
another, and connecting takes longer than reading a small micro-batch. A consumer is either here,
assigned to nothing, or with exactly one task. What a forked child inherits it forgets: threads and
sockets are the parent's.

Only ever used from the thread that runs tasks, one at a time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from kfast.kafka_consumer import KafkaConsumer

SMALL_RANGE: Final = 16_384
"""Offsets below which a task fetches no more at a time than a consumer does by default."""

MAX_IDLE: Final = 4
"""Idle consumers to keep: clusters, or kinds of query, a worker changes between."""

Key = tuple[tuple[str, str], ...]

_TASK_DEFAULTS: Final = {
    # What a task reads is there already: waiting for more only holds the connection up after the
    # last record, when the next task already wants it.
    "fetch.max.wait.ms": "5",
    # A task reads one partition, and as many tasks run as there are cores.
    "decode.threads": "1",
}
"""What is better for tasks than a consumer's own defaults; the user's settings go first."""

_FETCH_BYTES: Final = "max.partition.fetch.bytes"
# Each answer becomes a batch. Those of twice this size no longer stay in the processor's caches
# while Spark goes through their columns; those of half of it cost twice the fetches.
_LARGE_FETCH: Final = str(3 << 20)


def task_settings(settings: Mapping[str, str], size: int) -> dict[str, str]:
    """Return the settings for a task that reads so many offsets.

    Much at a time is best for a large range. For a small one it would be fetched in vain: the log
    goes on behind the range, and a fetch knows bytes only.
    """
    large = {} if size < SMALL_RANGE else {_FETCH_BYTES: _LARGE_FETCH}
    return {**_TASK_DEFAULTS, **large, **settings}


class ConsumerCache:
    """The idle consumers of a process."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._idle: dict[Key, KafkaConsumer] = {}

    def borrow(self, settings: Mapping[str, str], *, is_fresh: bool = False) -> KafkaConsumer:
        """Return a consumer with these settings, an idle one if there is one.

        Parameters
        ----------
        settings : Mapping of str to str
            By Kafka's names.
        is_fresh : bool
            Drop what is idle: a task that runs again may have failed for it.
        """
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self._idle = {}
        consumer = self._idle.pop(_key(settings), None)
        if consumer is not None and is_fresh:
            consumer.close(timeout_ms=0)
            consumer = None
        if consumer is None:
            consumer = KafkaConsumer(
                # A range that is gone is the reader's business (failOnDataLoss).
                config={**settings, "auto.offset.reset": "none"}
            )
        return consumer

    def give_back(self, settings: Mapping[str, str], consumer: KafkaConsumer) -> None:
        """Keep a consumer that works for the next task; what it has buffered is let go."""
        consumer.unsubscribe()
        other = self._idle.pop(_key(settings), None)
        if other is not None:
            other.close(timeout_ms=0)
        self._idle[_key(settings)] = consumer
        while len(self._idle) > MAX_IDLE:
            self._idle.pop(next(iter(self._idle))).close(timeout_ms=0)

    def close(self) -> None:
        """Close all idle consumers."""
        while self._idle:
            self._idle.popitem()[1].close(timeout_ms=1_000)

    def __len__(self) -> int:
        return len(self._idle)

    def __repr__(self) -> str:
        return f"<ConsumerCache {len(self._idle)} idle>"


def _key(settings: Mapping[str, str]) -> Key:
    return tuple(sorted(settings.items()))


CONSUMERS: Final = ConsumerCache()
"""Those of this process."""
