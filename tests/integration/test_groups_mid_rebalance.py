"""What a member may do while the others are waited for, as the broker's own request log has it.

A member that is held (SIGSTOP) neither joins nor leaves, so the JoinGroup of all others stays
parked at the coordinator until it goes on: a rebalance that lasts as long as a test wants.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from kfast import KafkaConsumer, LocalKafka, TopicPartition
from kfast.errors import KafkaError, RebalanceInProgressError
from tests.integration.group_members import QUICK, Member, Members
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import QUICK_JAVA, Reading, tps, unique, until

pytestmark = pytest.mark.integration

PARTITIONS: Final = 6
REQUEST_LOG: Final = "-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug"
COMPLETED: Final = "Completed request:"
SETTINGS: Final[dict[str, Any]] = {
    **QUICK,
    "session_timeout_ms": 25_000,
    "partition_assignment_strategy": ["cooperative-sticky"],
    "auto_commit_interval_ms": 20,
}


@pytest.fixture(scope="module")
def logging_kafka() -> Iterator[LocalKafka]:
    """One node that logs every request it has answered."""
    with LocalKafka(java_options=[*QUICK_JAVA, REQUEST_LOG]) as cluster:
        yield cluster


@pytest.fixture
def topic(logging_kafka: LocalKafka) -> str:
    """A topic to be shared."""
    name = unique("mid-rebalance")
    logging_kafka.create_topic(name, PARTITIONS)
    return name


@dataclass
class Told:
    """A listener that keeps what it was told."""

    events: list[tuple[str, set[TopicPartition]]] = field(default_factory=list)

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.events.append(("assigned", set(assigned)))

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.events.append(("revoked", set(revoked)))

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self.events.append(("lost", set(lost)))


class Scene:
    """A member in this process and one that is held, of one group.

    Parameters
    ----------
    cluster : LocalKafka
        The broker.
    topic : str
        What they share.
    stack : ExitStack
        Ends them.
    """

    def __init__(self, cluster: LocalKafka, topic: str, stack: ExitStack) -> None:
        self.topic = topic
        self._cluster = cluster
        self._stack = stack
        self._writer = KafkaWriter(cluster.bootstrap_servers)
        self.group = stack.enter_context(Members(cluster.bootstrap_servers, topic, **SETTINGS))
        self.ours, self.told = self.join("ours")
        self.reading = Reading(self.ours)
        self.until(lambda: len(self.ours.assignment()) == PARTITIONS, "everything", self.ours)
        self.held: Member = self.group.start("held")
        self.until(
            lambda: len(self.ours.assignment()) == len(self.held.owned) == PARTITIONS // 2,
            "two members share",
            self.ours,
        )
        self.until(lambda: self.held.count("assigned") >= 2, "the group is settled", self.ours)
        self.until(lambda: self._generation == self.held.generation, "one generation", self.ours)
        self.kept = self.ours.assignment()

    @property
    def _generation(self) -> int:
        return self.ours.group_metadata().generation_id

    def join(self, name: str) -> tuple[KafkaConsumer, Told]:
        """Make a member in this process."""
        told = Told()
        consumer = KafkaConsumer(
            bootstrap_servers=self.group.servers,
            group_id=self.group.group_id,
            client_id=f"{self.group.group_id}-{name}",
            **SETTINGS,
        )
        self._stack.callback(consumer.close, timeout_ms=5_000)
        consumer.subscribe([self.topic], listener=told)
        return consumer, told

    def until(self, condition: Callable[[], object], what: str, *polled: KafkaConsumer) -> None:
        """Poll until something holds."""

        def look() -> object:
            for consumer in polled:
                if consumer is self.ours:
                    self.reading.poll(20)
                else:
                    consumer.poll(20)
            return condition()

        until(look, what)

    def open_rebalance(self) -> tuple[KafkaConsumer, Told]:
        """Hold the one and have a third join; return it once the first waits for the answer."""
        self.held.pause()
        third, told = self.join("third")
        self.until(
            lambda: self.ours.health().member_state == "preparing_rebalance",
            "a rebalance",
            self.ours,
            third,
        )
        return third, told

    def feed(self, count: int) -> None:
        """Write to every partition."""
        for tp in tps(self.topic, PARTITIONS):
            self._writer.write(tp.topic, [b"x"] * count, partition=tp.partition)

    def requests(self, name: str) -> list[tuple[str, int, str, int]]:
        """Return the requests of a member: connection, number, API, error, in their order."""
        wanted = f"{self.group.group_id}-{name}"
        found = []
        for line in self._cluster.log_tail(1, 1 << 30).splitlines():
            _, _, text = line.partition(COMPLETED)
            if wanted not in text:
                continue
            told = json.loads(text)
            header = told["requestHeader"]
            if header["clientId"] == wanted:
                error = told["response"].get("errorCode", 0)
                found.append(
                    (
                        told["connection"],
                        header["correlationId"],
                        header["requestApiKeyName"],
                        error,
                    )
                )
        return sorted(found)


@pytest.fixture
def scene(logging_kafka: LocalKafka, topic: str) -> Iterator[Scene]:
    """Two members that share a topic."""
    with ExitStack() as stack:
        yield Scene(logging_kafka, topic, stack)


def test_reading_and_committing_while_others_are_waited_for(scene: Scene) -> None:
    """C-06, G-10, G-11: what is kept is delivered all the time; commits wait, and none goes out."""
    ours, told, reading, kept = scene.ours, scene.told, scene.reading, scene.kept
    generation = ours.group_metadata().generation_id
    third, told_third = scene.open_rebalance()
    told.events.clear()

    scene.feed(50)
    scene.until(lambda: reading.has_reached(dict.fromkeys(kept, 50)), "records", ours, third)
    outcomes: list[KafkaError | None] = []
    ours.commit_async(callback=lambda _, error: outcomes.append(error))
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(RebalanceInProgressError, match="is rebalancing"):
            ours.commit(timeout_ms=10_000)
        assert time.monotonic() - began < 5, "it says so at once"
    scene.feed(50)
    scene.until(lambda: reading.has_reached(dict.fromkeys(kept, 100)), "more", ours, third)
    assert [type(error) for error in outcomes] == [RebalanceInProgressError]
    assert ours.health().member_state == "preparing_rebalance", "it lasted until here"
    assert told.events == []
    assert ours.assignment() == kept
    assert third.assignment() == set()

    scene.held.resume()
    scene.until(
        lambda: [len(c.assignment()) for c in (ours, third)] == [2, 2],
        "three members share",
        ours,
        third,
    )
    scene.until(lambda: len(scene.held.owned) == 2, "the held one, too", ours, third)
    scene.until(
        lambda: ours.health().member_state == third.health().member_state == "stable",
        "the group is settled",
        *(ours, third),
    )
    now = ours.assignment()
    assert now < kept
    # One gives up what moves, joins again, and is told of the additions of every round: none.
    assert [event for event in told.events if event[1]] == [("revoked", kept - now)]
    assert [what for what, _ in told.events].count("assigned") >= 2
    assert ours.group_metadata().generation_id >= generation + 2
    assert told_third.events[0] == ("assigned", set()), "withheld until it was given up"
    assert told_third.events[-1] == ("assigned", third.assignment())
    ours.commit()
    assert {tp: ours.committed(tp) for tp in now} == dict.fromkeys(now, 100)
    scene.feed(10)
    scene.until(lambda: reading.has_reached(dict.fromkeys(now, 110)), "the rest", ours, third)
    assert all(reading.offsets(tp) == list(range(110)) for tp in now)
    check_order(scene.requests("ours"))


def check_order(requests: list[tuple[str, int, str, int]]) -> None:
    """Check that nothing but the answer lies between a JoinGroup and its SyncGroup."""
    connections = {where for where, _, api, _ in requests if api == "JOIN_GROUP"}
    names = [
        api if not error else f"{api} {error}"
        for where, _, api, error in requests
        if where in connections
    ]
    assert "OFFSET_COMMIT" in names
    assert names.count("SYNC_GROUP") >= 4, names
    is_joining = False
    for name in names:
        assert not (is_joining and name.startswith("OFFSET_COMMIT")), names
        if name.startswith("JOIN_GROUP"):
            is_joining = True
        elif name.startswith("SYNC_GROUP"):
            is_joining = False
    elsewhere = {api for where, _, api, _ in requests if where not in connections}
    assert "OFFSET_COMMIT" not in elsewhere


def test_closing_while_others_are_waited_for(scene: Scene) -> None:
    """L-01, L-02, C-06: in time, be it a newcomer or an owner, and both have left."""
    third, _ = scene.open_rebalance()
    for consumer in (third, scene.ours):
        began = time.monotonic()
        consumer.close(timeout_ms=3_000)
        assert time.monotonic() - began < 4
    scene.held.resume()
    held = scene.held
    held.until(lambda: held.owned == set(tps(scene.topic, PARTITIONS)), "everything", 10)
    scene.feed(5)
    ends = dict.fromkeys(tps(scene.topic, PARTITIONS), 5)
    held.until(lambda: all(held.delivered(tp) == 5 for tp in ends), "everything is read")
    assert held.count("lost") == 0
