"""least_loaded_node: the node for a request that any broker can answer.

A pure function over states; the rules, best first:

1. READY, not muted, with room: fewest requests in flight, random start among equals
2. set-up began less than ``CONNECTING_GRACE_MS`` ago: wait for it, open no further connection
3. may connect now: the one whose last attempt is longest ago
4. set-up is taking longer
5. READY but muted or full: it will be usable again

A node in reconnect backoff is never chosen. Rule 2 keeps a client from opening connections to all
bootstrap servers at once, rule 3 before 4 from waiting for one that swallows packets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kfast.client.connection_states import (
    ClusterConnectionStates,
    ConnectionKey,
    ConnectionState,
)
from kfast.client.request import Channel

CONNECTING_GRACE_MS: Final = 1_000
"""How long a connection being set up keeps others from being opened for the same purpose."""

_READY, _YOUNG, _CONNECTABLE, _OLD, _BUSY = range(5)


def least_loaded_node(
    node_ids: Iterable[int],
    states: ClusterConnectionStates,
    in_flight_count: Callable[[ConnectionKey], int],
    max_in_flight: int,
    now_ms: int,
    random: float,
) -> int | None:
    """Return the best of these nodes, None if all are in backoff.

    A connection is full with ``max_in_flight`` requests; ``random``, in [0, 1), is where among
    equals to start.
    """
    ordered = sorted(node_ids)
    start = int(random * len(ordered))
    best: tuple[int, int] | None = None
    chosen: int | None = None
    for node_id in ordered[start:] + ordered[:start]:
        key = ConnectionKey(node_id, Channel.DATA)
        rank = _rank(key, states, in_flight_count(key), max_in_flight, now_ms)
        if rank is not None and (best is None or rank < best):
            best, chosen = rank, node_id
    return chosen


def _rank(
    key: ConnectionKey,
    states: ClusterConnectionStates,
    in_flight: int,
    max_in_flight: int,
    now_ms: int,
) -> tuple[int, int] | None:
    node_state = states.get(key)
    if node_state is None:
        return (_CONNECTABLE, 0) if states.can_connect(key, now_ms) else None
    if node_state.state is ConnectionState.READY:
        is_free = states.is_ready(key, now_ms) and in_flight < max_in_flight
        return (_READY if is_free else _BUSY), in_flight
    if node_state.is_down:
        return (_CONNECTABLE, node_state.attempt_ms) if states.can_connect(key, now_ms) else None
    age_ms = now_ms - node_state.attempt_ms
    return (_YOUNG if age_ms < CONNECTING_GRACE_MS else _OLD), -age_ms


def ms_until_choice_changes(
    node_ids: Iterable[int], states: ClusterConnectionStates, now_ms: int
) -> int:
    """Return the ms until time alone may make another node the best one."""
    waits = []
    for node_id in node_ids:
        key = ConnectionKey(node_id, Channel.DATA)
        node_state = states.get(key)
        if node_state is None and states.can_connect(key, now_ms):
            continue
        wait = states.delay(key, now_ms)
        if (
            node_state is not None
            and not node_state.is_down
            and node_state.state is not ConnectionState.READY
        ):
            wait = node_state.attempt_ms + CONNECTING_GRACE_MS - now_ms
        if wait > 0:
            waits.append(wait)
    return min(waits, default=1 << 40)
