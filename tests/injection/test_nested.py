"""A handler raises at every place of a poll inside of another consumer's listener."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kfast import KafkaConsumer, TopicPartition
from kfast.errors import KafkaError
from kfast.testing.server import BrokerServer
from tests.end_to_end.groups import QUICK_MEMBER, Notes
from tests.end_to_end.stage import QUICK
from tests.injection.interrupter import KINDS, Interrupter, Place
from tests.injection.readers import CLOSE_MS, STUCK_S, Reader, quick_cluster

RECORDS = 4_000
Recorder = Callable[[Callable[[], object]], Counter[int]]


class Outer:
    """A member of a group of its own, whose listener has another consumer polled.

    It subscribes to a topic without records, and is assigned its only partition again and again.
    """

    def __init__(self, server: BrokerServer, inner: Reader) -> None:
        self._inner = inner
        self.inner_is_polled = False
        self.passes: Counter[int] = Counter()
        """Of the polls that were recorded."""
        self._notes = Notes(self._called)
        settings: dict[str, Any] = {**QUICK, **QUICK_MEMBER["classic"]}
        settings |= {"group_id": "outer", "partition_assignment_strategy": ["range"]}
        self.consumer = KafkaConsumer(bootstrap_servers=server.bootstrap_servers, **settings)
        self.consumer.subscribe(["empty"], listener=self._notes)

    def _called(self, name: str, partitions: list[TopicPartition], _: KafkaConsumer) -> None:
        self._inner.interrupter.note_callback()
        if name == "assigned" and partitions and self._inner.result is None:
            self.inner_is_polled = True
            self._inner.step()

    def poll(self) -> None:
        """Poll; the inner consumer is polled within if partitions are assigned."""
        self.consumer.poll(20)

    def is_assigned_again(self, record: Recorder | None = None) -> bool:
        """Rebalance without an interruption; return whether the listener was called."""
        self.inner_is_polled = False
        self.consumer.enforce_rebalance()
        deadline = time.monotonic() + STUCK_S
        while not (self.inner_is_polled and self.consumer.assignment()):
            if time.monotonic() > deadline:
                return False
            if record is None:
                self.poll()
            else:
                self.passes |= record(self.poll)
        return True


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_consumers_in_listeners_lose_nothing(kind: str) -> None:
    """I-07: the inner consumer loses no record, and the outer one completes its rebalance."""
    cluster = quick_cluster(RECORDS, batch_records=2)
    cluster.create_topic("empty", 1)
    interrupter = Interrupter(kind)
    findings = interrupter.findings
    begin = Place(0, "before any interruption", 0)
    with BrokerServer(cluster) as server, interrupter.installed():
        reader = Reader(server.cluster, server, interrupter)
        outer = Outer(server, reader)
        try:
            reader.go_on(begin)
            assert outer.is_assigned_again()
            reader.take(begin)
            for _ in range(4):
                assert outer.is_assigned_again(interrupter.record)
                reader.take(begin)
            passes = outer.passes
            for place in interrupter.places(passes, suite=15):
                outer.consumer.enforce_rebalance()
                deadline = time.monotonic() + 0.5
                is_sent = False
                while not is_sent and time.monotonic() < deadline:
                    is_sent = interrupter.interrupt(outer.poll, place).is_sent
                    reader.take(place)
                try:
                    is_well = outer.is_assigned_again()
                    reader.take(place)
                    if not is_well:
                        findings.add("the outer rebalance was stuck", place)
                except KafkaError as error:
                    findings.add("a later poll raised", place, str(error).splitlines()[0])
                    is_well = False
                if not reader.go_on(place):
                    reader.anew()
                if not is_well:
                    outer.consumer.close(CLOSE_MS)
                    outer = Outer(server, reader)
                if findings.is_enough:
                    break
        finally:
            outer.consumer.close(CLOSE_MS)
            reader.close()
    assert findings.tried > 5
    findings.check()
