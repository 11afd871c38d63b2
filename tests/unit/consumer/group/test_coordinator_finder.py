"""CoordinatorFinder: which broker coordinates the group."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from kfast.client.cluster import Cluster
from kfast.client.request import Channel, UnsentRequest
from kfast.errors import (
    AuthenticationError,
    CoordinatorNotAvailableError,
    DisconnectError,
    GroupAuthorizationError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.unit.configs import config
from tests.unit.consumer.group.coordinator_harness import COORDINATOR, GROUP
from tests.unit.consumer.group.harness import GroupHarness

LOST = KafkaError("gone")


def seeking(**configs: Any) -> GroupHarness:
    harness = GroupHarness(**configs)
    assert harness.finder.require(harness.now)
    return harness


def question(request: UnsentRequest) -> FindCoordinatorRequest:
    assert isinstance(request.message, FindCoordinatorRequest)
    return request.message


def test_it_asks_only_when_the_coordinator_is_required() -> None:
    harness = GroupHarness()
    assert harness.nothing_sent(FindCoordinatorRequest)
    assert harness.finder.require(harness.now)
    assert not harness.finder.require(harness.now), "no news"
    request = harness.take(FindCoordinatorRequest)
    assert harness.nothing_sent(FindCoordinatorRequest), "one at a time"
    harness.answer_coordinator(request, 2)
    assert harness.coordinator() == 2
    assert not harness.finder.is_needed
    assert not harness.finder.require(harness.now)
    assert harness.nothing_sent(FindCoordinatorRequest)


@pytest.mark.parametrize("newest", [2, 3, 4, 6])
def test_both_shapes_of_the_question(newest: int) -> None:
    """One key up to version 3, a list from 4 on; the least loaded broker is asked."""
    harness = seeking()
    harness.connections.newest[ApiKey.FIND_COORDINATOR] = newest
    request = harness.take(FindCoordinatorRequest)
    assert request.node_id == harness.connections.least_loaded_node(harness.now)
    assert request.channel is Channel.DATA
    assert (request.min_version, request.max_version) == (newest, newest)
    message = question(request)
    assert message.key_type == 0
    assert (message.key, message.coordinator_keys) == (
        ("", [GROUP]) if newest >= 4 else (GROUP, [])
    )
    harness.answer_coordinator(request, 3)
    assert harness.coordinator() == 3


def test_an_unknown_broker_becomes_known() -> None:
    harness = seeking()
    harness.answer_coordinator(harness.take(FindCoordinatorRequest), 9, host="b9", port=9999)
    assert harness.coordinator() == 9
    assert harness.metadata.cluster.brokers[9][:3] == (9, "b9", 9999)
    assert set(harness.metadata.cluster.brokers) == {1, 2, 3, 9}


def test_a_coordinator_at_another_address_than_known_refreshes_the_metadata() -> None:
    harness = seeking()
    harness.metadata._is_update_needed = False
    harness.answer_coordinator(harness.take(FindCoordinatorRequest), 2, host="moved")
    assert harness.coordinator() == 2
    assert harness.metadata.is_update_needed


def test_no_metadata_no_question() -> None:
    """A coordinator alone must not become the whole cluster."""
    harness = seeking()
    harness.metadata.cluster = Cluster()
    assert harness.nothing_sent(FindCoordinatorRequest)
    assert harness.metadata.is_update_needed
    assert 0 < harness.next_poll_ms <= 100


@pytest.mark.parametrize("code", [14, 15, 16, -1, 7, 12345])
def test_errors_that_pass_are_retried_with_growing_pauses(code: int) -> None:
    """15 is usual on a fresh cluster while __consumer_offsets is created."""
    harness = seeking()
    pauses = []
    for _ in range(5):
        harness.answer_coordinator(harness.take(FindCoordinatorRequest), error=code)
        assert harness.nothing_sent(FindCoordinatorRequest)
        assert not harness.finder_errors
        assert harness.finder.last_failure is not None
        pauses.append(harness.next_poll_ms)
        harness.clock.advance(harness.next_poll_ms)
    assert pauses == sorted(pauses)
    assert 50 <= pauses[0] < pauses[-1] <= 1000
    harness.find()
    assert harness.coordinator() == COORDINATOR


@pytest.mark.parametrize(
    "error", [DisconnectError("gone"), KafkaTimeoutError("late"), CoordinatorNotAvailableError()]
)
def test_no_answer_is_retried(error: KafkaError) -> None:
    harness = seeking()
    harness.lose(harness.take(FindCoordinatorRequest), error)
    assert harness.nothing_sent(FindCoordinatorRequest)
    harness.advance(1000)
    harness.find()
    assert harness.coordinator() == COORDINATOR


@pytest.mark.parametrize(
    ("node_id", "host", "port"),
    [(-1, "b1", 9092), (-5, "b1", 9092), (2, "", 9092), (2, "b2", 0), (2, "b2", 70_000)],
)
def test_impossible_addresses_are_no_coordinator(node_id: int, host: str, port: int) -> None:
    """Every number is hostile: a negative id would be a bootstrap server."""
    harness = seeking()
    harness.answer_coordinator(harness.take(FindCoordinatorRequest), node_id, host=host, port=port)
    assert harness.coordinator() is None
    assert set(harness.metadata.cluster.brokers) == {1, 2, 3}
    harness.advance(1000)
    assert not harness.nothing_sent(FindCoordinatorRequest)


def test_an_answer_about_another_group_is_none() -> None:
    harness = seeking()
    harness.answer_coordinator(harness.take(FindCoordinatorRequest), key="other")
    assert harness.coordinator() is None
    harness.advance(1000)
    harness.find()
    assert harness.coordinator() == COORDINATOR


def test_a_group_that_may_not_be_used_is_raised_and_tried_again() -> None:
    """S-08: 30 names the group; usable again once granted."""
    harness = seeking()
    reported: list[tuple[KafkaError, int]] = []
    harness.finder.add_error_listener(lambda error, now_ms: reported.append((error, now_ms)))
    harness.answer_coordinator(
        harness.take(FindCoordinatorRequest), error=30, message="Not authorized."
    )
    (error,) = harness.finder_errors
    assert isinstance(error, GroupAuthorizationError)
    assert f'"{GROUP}"' in error.message
    assert error.hint is not None
    assert error.found == "Not authorized."
    assert reported == [(error, harness.now)]
    assert harness.failure() is error
    harness.advance(1000)
    assert harness.nothing_sent(FindCoordinatorRequest), "no manager requires it any more"
    assert harness.finder.require(harness.now)
    harness.find()
    assert harness.coordinator() == COORDINATOR
    assert harness.failure() is None
    assert harness.finder_errors == [error]


def test_after_a_fatal_error_it_does_not_ask_in_a_loop() -> None:
    harness = seeking()
    for tries in range(1, 6):
        harness.answer_coordinator(harness.take(FindCoordinatorRequest), error=24)
        assert isinstance(harness.finder_errors[-1], InvalidGroupIdError)
        assert len(harness.finder_errors) == tries
        harness.finder.require(harness.now)
        assert harness.nothing_sent(FindCoordinatorRequest)
        harness.advance(harness.next_poll_ms)
    assert harness.now - 1_000_000 >= 500


def test_a_refused_login_or_version_is_fatal() -> None:
    for error in (AuthenticationError("wrong password"), UnsupportedVersionError("old")):
        harness = seeking()
        harness.lose(harness.take(FindCoordinatorRequest), error)
        assert harness.finder_errors == [error]


def test_a_broker_without_the_api() -> None:
    harness = seeking()
    harness.connections.newest[ApiKey.FIND_COORDINATOR] = -1
    assert harness.nothing_sent(FindCoordinatorRequest)
    assert [type(error) for error in harness.finder_errors] == [UnsupportedVersionError]


def test_a_broker_that_is_not_ready_is_waited_for() -> None:
    harness = seeking()
    harness.connections.down = {1, 2, 3}
    assert harness.nothing_sent(FindCoordinatorRequest)
    assert harness.next_poll_ms == harness.connections.delay_ms
    harness.connections.down.clear()
    assert not harness.nothing_sent(FindCoordinatorRequest)


def test_marked_unknown_it_is_searched_when_required(caplog: pytest.LogCaptureFixture) -> None:
    """G-04: whoever saw the reason says so."""
    harness = seeking()
    harness.find()
    harness.advance(60_000)
    with caplog.at_level(logging.INFO, "kfast"):
        harness.finder.mark_unknown("NOT_COORDINATOR", harness.now)
        harness.finder.mark_unknown("again", harness.now)
    assert "Coordinator 2 of group g is lost: NOT_COORDINATOR" in caplog.text
    assert "again" not in caplog.text
    assert harness.coordinator() is None
    assert harness.nothing_sent(FindCoordinatorRequest)
    harness.finder.require(harness.now)
    harness.find(3)
    assert harness.coordinator() == 3


def test_late_reasons_about_an_older_coordinator_do_not_count() -> None:
    harness = seeking()
    harness.find(2)
    harness.finder.mark_unknown("late", harness.now, node_id=1)
    assert harness.coordinator() == 2
    harness.finder.mark_unknown("now", harness.now, node_id=2)
    assert harness.coordinator() is None


def test_a_coordinator_lost_again_and_again_is_searched_with_a_back_off() -> None:
    """The answer may name a dead broker for as long as the cluster has not noticed."""
    harness = seeking()
    start = harness.now
    questions = 0
    while harness.now - start < 20_000:
        harness.find()
        questions += 1
        harness.finder.mark_unknown("refused", harness.now)
        harness.finder.require(harness.now)
        harness.turn()
        harness.clock.advance(harness.next_poll_ms)
    assert questions <= 26


def test_a_lost_connection_is_noticed_with_nothing_in_flight() -> None:
    """G-04: each failure of the coordinator's own connection counts once."""
    harness = seeking()
    harness.find()
    key = (COORDINATOR, Channel.COORDINATOR)
    harness.connections.channel_errors[COORDINATOR, Channel.DATA] = DisconnectError("data")
    harness.turn()
    assert harness.coordinator() == COORDINATOR, "the fetches' connection is another one"
    harness.connections.channel_errors[key] = DisconnectError("gone")
    harness.turn()
    assert harness.coordinator() is None
    harness.finder.require(harness.now)
    harness.advance(1000)
    harness.find()
    harness.turn()
    assert harness.coordinator() == COORDINATOR, "that failure is known already"
    harness.connections.channel_errors[key] = DisconnectError("gone again")
    harness.turn()
    assert harness.coordinator() is None


def test_a_coordinator_that_refuses_the_login() -> None:
    harness = seeking()
    harness.find()
    error = AuthenticationError("wrong password")
    harness.connections.channel_errors[COORDINATOR, Channel.COORDINATOR] = error
    harness.turn()
    assert harness.coordinator() is None
    assert harness.finder_errors == [error]


def test_without_a_group_there_is_no_coordinator() -> None:
    harness = GroupHarness()
    with pytest.raises(IllegalStateError):
        type(harness.finder)(replace(harness.context, config=config()))
    assert "unknown" in repr(harness.finder)
