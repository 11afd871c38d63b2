"""Errors about groups: their messages, and what works then."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

from kfast import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kfast.errors import (
    CommitFailedError,
    ConfigurationError,
    FencedInstanceIdError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    WakeupError,
)
from tests.integration.both.brokers import Broker
from tests.integration.both.conftest import TopicFactory, real_only
from tests.integration.support import unique, until

pytestmark = pytest.mark.integration

PROTOCOLS: Final = ("classic", "consumer")
both = pytest.mark.parametrize("protocol", PROTOCOLS)

Opener = Callable[..., KafkaConsumer]


@pytest.fixture
def topic(new_topic: TopicFactory) -> str:
    """A topic of two partitions."""
    return new_topic(2)


@pytest.fixture
def join(kafka: Broker, topic: str) -> Iterator[Opener]:
    """Make consumers of one group of the test's own that subscribe to ``topic``."""
    group_id = unique("errors")
    names = itertools.count(1)
    with ExitStack() as stack:

        def make(listener: Any = None, **configs: Any) -> KafkaConsumer:
            settings = {"group_id": group_id, "client_id": f"c{next(names)}", **configs}
            consumer = KafkaConsumer(
                bootstrap_servers=kafka.bootstrap_servers,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                **settings,
            )
            stack.callback(consumer.close, timeout_ms=5_000)
            consumer.subscribe([topic], listener=listener)
            return consumer

        yield make


