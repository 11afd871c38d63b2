"""MetadataManager: what it sends, what it makes of answers, when it starts over."""

from __future__ import annotations

from typing import cast

import pytest

from kfast._native.buffers import copy_of
from kfast.client.metadata import Metadata
from kfast.client.metadata_manager import MetadataManager
from kfast.client.request import ClientResponse, UnsentRequest
from kfast.client.request_manager import NEVER_MS
from kfast.errors import DisconnectError
from kfast.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.fake_clock import FakeClock
from tests.unit.client.frames import metadata, partition, topic
from tests.unit.configs import config


class Driver:
    """A manager and its metadata, with the loop around them."""

    def __init__(self, **settings: object) -> None:
        self.clock = FakeClock()
        made = config(None, **settings)
        self.metadata = Metadata(made, self.clock)
        self.manager = MetadataManager(made, self.metadata)

    def poll(self) -> list[UnsentRequest]:
        return list(self.manager.poll(self.clock.now).requests)

    def ask(self) -> UnsentRequest:
        (request,) = self.poll()
        return request

    def answer(self, request: UnsentRequest, message: MetadataResponse, version: int = 13) -> None:
        response = ClientResponse(message, version, 1, copy_of(b""), 1)
        self.manager.handle_response(request, response, self.clock.now)

    def fail(self, request: UnsentRequest) -> None:
        self.manager.handle_failure(request, DisconnectError("gone"), self.clock.now)


def sent(request: UnsentRequest) -> MetadataRequest:
    return cast("MetadataRequest", request.message)


def test_one_request_at_a_time() -> None:
    """M-01: refresh, answer, age, refresh."""
    driver = Driver()
    driver.metadata.set_topics({"b", "a"})
    request = driver.ask()
    assert [t.name for t in sent(request).topics or ()] == ["a", "b"]
    assert request.node_id is None
    assert driver.poll() == [], "one is in flight"
    driver.answer(
        request, metadata(topic("a", partition(0)), topic("b", partition(0), id_number=8))
    )
    assert driver.manager.poll(driver.clock.now).next_poll_ms == 300_000
    driver.clock.advance(300_000)
    assert len(driver.poll()) == 1


def test_scope() -> None:
    """M-07: names, all topics, or brokers only."""
    driver = Driver()
    assert sent(driver.ask()).topics == []
    driver = Driver()
    driver.metadata.set_topics(None)
    assert sent(driver.ask()).topics is None


@pytest.mark.parametrize(
    ("settings", "topics", "creates"),
    [
        ({}, {"t"}, False),
        ({"allow_auto_create_topics": False}, {"t"}, False),
        ({"allow_auto_create_topics": True}, {"t"}, True),
        ({"allow_auto_create_topics": True}, None, False),
    ],
)
def test_reading_creates_no_topic(
    settings: dict[str, object], topics: set[str] | None, creates: bool
) -> None:
    """M-06: only an explicit True creates, and never for a pattern."""
    driver = Driver(**settings)
    driver.metadata.set_topics(topics)
    assert sent(driver.ask()).allow_auto_topic_creation is creates


def test_failures_back_off_and_are_tried_again() -> None:
    """M-01: a failed request is made again after a growing pause."""
    driver = Driver()
    waits = []
    for _ in range(5):
        driver.fail(driver.ask())
        waits.append(driver.manager.poll(driver.clock.now).next_poll_ms)
        driver.clock.advance(waits[-1])
    assert waits == [100, 200, 400, 800, 1000]


def test_an_answer_in_an_old_version_has_no_epochs() -> None:
    driver = Driver()
    driver.metadata.set_topics({"t"})
    driver.answer(driver.ask(), metadata(topic("t", partition(0, 1, 5))), version=7)
    assert driver.metadata.cluster.topics["t"].partitions[0].leader_epoch == -1


def test_a_broker_can_ask_for_a_rebootstrap() -> None:
    """M-10: top-level error 129 (KIP-1102)."""
    driver = Driver()
    driver.answer(driver.ask(), metadata(error=129))
    assert driver.metadata.take_rebootstrap_request() is not None
    assert driver.metadata.cluster.brokers == {}
    driver = Driver(metadata_recovery_strategy="none")
    driver.answer(driver.ask(), metadata(error=129))
    assert driver.metadata.take_rebootstrap_request() is None


def test_other_top_level_errors_are_failures() -> None:
    driver = Driver()
    driver.answer(driver.ask(), metadata(error=31))
    assert driver.metadata.cluster.brokers == {}
    assert driver.metadata.last_error is not None
    assert driver.metadata.last_error.code == 31
    assert driver.manager.poll(driver.clock.now).next_poll_ms == 100


def test_no_success_for_long_starts_over() -> None:
    """M-10: after metadata_recovery_rebootstrap_trigger_ms without an answer."""
    driver = Driver(metadata_recovery_rebootstrap_trigger_ms=5_000)
    driver.answer(driver.ask(), metadata())
    driver.clock.advance(300_000)
    request = driver.ask()
    assert driver.manager.poll(driver.clock.now).next_poll_ms == 5_000
    driver.clock.advance(4_999)
    driver.poll()
    assert driver.metadata.take_rebootstrap_request() is None
    driver.clock.advance(1)
    driver.poll()
    assert driver.metadata.take_rebootstrap_request() is not None
    assert driver.manager.poll(driver.clock.now).next_poll_ms == 5_000, "and again later"
    driver.fail(request)
    driver.clock.advance(100)
    driver.answer(driver.ask(), metadata())
    driver.clock.advance(5_000)
    driver.poll()
    assert driver.metadata.take_rebootstrap_request() is None, "a success ends the count"


def test_strategy_none_waits_for_ever() -> None:
    """M-10: metadata_recovery_strategy=none never starts over."""
    driver = Driver(
        metadata_recovery_strategy="none", metadata_recovery_rebootstrap_trigger_ms=5_000
    )
    driver.ask()
    driver.clock.advance(10_000_000)
    assert driver.manager.poll(driver.clock.now).next_poll_ms == NEVER_MS
    assert driver.metadata.take_rebootstrap_request() is None
