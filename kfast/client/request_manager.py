"""RequestManager: the interface of everything that sends requests.

A request manager is sans-IO: it is polled by the network thread, returns the requests to send and
when to poll it again, and receives the outcomes as ``ResponseHandler``. It never blocks, never
reads a clock (time is an argument) and needs no lock, because only the network thread calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from kfast.client.request import UnsentRequest

NEVER_MS: Final = 1 << 40
"""``PollResult.next_poll_ms`` of a manager that has no deadline of its own (some 34 years)."""


@dataclass(slots=True, frozen=True)
class PollResult:
    """The outcome of one ``RequestManager.poll``."""

    requests: Sequence[UnsentRequest] = ()
    """To be given to ``NetworkClient.send`` in this order."""
    next_poll_ms: int = NEVER_MS
    """Milliseconds until the manager must be polled again even if nothing happens; 0 means at
    once."""


IDLE: Final = PollResult()
"""Nothing to send, no deadline."""


class RequestManager(Protocol):
    """Polled by the network thread once per turn of its loop."""

    def poll(self, now_ms: int) -> PollResult:
        """Return the requests to send now and the time of the next poll."""
        ...
