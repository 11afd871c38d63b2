"""Members of groups: sharing, and KIP-848 patterns, static members, refusals, migration."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kfast import KafkaConsumer, SubscriptionPattern, TopicPartition
from kfast.errors import InvalidRegularExpressionError, UnreleasedInstanceIdError
from tests.integration.both.brokers import Broker, Writer
from tests.integration.both.conftest import TopicFactory, real_only
from tests.integration.support import until

PARTITIONS = 4
_groups = itertools.count(1)

Opener = Callable[..., KafkaConsumer]


@pytest.fixture
def join(kafka: Broker) -> Iterator[Opener]:
    """Make members of one group of the test's own: ``join(**configs)``."""
    group_id = f"consumer-protocol-{next(_groups)}"
    with ExitStack() as stack:

        def make(group_protocol: Any = "consumer", **configs: Any) -> KafkaConsumer:
            consumer = KafkaConsumer(
                bootstrap_servers=kafka.bootstrap_servers,
                group_id=group_id,
                group_protocol=group_protocol,
                auto_offset_reset="earliest",
                **configs,
            )
            stack.callback(consumer.close, timeout_ms=5_000)
            return consumer

        yield make


class Reader:
    """Polls several members in turn and keeps what they read."""

    def __init__(self, *members: KafkaConsumer) -> None:
        self.members = list(members)
        self.values: list[bytes] = []

    def poll(self) -> None:
        for member in self.members:
            for batch in member.poll(timeout_ms=20).values():
                self.values += [row.value for row in batch]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            self.poll()
            return condition()

        until(look, what)

    def shares(self) -> list[int]:
        return [len(member.assignment()) for member in self.members]


def fill(writer: Writer, topic: str, start: int, count: int = 10) -> set[bytes]:
    """Write values to every partition; return them."""
    written = set()
    for partition in range(PARTITIONS):
        values = [b"%d-%d" % (partition, n) for n in range(start, start + count)]
        writer.write(topic, values, partition=partition)
        written |= set(values)
    return written


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_share_a_topic_and_go_on_where_the_others_stopped(
    join: Opener, new_topic: TopicFactory, writer: Writer, protocol: str
) -> None:
    """G-01, K-04, K-08: nothing is missing, nothing comes twice."""
    topic = new_topic(PARTITIONS)
    written = fill(writer, topic, 0)
    configs: dict[str, Any] = {"heartbeat_interval_ms": 200} if protocol == "classic" else {}
    a, b = join(protocol, **configs), join(protocol, **configs)
    reader = Reader(a, b)
    a.subscribe([topic])
    reader.members = [a]
    reader.until(lambda: reader.shares() == [4], "one member has everything")
    b.subscribe([topic])
    reader.members = [a, b]
    reader.until(lambda: reader.shares() == [2, 2], "two members share")
    written.update(fill(writer, topic, 10))
    reader.until(lambda: set(reader.values) == written, "everything is read")
    a.close()
    reader.members = [b]
    reader.until(lambda: reader.shares() == [4], "the other one has everything")
    written.update(fill(writer, topic, 20))
    reader.until(lambda: set(reader.values) == written, "everything is read")
    assert len(reader.values) == len(written)


def test_the_brokers_match_a_pattern(join: Opener, kafka: Broker, new_topic: TopicFactory) -> None:
    """K-10: topics that appear are found; "" removes the pattern again."""
    first = new_topic(2)
    member = join()
    reader = Reader(member)
    member.subscribe(pattern=SubscriptionPattern(first + ".*"))
    reader.until(lambda: reader.shares() == [2], "the topic is found")
    second = f"{first}-more"
    kafka.create_topic(second, 1)
    reader.until(lambda: reader.shares() == [3], "the new topic is found")
    member.subscribe(pattern=SubscriptionPattern(second))
    reader.until(lambda: member.assignment() == {TopicPartition(second, 0)}, "only the new one")
    member.unsubscribe()
    member.subscribe([first])
    wanted = {TopicPartition(first, 0), TopicPartition(first, 1)}
    reader.until(lambda: member.assignment() == wanted, "only the one by name")


def test_a_static_member_is_followed_by_another_process(
    join: Opener, new_topic: TopicFactory
) -> None:
    """K-08, K-09: -2 on close; the pattern of the one before is not inherited; 111 meanwhile."""
    one, other = new_topic(2), new_topic(1)
    first = join(group_instance_id="i")
    reader = Reader(first)
    first.subscribe(pattern=SubscriptionPattern(one))
    reader.until(lambda: reader.shares() == [2], "the static member has its share")
    rival = join(group_instance_id="i")
    rival.subscribe([one])
    with pytest.raises(UnreleasedInstanceIdError, match="in use by another") as caught:
        Reader(rival).until(lambda: False, "the rival is refused")
    assert "owned by" in str(caught.value), "the broker's own words"
    first.close()
    successor = join(group_instance_id="i")
    reader = Reader(successor)
    successor.subscribe([other])
    reader.until(lambda: reader.shares() == [1], "the successor has what it asked for")
    assert successor.assignment() == {TopicPartition(other, 0)}


@real_only
def test_a_pattern_the_brokers_cannot_read_is_quoted(join: Opener) -> None:
    """K-09"""
    member = join()
    member.subscribe(pattern=SubscriptionPattern("x(["))
    with pytest.raises(InvalidRegularExpressionError, match=r'"x\(\["') as caught:
        Reader(member).until(lambda: False, "the pattern is refused")
    assert "missing closing ]" in str(caught.value)


@real_only
@pytest.mark.parametrize(
    ("before", "after"), [("classic", "consumer"), ("consumer", "classic")], ids=["up", "down"]
)
def test_members_move_between_the_protocols(
    before: str, after: str, join: Opener, new_topic: TopicFactory, writer: Writer
) -> None:
    """K-12: one by one, online, without losing offsets."""
    topic = new_topic(PARTITIONS)
    written = fill(writer, topic, 0)
    old = [join(before), join(before)]
    reader = Reader(*old)
    for member in old:
        member.subscribe([topic])
    reader.until(lambda: sorted(reader.shares()) == [2, 2], "the old members share")
    reader.until(lambda: set(reader.values) == written, "everything is read")
    for number, member in enumerate(old, 1):
        member.close()
        reader.members.remove(member)
        new = join(after)
        new.subscribe([topic])
        reader.members.append(new)
        reader.until(lambda: sorted(reader.shares()) == [2, 2], f"{number} of 2 moved")
        written.update(fill(writer, topic, 10 * number))
        reader.until(lambda: set(reader.values) == written, "everything is read")
    assert len(reader.values) == len(written)
