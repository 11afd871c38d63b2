"""Refusals: nodes that refused this consumer's credentials, or that it refused itself.

Sans-IO, network thread only, time is an argument. A refusal does not get better by trying, and some
servers lock an account after a few wrong passwords. So a node is left alone for some time, and
every call that needs it is given the same error meanwhile:

=====================  ==================================  =========================================
refused                left alone for                      until then also
=====================  ==================================  =========================================
credentials            10 to 12 s, doubling to 5 minutes   every node, unless one is connected
what may pass          1 s, doubling to 30 s, +-20 %       the same
=====================  ==================================  =========================================

The counter is the consumer's: a cluster of many brokers is not tried that many times as often. It
starts over when a connection works, and all nodes are free again when the credentials change.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final, NamedTuple

from kfast._base.clock import Clock, ExponentialBackoff

if TYPE_CHECKING:
    from kfast.errors import AuthenticationError

BACKOFF: Final = ExponentialBackoff(11_000, 330_000, jitter=0.1)
"""Never less than 10 s, and six attempts in ten minutes at most."""

TRANSIENT_BACKOFF: Final = ExponentialBackoff(1_000, 30_000)


def again(error: AuthenticationError) -> AuthenticationError:
    """Return an error to be raised once more: each of them has a traceback of its own."""
    twin = copy.copy(error)
    twin.__cause__ = error.__cause__
    return twin


class Refusal(NamedTuple):
    """Why a node is left alone, and until when."""

    error: AuthenticationError
    until_ms: int


class Refusals:
    """The refusals of one consumer. The clock is a source of jitter only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_node: dict[int, Refusal] = {}
        self._last: Refusal | None = None
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._by_node)

    def refused(self, node_id: int, error: AuthenticationError, now_ms: int) -> Refusal:
        """Note a refusal; return until when the node is left alone."""
        backoff = TRANSIENT_BACKOFF if error.is_transient else BACKOFF
        refusal = Refusal(error, now_ms + backoff.backoff_ms(self._count, self._clock))
        self._count += 1
        self._by_node[node_id] = self._last = refusal
        return refusal

    def accepted(self, node_id: int) -> None:
        """Note that a connection works: the credentials are good."""
        self._by_node.pop(node_id, None)
        self._last = None
        self._count = 0

    def end(self, now_ms: int) -> None:
        """Drop the refusals whose time is over; what counts them stays."""
        for node_id in [n for n, refusal in self._by_node.items() if refusal.until_ms <= now_ms]:
            del self._by_node[node_id]

    def clear(self) -> None:
        """Forget everything: the credentials have changed."""
        self._by_node.clear()
        self._last = None
        self._count = 0

    def of(self, node_id: int, now_ms: int, *, is_any_ready: bool) -> Refusal | None:
        """Return why a node is left alone now, None if it is not."""
        own = self._by_node.get(node_id)
        if own is not None and now_ms < own.until_ms:
            return own
        last = self._last
        if last is not None and not is_any_ready and now_ms < last.until_ms:
            return last
        return None

    def __repr__(self) -> str:
        return f"<Refusals of {sorted(self._by_node)} count={self._count}>"
