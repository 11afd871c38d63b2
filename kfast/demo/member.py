"""One member of the demo's consumer group: ``python -m kfast.demo.member``, a process of its own.

Standard input says what to do: first a line of JSON (``config``, ``topic`` and ``pace``, records
per second), later perhaps ``hurry``: no pace any more. The end of the input is the end of the
member, which is why none outlives the demo. Standard output tells what happens, in lines of JSON:
``assigned`` (partition numbers and where each is read from), ``revoked``, ``count`` (records so
far), and at the end ``stopped`` (where each partition was left, as committed).
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


class Teller(kfast.ConsumerRebalanceListener):
    """Tells of every rebalance, from inside ``poll``.

    Parameters
    ----------
    consumer : KafkaConsumer
        Whose listener this is.
    """

    def __init__(self, consumer: kfast.KafkaConsumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: list[kfast.TopicPartition]) -> None:
        """Tell where added partitions are read from: where the group has committed."""
        tell(assigned=positions(self._consumer, assigned))

    def on_partitions_revoked(self, revoked: list[kfast.TopicPartition]) -> None:
        """Tell what goes to somebody else."""
        tell(revoked=[tp.partition for tp in revoked])


def positions(
    consumer: kfast.KafkaConsumer, partitions: Iterable[kfast.TopicPartition]
) -> list[tuple[int, int]]:
    """Return (partition, next offset) pairs."""
    return [(tp.partition, consumer.position(tp)) for tp in sorted(partitions)]


def tell(**event: Any) -> None:
    """Write one event to standard output."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Read until the input ends."""
    task = json.loads(sys.stdin.readline())
    os.set_blocking(sys.stdin.fileno(), False)
    pace: float | None = task["pace"]
    with kfast.KafkaConsumer(config=task["config"]) as consumer:
        consumer.subscribe([task["topic"]], listener=Teller(consumer))
        count = 0
        while (said := _input()) != b"":
            if said is not None:
                pace = None
            most = None if pace is None else max(1, round(pace / _POLLS_PER_SECOND))
            records = consumer.poll(timeout_ms=_WAIT_MS, max_records=most)
            if records:
                count += records.count()
                tell(count=count)
                if pace is not None:
                    time.sleep(records.count() / pace)  # as if there were work to do
        left = positions(consumer, consumer.assignment())
        consumer.close(timeout_ms=_CLOSE_TIMEOUT_MS)  # commits, and leaves the group
    tell(stopped=left)


def _input() -> bytes | None:
    """Return what was said, None if nothing was, nothing at the end."""
    try:
        return os.read(sys.stdin.fileno(), 1 << 12)
    except BlockingIOError:
        return None


if __name__ == "__main__":
    main()
