"""A group member that reads with another client: ``python -m ... CLIENT SETTINGS`` (JSON).

It tells what ``group_member`` tells, as far as the client lets it know; ``CLIENT`` is
``confluent`` or ``kafka-python``. What was read is committed when partitions are revoked and at the
end. The only command is ``["close"]``; the program dies with its parent.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Final

import confluent_kafka

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka as kafka_python
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor

from kfast import TopicPartition
from tests.integration.group_member import plain, say

UNKNOWN: Final = -1
"""The position of an added partition where the client cannot be asked for it."""

_POLL_SECONDS: Final = 0.05


class Progress:
    """What was read of each partition, told batch by batch."""

    def __init__(self) -> None:
        self.next: dict[TopicPartition, int] = {}

    def assigned(self, positions: Mapping[TopicPartition, int], generation: int = -1) -> None:
        """Tell of added partitions."""
        told = [[*tp, at] for tp, at in sorted(positions.items())]
        say("assigned", partitions=plain(positions), positions=told, generation=generation)

    def gone(self, event: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Tell of partitions that go; return what is to be committed of them."""
        partitions = list(partitions)
        say(event, partitions=plain(partitions))
        return {tp: self.next.pop(tp) for tp in partitions if tp in self.next}

    def read(self, records: Iterable[tuple[TopicPartition, int]]) -> None:
        """Tell of records, given in the order in which they came."""
        runs: list[list[Any]] = []
        for tp, offset in records:
            if runs and runs[-1][:2] == list(tp) and runs[-1][3] == offset - 1:
                runs[-1][3] = offset
            else:
                runs.append([*tp, offset, offset])
            self.next[tp] = offset + 1
        if runs:
            say("delivered", ranges=runs)
            say("processed", ranges=runs)

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Tell of a commit."""
        say("committed", offsets=[[*tp, at] for tp, at in sorted(offsets.items())])


class ConfluentMember:
    """Reads with confluent-kafka."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._progress = Progress()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": settings["servers"],
                "group.id": settings["group_id"],
                "client.id": settings["name"],
                **self._protocol(settings),
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1_000,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        self._consumer.subscribe(
            [settings["topic"]],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )

    @staticmethod
    def _protocol(settings: Mapping[str, Any]) -> dict[str, Any]:
        if settings.get("group_protocol") == "consumer":
            return {"group.protocol": "consumer"}
        return {
            "session.timeout.ms": settings["session_timeout_ms"],
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": settings["strategy"],
        }

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        found = consumer.committed(partitions, timeout=10) if partitions else []
        self._progress.assigned(
            {TopicPartition(p.topic, p.partition): max(0, p.offset) for p in found}
        )

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        gone = [TopicPartition(p.topic, p.partition) for p in partitions]
        offsets = self._progress.gone("revoked", gone)
        if offsets:
            asked = [confluent_kafka.TopicPartition(*tp, at) for tp, at in offsets.items()]
            consumer.commit(offsets=asked, asynchronous=False)
            self._progress.committed(offsets)

    def _lost(self, _: Any, partitions: list[Any]) -> None:
        self._progress.gone("lost", [TopicPartition(p.topic, p.partition) for p in partitions])

    def poll(self) -> None:
        """Read what is there."""
        messages = self._consumer.consume(100, _POLL_SECONDS)
        bad = [m.error() for m in messages if m.error() is not None]
        if bad:
            say("error", type="KafkaException", message=str(bad[0]), call="poll")
        self._progress.read(
            (TopicPartition(m.topic(), m.partition()), m.offset())
            for m in messages
            if m.error() is None
        )

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


class KafkaPythonMember:
    """Reads with kafka-python."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        strategies = {
            "range": RangePartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
        }
        self._progress = Progress()
        self._consumer = kafka_python.KafkaConsumer(
            bootstrap_servers=settings["servers"].split(","),
            group_id=settings["group_id"],
            client_id=settings["name"],
            session_timeout_ms=settings["session_timeout_ms"],
            heartbeat_interval_ms=200,
            partition_assignment_strategy=[strategies[settings["strategy"]]],
            auto_offset_reset="earliest",
            enable_auto_commit=True,  # also when partitions are revoked, and at the end
            auto_commit_interval_ms=300,
        )
        progress = self._progress

        class Listener(kafka_python.ConsumerRebalanceListener):  # type: ignore[misc]
            """Runs on kafka-python's event loop and must not ask the consumer anything."""

            def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                progress.assigned({TopicPartition(*tp): UNKNOWN for tp in assigned})

            def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                progress.gone("revoked", [TopicPartition(*tp) for tp in revoked])

            def on_partitions_lost(self, lost: Iterable[Any]) -> None:
                progress.gone("lost", [TopicPartition(*tp) for tp in lost])

        self._consumer.subscribe([settings["topic"]], listener=Listener())

    def poll(self) -> None:
        """Read what is there."""
        found = self._consumer.poll(timeout_ms=int(_POLL_SECONDS * 1000))
        self._progress.read(
            (TopicPartition(*tp), record.offset)
            for tp, records in found.items()
            for record in records
        )

    def close(self) -> None:
        """Commit, tell the listener, leave."""
        self._consumer.close()


def main() -> None:
    """Run the member described by the arguments until told to close."""
    clients: dict[str, Any] = {"confluent": ConfluentMember, "kafka-python": KafkaPythonMember}
    member = clients[sys.argv[1]](json.loads(sys.argv[2]))
    is_closing = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            if json.loads(line) == ["close"]:
                is_closing.set()
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while not is_closing.is_set():
        member.poll()
    member.close()
    say("closed", took=0.0)


if __name__ == "__main__":
    main()
