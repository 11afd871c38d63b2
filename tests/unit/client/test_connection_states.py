"""ClusterConnectionStates: transitions, backoff, set-up time, throttling."""

from __future__ import annotations

import pytest

from kfast._base.clock import ExponentialBackoff
from kfast.client.cluster import Node
from kfast.client.connection_states import (
    MAX_THROTTLE_MS,
    ClusterConnectionStates,
    ConnectionKey,
    ConnectionState,
)
from kfast.client.node_addresses import Address
from kfast.client.request import Channel
from kfast.client.request_manager import NEVER_MS
from kfast.errors import IllegalStateError, KafkaConnectionError
from tests.fake_clock import FakeClock

KEY = ConnectionKey(1, Channel.DATA)
NODE = Node(1, "b1", 9092)
ERROR = KafkaConnectionError("no")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def states(clock: FakeClock) -> ClusterConnectionStates:
    return ClusterConnectionStates(
        ExponentialBackoff(50, 1_000), ExponentialBackoff(10_000, 30_000), clock
    )


def reach_ready(states: ClusterConnectionStates, clock: FakeClock) -> int:
    states.connecting(KEY, NODE, clock.now)
    states.checking_api_versions(KEY)
    return states.ready(KEY)


def test_the_way_to_ready(states: ClusterConnectionStates, clock: FakeClock) -> None:
    assert states.can_connect(KEY, clock.now)
    assert states.delay(KEY, clock.now) == 0
    states.connecting(KEY, NODE, clock.now)
    assert states.state(KEY) is ConnectionState.CONNECTING
    assert states.delay(KEY, clock.now) == NEVER_MS
    states.checking_api_versions(KEY)
    assert not states.is_ready(KEY, clock.now)
    states.ready(KEY)
    assert states.is_ready(KEY, clock.now)
    assert not states.can_connect(KEY, clock.now)


def test_impossible_transitions_are_bugs(states: ClusterConnectionStates, clock: FakeClock) -> None:
    states.connecting(KEY, NODE, clock.now)
    with pytest.raises(IllegalStateError):
        states.ready(KEY)
    with pytest.raises(IllegalStateError):
        states.connecting(KEY, NODE, clock.now)


def test_reconnects_back_off_and_start_over_when_ready(
    states: ClusterConnectionStates, clock: FakeClock
) -> None:
    """N-09: from reconnect_backoff_ms to the maximum, per node, reset on READY."""
    waits = []
    for _ in range(7):
        states.connecting(KEY, NODE, clock.now)
        states.disconnected(KEY, ERROR, clock.now)
        waits.append(states.delay(KEY, clock.now))
        assert not states.can_connect(KEY, clock.now)
        assert states.is_unreachable(KEY, clock.now)
        clock.advance(waits[-1])
        assert states.can_connect(KEY, clock.now)
    assert waits == [50, 100, 200, 400, 800, 1000, 1000]
    other = ConnectionKey(2, Channel.DATA)
    assert states.can_connect(other, clock.now), "another node is not concerned"
    assert reach_ready(states, clock) == 7
    states.disconnected(KEY, ERROR, clock.now)
    assert states.delay(KEY, clock.now) == 50
    assert not states.is_unreachable(KEY, clock.now), "a lost connection is no failed attempt"


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 40), (0.9999, 60)])
def test_reconnects_are_spread(
    states: ClusterConnectionStates, clock: FakeClock, chance: float, wait: int
) -> None:
    """N-09: 20 % jitter."""
    clock.random_value = chance
    states.connecting(KEY, NODE, clock.now)
    states.disconnected(KEY, ERROR, clock.now)
    assert states.delay(KEY, clock.now) == wait


