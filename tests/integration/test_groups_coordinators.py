"""Coordinators that are killed, held and let go on: nothing is lost, nothing hangs.

Held (SIGSTOP) is the worse of the two: its connections stay open and nothing is ever refused, so
only the client's own timeouts tell that somebody else has to be asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import pytest

from kfast import KafkaConsumer, LocalKafka, TopicPartition
from kfast.errors import KafkaError, KafkaTimeoutError
from tests.integration.conftest import TopicFactory
from tests.integration.group_members import QUICK, Member, Members, feeding
from tests.integration.group_requests import find_coordinator, set_session_timeout
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import Reading, leader_of, tps, unique, until

pytestmark = pytest.mark.integration

SESSION_MS: Final = 25_000
PROTOCOLS: Final[dict[str, dict[str, Any]]] = {
    "classic": {
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 200,
        "partition_assignment_strategy": ["cooperative-sticky"],
    },
    "consumer": {"group_protocol": "consumer"},
}
COUNT: Final = 50


def told(*members: Member) -> list[tuple[int, int]]:
    """Return how often each member lost something, in good order and otherwise."""
    return [(member.count("revoked"), member.count("lost")) for member in members]


# --- one of three ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "how"), [("consumer", "killed"), ("consumer", "held"), ("classic", "held")]
)
def test_the_coordinator_goes_and_returns(
    healed_kafka3: LocalKafka, new_topic3: TopicFactory, protocol: str, how: str
) -> None:
    """G-04, G-05, G-25, K-02: no partition changes hands, nothing comes twice; later it is back."""
    topic = new_topic3(6)
    partitions = tps(topic, 6)
    servers = healed_kafka3.bootstrap_servers
    settings = {"request_timeout_ms": 3_000, **PROTOCOLS[protocol]}
    with (
        Members(servers, topic, **settings) as group,
        feeding(servers, partitions, per_second=200) as feed,
    ):
        if protocol == "consumer":
            set_session_timeout(servers, group.group_id, SESSION_MS)
        one, two = group.start("m1"), group.start("m2")
        group.until_shared(partitions)
        if protocol == "classic":
            one.until(lambda: one.generation == two.generation, "both settled")
        for member in (one, two):
            member.until_event("committed")
        before = told(one, two)
        node = find_coordinator(healed_kafka3.address(1), group.group_id)
        witness = healed_kafka3.address(node % 3 + 1)
        elsewhere = {tp for tp in partitions if leader_of(servers, tp) != node}
        read = {m.name: sum(map(m.delivered, elsewhere)) for m in (one, two)}

        def reads_on(member: Member) -> bool:
            return sum(map(member.delivered, elsewhere)) > read[member.name] + 20

        def commits_since(begun: float, member: Member) -> bool:
            return bool(member.all("committed")[-1]["t"] > begun)

        if how == "killed":
            healed_kafka3.kill_node(node)
        else:
            healed_kafka3.pause_node(node)
        for member in (one, two):
            if member.owned & elsewhere:
                member.until(partial(reads_on, member), "records of the other leaders")
        until(
            lambda: find_coordinator(witness, group.group_id) not in (-1, node),
            "another coordinator",
        )
        for member in (one, two):
            member.until(partial(commits_since, time.monotonic(), member), "commits go on", 40)
        if how == "killed":
            healed_kafka3.restart_node(node)
        else:
            healed_kafka3.resume_node(node)
        until(
            lambda: find_coordinator(healed_kafka3.address(node), group.group_id) >= 0,
            "the node knows its way about again",
        )
        for member in (one, two):
            member.until(partial(commits_since, time.monotonic(), member), "commits go on", 40)
        assert told(one, two) == before
        group.start("m3")
        group.until_shared(partitions)
        ends = feed.stop()
        ledger = group.until_read(ends, 60)
        ledger.check(ends)
        assert not any(map(ledger.duplicates, partitions))
        for member in group.members.values():
            assert not member.count("error"), member.tail(50)


# --- the only one ---------------------------------------------------------------------------------


@contextmanager
def within(timeout_ms: int) -> Iterator[None]:
    """Check that a call with a timeout keeps to it, give or take a second."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < timeout_ms / 1000 + 1


@pytest.fixture
def join(kafka: LocalKafka) -> Iterator[Callable[..., KafkaConsumer]]:
    """Make consumers that are the only members of their groups: ``join(topic, protocol)``."""
    with ExitStack() as stack:

        def make(topic: str, protocol: str) -> KafkaConsumer:
            group_id = unique("held")
            if protocol == "consumer":
                set_session_timeout(kafka.bootstrap_servers, group_id, SESSION_MS)
            consumer = KafkaConsumer(
                topic,
                bootstrap_servers=kafka.bootstrap_servers,
                group_id=group_id,
                enable_auto_commit=False,
                request_timeout_ms=1_500,
                auto_offset_reset="earliest",
                config={name: QUICK[name] for name in ("retry_backoff_ms", "fetch_max_wait_ms")},
                **PROTOCOLS[protocol],
            )
            stack.callback(consumer.close, timeout_ms=5_000)
            return consumer

        yield make


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_only_coordinator_is_held(
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    join: Callable[..., KafkaConsumer],
    caplog: pytest.LogCaptureFixture,
    protocol: str,
) -> None:
    """G-05, G-25, C-02, L-01: every call keeps to its timeout; the same member goes on later."""
    caplog.set_level("INFO", "kfast")
    topic = new_topic()
    tp = TopicPartition(topic, 0)
    writer.write(topic, [b"%d" % number for number in range(COUNT)])
    stays, leaves = join(topic, protocol), join(topic, protocol)
    reading = Reading(stays).until_count(COUNT)
    Reading(leaves).until_count(COUNT)
    stays.commit({tp: 1})
    member = stays.group_metadata()
    outcomes: list[KafkaError | None] = []
    kafka.pause_node(1)
    try:
        with within(600), pytest.raises(KafkaTimeoutError, match=topic):
            stays.commit({tp: 2}, timeout_ms=600)
        with within(300), pytest.raises(KafkaTimeoutError):
            stays.committed(tp, timeout_ms=300)
        with within(0):
            leaves.commit_async({tp: 3}, lambda _, error: outcomes.append(error))
        with within(700):
            leaves.close(timeout_ms=700)
        assert [type(error) for error in outcomes] == [KafkaTimeoutError]
        caplog.set_level("INFO", "kfast")
        lost = f"of group {member.group_id} is lost"

        def is_missed() -> bool:
            with within(50):
                assert reading.poll(50) == 0
            return lost in caplog.text

        until(is_missed, "the request timeout of the coordinator")
        with within(400), pytest.raises(KafkaTimeoutError):
            stays.commit({tp: 4}, timeout_ms=400)
    finally:
        kafka.resume_node(1)
    stays.commit({tp: 5})
    assert stays.committed(tp) == 5
    writer.write(topic, [b"more"] * COUNT)
    reading.until_count(2 * COUNT)
    assert reading.offsets(tp) == list(range(2 * COUNT))
    assert stays.group_metadata() == member
    assert stays.health().member_state == "stable"
