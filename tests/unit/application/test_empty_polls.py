"""EmptyPolls: what is certain in the middle of a wait, and what is known at its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kfast.application.polling import EmptyPolls
from kfast.client.metadata import Metadata
from kfast.consumer.retried_errors import RetriedErrors
from kfast.consumer.subscription_state import SubscriptionState
from kfast.errors import ErrorCode, KafkaError, UnknownTopicOrPartitionError
from kfast.settings.offset_reset import RESET_EARLIEST
from kfast.types import TopicPartition
from tests.fake_clock import FakeClock
from tests.unit.client.frames import metadata, partition, topic
from tests.unit.configs import config


class Bench:
    """A subscription and metadata, without brokers."""

    def __init__(self, **configs: Any) -> None:
        self.clock = FakeClock()
        self.metadata = Metadata(config(**configs), self.clock)
        self.metadata.set_topics({"t", "orders"})
        self.subscriptions = SubscriptionState(RESET_EARLIEST)
        self.unreachable: KafkaError | None = None
        self.has_names = True
        runtime = SimpleNamespace(
            clock=self.clock,
            metadata=self.metadata,
            subscriptions=self.subscriptions,
            unreachable_since=lambda _: self.unreachable,
            why_unreachable=lambda: self.unreachable,
            bootstrap_error=lambda: None,
            retries=RetriedErrors(config(**configs)),
        )
        lookups = SimpleNamespace(missing_topic_error=self.named)
        self.empty_polls = EmptyPolls(cast("Any", runtime), cast("Any", lookups))

    def named(
        self, error: UnknownTopicOrPartitionError, *, is_urgent: bool
    ) -> UnknownTopicOrPartitionError | None:
        return error if self.has_names or is_urgent else None

    def refresh(self, *missing: str) -> None:
        """Take a Metadata response 400 ms later, without these topics."""
        self.clock.advance(400)
        known = [topic(name, partition(0, 1, 0)) for name in {"t", "orders"} - set(missing)]
        unknown = [topic(name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in missing]
        self.metadata.update(metadata(*known, *unknown), self.clock.now)

    def certain(self, *missing: str, refreshes: int = 8) -> list[str | None]:
        """Return the topics reported while metadata is refreshed."""
        found = []
        for _ in range(refreshes):
            self.refresh(*missing)
            try:
                self.empty_polls.raise_certain(0)
            except UnknownTopicOrPartitionError as error:
                found.append(error.topic)
        return found


def test_a_missing_topic_is_certain_after_a_second_and_reported_once() -> None:
    """E-13: each of several, and again after another subscription."""
    bench = Bench()
    bench.subscriptions.subscribe({"t", "orders"})
    assert bench.certain("orders", refreshes=3) == []
    assert bench.certain("orders", refreshes=1) == ["orders"]
    assert bench.certain("orders") == []
    assert bench.certain("orders", "t") == ["t"]
    bench.subscriptions.subscribe({"t", "orders"})
    assert bench.certain("orders", "t", refreshes=12) == ["orders", "t"]


def test_a_topic_that_appears_within_a_second_is_no_error() -> None:
    """E-13, M-05: brokers learn of it one after the other."""
    bench = Bench()
    bench.subscriptions.subscribe({"orders"})
    assert bench.certain("orders", refreshes=3) == []
    assert bench.certain() == []
    bench.empty_polls.raise_known(is_end=False)


def test_an_end_that_comes_first_says_what_is_known() -> None:
    """E-13: one response is enough to explain an empty poll."""
    bench = Bench()
    bench.subscriptions.subscribe({"orders"})
    bench.refresh("orders")
    with pytest.raises(UnknownTopicOrPartitionError):
        bench.empty_polls.raise_known(is_end=False)
    bench.empty_polls.raise_known(is_end=False)  # once


def test_a_poll_does_not_wait_for_the_nearest_name() -> None:
    """Y-08: it is empty meanwhile; the end of an iteration is raised without it."""
    bench = Bench()
    bench.subscriptions.subscribe({"orders"})
    bench.refresh("orders")
    bench.has_names = False
    bench.empty_polls.raise_known(is_end=False)
    bench.has_names = True
    with pytest.raises(UnknownTopicOrPartitionError):
        bench.empty_polls.raise_known(is_end=False)
    bench = Bench()
    bench.subscriptions.subscribe({"orders"})
    bench.refresh("orders")
    bench.has_names = False
    with pytest.raises(UnknownTopicOrPartitionError):
        bench.empty_polls.raise_known(is_end=True)


def test_a_topic_that_is_being_created_is_no_error_before_it_is_certain() -> None:
    """E-13, M-06: the first responses of a broker that creates it are without it."""
    bench = Bench(allow_auto_create_topics=True)
    bench.subscriptions.subscribe({"orders"})
    bench.refresh("orders")
    bench.empty_polls.raise_known(is_end=False)
    assert bench.certain("orders") == ["orders"]


def test_an_assigned_topic_is_waited_for_but_not_a_partition() -> None:
    """E-13, M-05: the topic may come; the partition of one that exists is a mistake."""
    bench = Bench()
    bench.subscriptions.assign_from_user({TopicPartition("orders", 0), TopicPartition("t", 3)})
    assert bench.certain("orders", refreshes=6) == ["t"]
    assert bench.certain("orders") == []
    bench.empty_polls.raise_known(is_end=True)


def test_an_iteration_ends_with_the_reason_even_in_the_first_second() -> None:
    """E-13: a poll is made again, an iteration is not."""
    bench = Bench()
    bench.subscriptions.subscribe({"t"})
    bench.unreachable = KafkaError("no broker")
    bench.empty_polls.raise_known(is_end=False)
    with pytest.raises(KafkaError, match="no broker"):
        bench.empty_polls.raise_known(is_end=True)