def test_slow_set_ups_get_more_time(states: ClusterConnectionStates, clock: FakeClock) -> None:
    """N-08: doubling to the maximum after time-outs only, reset on READY."""
    allowed = []
    for timed_out in (True, True, False, True, True):
        known = states.connecting(KEY, NODE, clock.now)
        allowed.append(known.deadline_ms - clock.now)
        states.disconnected(KEY, ERROR, clock.now, timed_out=timed_out)
        clock.advance(1_000)
    assert allowed == [10_000, 20_000, 30_000, 30_000, 30_000]
    reach_ready(states, clock)
    states.disconnected(KEY, ERROR, clock.now)
    clock.advance(1_000)
    known = states.connecting(KEY, NODE, clock.now)
    assert known.deadline_ms - clock.now == 10_000


def test_each_step_of_a_set_up_has_the_time_up_to_the_maximum(
    states: ClusterConnectionStates, clock: FakeClock
) -> None:
    """Y-02: TCP, TLS, and each answer of a log-in; what is no news changes nothing."""
    known = states.connecting(KEY, NODE, clock.now)
    begun_ms = clock.now
    ends = []
    for steps in (0, 1, 2, 2, 3, 4, 5):
        clock.advance(5_000)
        states.progressed(KEY, steps, clock.now)
        ends.append(known.deadline_ms - begun_ms)
    assert ends == [10_000, 20_000, 25_000, 25_000, 30_000, 30_000, 30_000]
    states.disconnected(KEY, ERROR, clock.now, timed_out=True)
    clock.advance(1_000)
    known = states.connecting(KEY, NODE, clock.now)
    states.progressed(KEY, 1, clock.now + 1)
    assert known.deadline_ms == clock.now + 1 + 20_000


def test_a_good_close_has_no_backoff(states: ClusterConnectionStates, clock: FakeClock) -> None:
    """N-11: an idle connection re-opens on demand."""
    reach_ready(states, clock)
    states.closed(KEY)
    assert states.can_connect(KEY, clock.now)
    known = states.get(KEY)
    assert known is not None
    assert known.last_error is None


def test_throttling_mutes_one_connection(states: ClusterConnectionStates, clock: FakeClock) -> None:
    """N-12: only the connection concerned, and never for longer than the clamp."""
    other = ConnectionKey(1, Channel.COORDINATOR)
    reach_ready(states, clock)
    states.connecting(other, NODE, clock.now)
    states.checking_api_versions(other)
    states.ready(other)
    states.throttle(KEY, clock.now + 500, clock.now)
    states.throttle(KEY, clock.now + 100, clock.now)
    assert not states.is_ready(KEY, clock.now)
    assert states.is_ready(other, clock.now)
    assert states.delay(KEY, clock.now) == 500
    assert states.is_ready(KEY, clock.advance(500))
    states.throttle(KEY, clock.now + 2**31 - 1, clock.now)
    assert states.delay(KEY, clock.now) == MAX_THROTTLE_MS


def test_a_node_at_another_endpoint_starts_afresh(
    states: ClusterConnectionStates, clock: FakeClock
) -> None:
    """N-10: failures of the old host do not count against the new one."""
    for _ in range(3):
        states.connecting(KEY, NODE, clock.now)
        states.disconnected(KEY, ERROR, clock.now)
        clock.advance(1_000)
    known = states.connecting(KEY, Node(1, "elsewhere", 9092), clock.now)
    assert known.failed_attempts == 0
    assert known.last_error is None


def test_addresses_follow_the_outcome(states: ClusterConnectionStates, clock: FakeClock) -> None:
    """N-10: the next address after a failure, a new look-up after a loss, the lost one last."""
    first, second = (Address(2, (ip, 9092)) for ip in ("10.0.0.1", "10.0.0.2"))
    known = states.connecting(KEY, NODE, clock.now)
    known.addresses.resolved([first, second])
    states.disconnected(KEY, ERROR, clock.now)
    assert known.addresses.current == second
    clock.advance(1_000)
    states.connecting(KEY, NODE, clock.now)
    states.checking_api_versions(KEY)
    states.ready(KEY)
    states.disconnected(KEY, ERROR, clock.now)
    assert known.addresses.needs_resolving
    known.addresses.resolved([second, first])
    assert known.addresses.ips == ["10.0.0.1", "10.0.0.2"]
