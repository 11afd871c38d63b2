"""ConsumerCache: idle consumers of this process, reused from task to task.

Owns the idle consumers, by their settings. A worker process runs one task after another, and
connecting takes longer than reading a small micro-batch. A consumer is either in the cache, without
assignment, or borrowed by exactly one task. A forked child drops what it inherits: threads and
sockets belong to the parent.

Used from the thread that runs tasks only, one task at a time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from kfast.errors import ConfigurationError
from kfast.internals import KafkaConsumer
from kfast.settings.secret import Secret
from kfast.spark.source.setting_errors import as_option_error

SMALL_RANGE: Final = 16_384
"""Offsets below which a task fetches no more at a time than a consumer does by default."""

MAX_IDLE: Final = 4
"""Idle consumers to keep: one per cluster and kind of query that a worker alternates between."""

Key = tuple[tuple[str, "str | Secret[str]"], ...]

_TASK_DEFAULTS: Final = {
    # What a task reads is in the log already: waiting for more only keeps the connection busy after
    # the last record, when the next task needs it.
    "fetch.max.wait.ms": "5",
    # A task reads one partition, and as many tasks run as there are cores.
    "decode.threads": "1",
}
"""Defaults for tasks, in place of a consumer's own; the user's settings take precedence."""

_FETCH_BYTES: Final = "max.partition.fetch.bytes"
# Each fetch response becomes a batch. Batches of twice this size no longer stay in the processor's
# caches while Spark reads their columns; those of half the size cost twice the fetches.
_LARGE_FETCH: Final = str(3 << 20)


def task_settings(settings: Mapping[str, str], size: int) -> dict[str, str]:
    """Return the consumer's settings for a task that reads ``size`` offsets.

    Large fetches suit a large range. For a small one they would fetch records behind its end, since
    a fetch is limited in bytes, not in offsets.
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

        With ``is_fresh`` an idle one is closed instead: a retried task may have failed because of
        its connections.
        """
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self._idle = {}
        consumer = self._idle.pop(_key(settings), None)
        if consumer is not None and is_fresh:
            consumer.close(timeout_ms=0)
            consumer = None
        if consumer is None:
            try:
                # The reader handles a range that is gone (failOnDataLoss).
                consumer = KafkaConsumer(config={**settings, "auto.offset.reset": "none"})
            except ConfigurationError as error:  # what a file holds, on this machine
                raise as_option_error(error, settings) from None
        return consumer

    def give_back(self, settings: Mapping[str, str], consumer: KafkaConsumer) -> None:
        """Return a working consumer for the next task; its buffered records are released."""
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
    """Return the settings as a key; the secret ones are not shown with it."""
    return tuple(
        (name, Secret(value) if name.startswith(("ssl.", "sasl.")) else value)
        for name, value in sorted(settings.items())
    )


CONSUMERS: Final = ConsumerCache()
"""The cache of this process."""