def assigned(*consumers: KafkaConsumer) -> None:
    """Poll until all of them share the topic."""

    def is_shared() -> bool:
        for consumer in consumers:
            consumer.poll(50)
        return all(len(c.assignment()) == 2 // len(consumers) for c in consumers)

    until(is_shared, "shares")


def works(consumer: KafkaConsumer) -> None:
    """Check that a member reads on and commits."""
    assigned(consumer)
    tp = min(consumer.assignment())
    consumer.commit({tp: 5})
    assert consumer.committed(tp) == 5
    consumer.commit({tp: 0})


def raised_by_poll(*consumers: KafkaConsumer) -> KafkaError:
    """Poll until that raises; return the error."""

    def poll() -> bool:
        for consumer in consumers:
            consumer.poll(50)
        return False

    with pytest.raises(KafkaError) as caught:
        until(poll, "poll() to raise", 15)
    return caught.value


# --- names and numbers ----------------------------------------------------------------------------


def test_names_of_groups(join: Opener) -> None:
    """E-02: nothing, and more than a request can carry; otherwise Kafka takes any name."""
    with pytest.raises(ConfigurationError, match="bad value for group_id: ''"):
        join(group_id="")
    with pytest.raises(ConfigurationError, match="40000 bytes of UTF-8"):
        join(group_id="g" * 40_000)
    for name in (unique("a b/ü\t?"), unique("g" * 32_000)):
        for protocol in PROTOCOLS:
            consumer = join(group_id=name, group_protocol=protocol)
            works(consumer)
            consumer.close()


def test_sessions_the_broker_does_not_allow(join: Opener) -> None:
    """E-12: named with the broker's settings, raised by every poll."""
    consumer = join(session_timeout_ms=500, heartbeat_interval_ms=100)
    for _ in range(2):
        error = raised_by_poll(consumer)
        assert type(error) is InvalidSessionTimeoutError
        assert "session_timeout_ms=500" in str(error)
        assert "group.min.session.timeout.ms" in str(error)
    assert consumer.assignment() == set()


def test_no_assignor_in_common(join: Opener) -> None:
    """E-12: the newcomer is told; the group does not notice."""
    member = join(partition_assignment_strategy=["range"])
    assigned(member)
    generation = member.group_metadata().generation_id
    error = raised_by_poll(join(partition_assignment_strategy=["cooperative-sticky"]))
    assert type(error) is InconsistentGroupProtocolError
    assert "partition_assignment_strategy=['cooperative-sticky']" in str(error)
    works(member)
    assert member.group_metadata().generation_id == generation


def test_a_static_member_whose_name_is_taken(join: Opener) -> None:
    """G-21: the earlier one is told, with every poll; the later one is undisturbed."""
    early = join(group_instance_id="one", heartbeat_interval_ms=100)
    assigned(early)
    late = join(group_instance_id="one")
    assigned(late)
    for _ in range(2):
        error = raised_by_poll(early)
        assert type(error) is FencedInstanceIdError
        assert 'group_instance_id "one"' in str(error)
    with pytest.raises(CommitFailedError):
        early.commit({min(late.assignment()): 1})
    early.close()
    works(late)


@real_only
@both
def test_a_commit_before_joining(join: Opener, topic: str, protocol: str) -> None:
    """C-07: a FakeKafka may have answered the join by then."""
    with pytest.raises(CommitFailedError, match="not a member"):
        join(group_protocol=protocol).commit({TopicPartition(topic, 0): 1})


@both
def test_commits_that_cannot_be(join: Opener, topic: str, protocol: str) -> None:
    """C-07, C-10, C-12: each says why, and the next one succeeds."""
    consumer = join(group_protocol=protocol)
    tp = TopicPartition(topic, 0)
    assigned(consumer)
    with pytest.raises(IllegalStateError, match="offset -1"):
        consumer.commit({tp: -1})
    with pytest.raises(OffsetMetadataTooLargeError, match=str(tp)):
        consumer.commit({tp: OffsetAndMetadata(1, "x" * 5_000)})
    missing = TopicPartition(f"{topic}-not", 0)
    with pytest.raises(KafkaTimeoutError, match=str(missing)) as caught:
        consumer.commit({missing: 1}, timeout_ms=500)
    assert "UNKNOWN_TOPIC" in str(caught.value)
    works(consumer)


# --- what the application does --------------------------------------------------------------------


class Broken:
    """A listener that fails the first time."""

    def __init__(self, where: str) -> None:
        self._where = where

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._fail("assigned", partitions)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._fail("revoked", partitions)

    def _fail(self, where: str, partitions: list[TopicPartition]) -> None:
        if self._where == where and partitions:
            self._where = ""
            raise ValueError("out of cheese")


@both
@pytest.mark.parametrize("where", ["assigned", "revoked"])
def test_a_listener_that_raises(join: Opener, protocol: str, where: str) -> None:
    """G-13: poll() raises it once the rebalance is complete; consumer and group go on."""
    configs: dict[str, Any] = {"group_protocol": protocol}
    if protocol == "classic":
        configs["heartbeat_interval_ms"] = 100
    consumer = join(Broken(where), **configs)
    if where == "revoked":
        assigned(consumer)
        other = join(**configs)
        error = raised_by_poll(consumer, other)
        assigned(consumer, other)
        other.close()
    else:
        error = raised_by_poll(consumer)
    assert "ValueError: out of cheese" in error.message
    assert f"partitions were {where}; the rebalance is complete" in str(error)
    assert type(error.__cause__) is ValueError
    works(consumer)


@both
def test_a_listener_that_raises_in_close(join: Opener, protocol: str) -> None:
    """G-13, L-02: the group is left nevertheless; its partitions are free at once."""
    consumer = join(Broken("revoked"), group_protocol=protocol)
    assigned(consumer)
    with pytest.raises(KafkaError, match="out of cheese") as caught:
        consumer.close()
    assert "the group was left nevertheless" in str(caught.value)
    works(join(group_protocol=protocol))


@both
def test_a_callback_that_raises(
    join: Opener, topic: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """C-02: it is logged; the commit was made, and everything goes on."""
    consumer = join(group_protocol=protocol)
    assigned(consumer)
    tp = TopicPartition(topic, 1)
    calls = []

    def fail(offsets: object, error: object) -> None:
        calls.append(error)
        raise ValueError("out of cheese")

    consumer.commit_async({tp: 7}, fail)
    until(lambda: [consumer.poll(50)] and calls, "the callback")
    assert calls == [None]
    assert "out of cheese" in caplog.text
    assert consumer.committed(tp) == 7
    works(consumer)


@both
def test_a_second_thread(join: Opener, protocol: str) -> None:
    """L-05: turned away by every call while the first one is inside; nothing is disturbed."""
    consumer = join(group_protocol=protocol)
    assigned(consumer)
    tp = min(consumer.assignment())
    woken: list[bool] = []

    def poll() -> None:
        while not woken:
            try:
                consumer.poll(10_000)
            except WakeupError:
                woken.append(True)
            except IllegalStateError:
                pass  # the test was inside for a moment

    first = threading.Thread(target=poll)
    first.start()
    calls: list[Callable[[], object]] = [
        lambda: consumer.poll(0),
        consumer.commit,
        lambda: consumer.committed(tp),
        lambda: consumer.seek(tp, 0),
        consumer.paused,
        consumer.unsubscribe,
        consumer.close,
    ]
    until(lambda: _is_refused(calls[0]), "the first thread is inside")
    assert all(map(_is_refused, calls))
    assert consumer.group_metadata().member_id  # a snapshot
    assert tp in consumer.assignment()
    consumer.wakeup()
    first.join()
    assert woken
    works(consumer)


def _is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except IllegalStateError as error:
        return "used by two threads at once" in error.message
    return False


def test_after_close(join: Opener, topic: str) -> None:
    """L-02: a second close does nothing; every other call says that the consumer is closed."""
    consumer = join()
    assigned(consumer)
    consumer.close()
    consumer.close()
    tp = TopicPartition(topic, 0)
    calls: list[Callable[[], object]] = [
        consumer.poll,
        consumer.commit,
        consumer.commit_async,
        lambda: consumer.committed(tp),
        consumer.group_metadata,
        consumer.enforce_rebalance,
        consumer.unsubscribe,
        lambda: consumer.subscribe([topic]),
    ]
    for call in calls:
        with pytest.raises(IllegalStateError, match="is closed"):
            call()
