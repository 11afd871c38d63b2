"""Which node gets a request that any broker can answer."""

from __future__ import annotations

import pytest

from kfast._base.clock import ExponentialBackoff
from kfast.client.cluster import Node
from kfast.client.connection_states import ClusterConnectionStates, ConnectionKey
from kfast.client.node_selection import (
    CONNECTING_GRACE_MS,
    least_loaded_node,
    ms_until_choice_changes,
)
from kfast.client.request import Channel
from kfast.errors import KafkaConnectionError
from tests.fake_clock import FakeClock

IDS = (1, 2, 3)


class Board:
    """States of three nodes and a choice among them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.states = ClusterConnectionStates(
            ExponentialBackoff(50, 1_000), ExponentialBackoff(10_000, 30_000), self.clock
        )
        self.in_flight: dict[int, int] = {}

    def connecting(self, node_id: int) -> ConnectionKey:
        key = ConnectionKey(node_id, Channel.DATA)
        self.states.connecting(key, Node(node_id, "h", 1), self.clock.now)
        return key

    def ready(self, node_id: int, in_flight: int = 0) -> ConnectionKey:
        key = self.connecting(node_id)
        self.states.checking_api_versions(key)
        self.states.ready(key)
        self.in_flight[node_id] = in_flight
        return key

    def failed(self, node_id: int) -> None:
        key = self.connecting(node_id)
        self.states.disconnected(key, KafkaConnectionError("no"), self.clock.now)

    def choose(self, random: float = 0.0) -> int | None:
        return least_loaded_node(
            IDS,
            self.states,
            lambda key: self.in_flight.get(key.node_id, 0),
            5,
            self.clock.now,
            random,
        )

    def wait(self) -> int:
        return ms_until_choice_changes(IDS, self.states, self.clock.now)


@pytest.fixture
def board() -> Board:
    return Board()


def test_the_start_is_random(board: Board) -> None:
    """N-13: clients of one cluster do not all begin with the same broker."""
    assert [board.choose(r) for r in (0.0, 0.4, 0.99)] == [1, 2, 3]


def test_ready_nodes_with_fewest_in_flight_first(board: Board) -> None:
    """N-13: whatever the start."""
    board.ready(1, in_flight=2)
    board.ready(2, in_flight=1)
    assert {board.choose(r) for r in (0.0, 0.4, 0.99)} == {2}


def test_muted_and_full_nodes_come_last(board: Board) -> None:
    """N-13, N-12: a connectable node is better than one that cannot take a request now."""
    muted = board.ready(1)
    board.states.throttle(muted, board.clock.now + 500, board.clock.now)
    board.ready(2, in_flight=5)
    assert board.choose() == 3
    board.failed(3)
    assert board.choose() in {1, 2}, "but better than none"
    assert board.wait() == 50


def test_a_connection_being_made_is_awaited_for_a_moment(board: Board) -> None:
    """N-13: then the next node is tried beside it."""
    board.connecting(1)
    assert board.choose(0.5) == 1
    assert board.wait() == CONNECTING_GRACE_MS
    board.clock.advance(CONNECTING_GRACE_MS)
    assert board.choose() == 2
    board.connecting(2)
    board.clock.advance(CONNECTING_GRACE_MS)
    board.failed(3)
    assert board.choose() in {1, 2}, "waiting is all that is left"


def test_no_node_in_backoff(board: Board) -> None:
    """N-13: None rather than a node that must not be connected now."""
    for node_id in IDS:
        board.failed(node_id)
    assert board.choose() is None
    assert board.wait() == 50
    board.clock.advance(50)
    assert board.choose() is not None


def test_the_longest_untried_is_tried_first(board: Board) -> None:
    board.failed(1)
    board.clock.advance(10)
    board.failed(2)
    board.clock.advance(10)
    board.failed(3)
    board.clock.advance(1_000)
    assert {board.choose(r) for r in (0.0, 0.4, 0.99)} == {1}


def test_no_nodes_no_choice() -> None:
    board = Board()
    assert least_loaded_node((), board.states, lambda key: 0, 5, 0, 0.5) is None
