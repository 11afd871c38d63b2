"""Refusals: how long a node is left alone, which nodes, and what ends it."""

from __future__ import annotations

from typing import Any

import pytest

from kfast._base.clock import ExponentialBackoff
from kfast.client.cluster import Node
from kfast.client.connection_states import (
    ClusterConnectionStates,
    ConnectionKey,
    ConnectionState,
)
from kfast.client.node_selection import least_loaded_node, ms_until_choice_changes
from kfast.client.refusals import Refusals
from kfast.client.request import Channel
from kfast.errors import AuthenticationError, DisconnectError, SslAuthenticationError
from tests.fake_clock import FakeClock

NODES = {number: Node(number, f"b{number}", 9092) for number in (1, 2, 3)}
NO = AuthenticationError("no")


def key(node_id: int, channel: Channel = Channel.DATA) -> ConnectionKey:
    return ConnectionKey(node_id, channel)


def states_of(clock: FakeClock) -> ClusterConnectionStates:
    backoff = ExponentialBackoff(50, 1_000, jitter=0)
    return ClusterConnectionStates(backoff, ExponentialBackoff(10_000, 30_000, jitter=0), clock)


def make_ready(states: ClusterConnectionStates, node_id: int, clock: FakeClock) -> None:
    states.connecting(key(node_id), NODES[node_id], clock.now)
    states.authenticating(key(node_id))
    states.checking_api_versions(key(node_id))
    states.ready(key(node_id))


def refuse(
    states: ClusterConnectionStates,
    node_id: int,
    clock: FakeClock,
    error: AuthenticationError = NO,
) -> None:
    states.connecting(key(node_id), NODES[node_id], clock.now)
    states.authenticating(key(node_id))
    states.disconnected(key(node_id), error, clock.now)
    assert states.state(key(node_id)) is ConnectionState.AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (NO, [11, 22, 44, 88, 176, 330, 330]),
        (SslAuthenticationError("expired", is_transient=True), [1, 2, 4, 8, 16, 30, 30]),
    ],
)
def test_the_time_doubles(error: AuthenticationError, waits: list[int]) -> None:
    """S-06"""
    clock = FakeClock()
    refusals = Refusals(clock)
    found = [refusals.refused(1, error, 0).until_ms // 1000 for _ in waits]
    assert found == waits


@pytest.mark.parametrize(("random", "wait_ms"), [(0.0, 9_900), (0.5, 11_000), (1.0, 12_100)])
def test_with_jitter(random: float, wait_ms: int) -> None:
    """S-06"""
    assert Refusals(FakeClock(random_value=random)).refused(1, NO, 0).until_ms == wait_ms


@pytest.mark.parametrize("random", [0.0, 0.5, 1.0])
def test_attempts_are_few_whatever_the_jitter(random: float) -> None:
    """S-06: at most two in the first ten seconds, and six in ten minutes."""
    refusals = Refusals(FakeClock(random_value=random))
    times = [0]
    while times[-1] < 600_000:
        times.append(refusals.refused(1, NO, times[-1]).until_ms)
    assert sum(ms <= 10_000 for ms in times) <= 2
    assert sum(ms < 600_000 for ms in times) <= 6


def test_the_counter_is_the_consumers() -> None:
    """S-06: a cluster of many brokers is not tried that many times as often."""
    clock = FakeClock()
    states = states_of(clock)
    make_ready(states, 3, clock)
    refuse(states, 1, clock)
    refuse(states, 2, clock)
    assert states.delay(key(1), clock.now) == 11_000
    assert states.delay(key(2), clock.now) == 22_000


def test_both_channels_of_a_node_are_left_alone() -> None:
    """S-06"""
    clock = FakeClock()
    states = states_of(clock)
    make_ready(states, 3, clock)
    refuse(states, 1, clock)
    for channel in Channel:
        assert not states.can_connect(key(1, channel), clock.now)
        assert states.delay(key(1, channel), clock.now) == 11_000
    assert states.can_connect(key(2), clock.now)
    assert states.delay(key(2), clock.now) == 0
    clock.advance(11_000)
    assert states.can_connect(key(1, Channel.COORDINATOR), clock.now)


def test_without_any_connection_no_other_node_is_tried() -> None:
    """S-06: with credentials that have never worked."""
    clock = FakeClock()
    states = states_of(clock)
    refuse(states, 1, clock)
    assert not states.can_connect(key(2), clock.now)
    assert states.delay(key(2), clock.now) == 11_000
    assert states.refusal(2, clock.now) is NO
    assert least_loaded_node(NODES, states, lambda _: 0, 5, clock.now, 0.0) is None
    assert ms_until_choice_changes(NODES, states, clock.now) == 11_000
    clock.advance(11_000)
    assert least_loaded_node(NODES, states, lambda _: 0, 5, clock.now, 0.0) is not None


def test_a_connection_that_works_starts_the_counter_over() -> None:
    """S-06"""
    clock = FakeClock()
    states = states_of(clock)
    refuse(states, 1, clock)
    clock.advance(11_000)
    make_ready(states, 1, clock)
    assert states.refusal(1, clock.now) is None
    assert not states.has_refusals
    states.disconnected(key(1), DisconnectError("lost"), clock.now)
    clock.advance(1_000)
    refuse(states, 1, clock)
    assert states.delay(key(1), clock.now) == 11_000


def test_a_refusal_ends_with_its_time_and_is_counted() -> None:
    """S-06: so that nothing is asked about a server that is not needed any more."""
    clock = FakeClock()
    states: Any = states_of(clock)
    refuse(states, 1, clock)
    states.end_refusals(clock.advance(10_999))
    assert states.has_refusals
    states.end_refusals(clock.advance(1))
    assert not states.has_refusals
    refuse(states, 2, clock)
    assert states.delay(key(2), clock.now) == 22_000


def test_changed_credentials_free_all_nodes() -> None:
    """S-06"""
    clock = FakeClock()
    states = states_of(clock)
    make_ready(states, 3, clock)
    refuse(states, 1, clock)
    refuse(states, 2, clock)
    states.credentials_changed()
    for node_id in (1, 2):
        assert states.can_connect(key(node_id), clock.now)
        assert states.state(key(node_id)) is ConnectionState.DISCONNECTED
    refuse(states, 1, clock)
    assert states.delay(key(1), clock.now) == 11_000


def test_a_refusal_is_no_reason_to_bootstrap_again() -> None:
    """S-06: other servers would be tried with the same credentials."""
    clock = FakeClock()
    states = states_of(clock)
    refuse(states, 1, clock)
    assert not states.is_unreachable(key(1), clock.now)
    assert list(states.setting_up()) == []


def test_nothing_is_sent_while_a_session_is_continued() -> None:
    """S-07"""
    clock = FakeClock()
    states = states_of(clock)
    make_ready(states, 1, clock)
    states.authenticating_again(key(1), is_begun=True)
    assert not states.is_ready(key(1), clock.now)
    assert states.delay(key(1), clock.now) > 1 << 30
    states.authenticating_again(key(1), is_begun=False)
    assert states.is_ready(key(1), clock.now)


def test_a_refused_session_is_a_lost_connection() -> None:
    """S-07: READY ends in DISCONNECTED, whatever the error."""
    clock = FakeClock()
    states = states_of(clock)
    make_ready(states, 1, clock)
    states.disconnected(key(1), DisconnectError("lost"), clock.now)
    assert states.state(key(1)) is ConnectionState.DISCONNECTED
    assert not states.has_refusals
