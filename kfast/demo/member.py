"""One member of the demo's consumer group: ``python -m kfast.demo.member``, a process of its own.

Standard input has first a line of JSON (``config``, ``topic`` and ``pace``, records per second),
later perhaps the line ``full-speed``, which ends the pace. The member exits at the end of its
input, so that none outlives the demo. Standard output reports events in lines of JSON: ``assigned``
(partitions with their positions), ``revoked``, ``count`` (records so far), and at the end
``stopped`` (partitions with their committed offsets).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from typing import Any, Final

import kfast

_WAIT_MS: Final = 50
_POLLS_PER_SECOND: Final = 20
_CLOSE_TIMEOUT_MS: Final = 5_000


class Reporter(kfast.ConsumerRebalanceListener):
    """Reports every rebalance, from inside ``poll``."""

    def __init__(self, consumer: kfast.KafkaConsumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: list[kfast.TopicPartition]) -> None:
        """Report added partitions with their positions, the committed offsets of the group."""
        report(assigned=positions(self._consumer, assigned))

    def on_partitions_revoked(self, revoked: list[kfast.TopicPartition]) -> None:
        """Report revoked partitions."""
        report(revoked=[tp.partition for tp in revoked])


def positions(
    consumer: kfast.KafkaConsumer, partitions: Iterable[kfast.TopicPartition]
) -> list[tuple[int, int]]:
    """Return (partition, next offset) pairs."""
    return [(tp.partition, consumer.position(tp)) for tp in sorted(partitions)]


def report(**event: Any) -> None:
    """Write one event to standard output."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Read until the input ends."""
    task = json.loads(sys.stdin.readline())
    os.set_blocking(sys.stdin.fileno(), False)
    pace: float | None = task["pace"]
    with kfast.KafkaConsumer(config=task["config"]) as consumer:
        consumer.subscribe([task["topic"]], listener=Reporter(consumer))
        count = 0
        while (received := _input()) != b"":
            if received is not None:  # full-speed
                pace = None
            most = None if pace is None else max(1, round(pace / _POLLS_PER_SECOND))
            records = consumer.poll(timeout_ms=_WAIT_MS, max_records=most)
            if records:
                count += records.count()
                report(count=count)
                if pace is not None:
                    time.sleep(records.count() / pace)  # simulates processing
        stopped = positions(consumer, consumer.assignment())
        consumer.close(timeout_ms=_CLOSE_TIMEOUT_MS)  # commits, and leaves the group
    report(stopped=stopped)


def _input() -> bytes | None:
    """Read standard input: None if it has nothing now, ``b""`` at its end."""
    try:
        return os.read(sys.stdin.fileno(), 1 << 12)
    except BlockingIOError:
        return None


if __name__ == "__main__":
    main()
