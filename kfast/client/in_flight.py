"""InFlightRequests: the requests sent on one connection and not yet answered.

Sans-IO. A broker answers strictly in the order of sending, so this is a queue: the oldest entry
must match the next response. Correlation ids only prove that both sides agree.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfast.client.request import UnsentRequest
from kfast.client.request_manager import NEVER_MS

if TYPE_CHECKING:
    from kfast.protocol.messages import ResponseReader


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """One request that waits for its response."""

    request: UnsentRequest
    api_version: int
    correlation_id: int
    sent_ms: int
    deadline_ms: int
    """When the response is overdue."""
    has_header_tags: bool
    """Whether the response's header has a tag section."""
    read: ResponseReader
    """Reads the response's body."""


class InFlightRequests(deque[InFlightRequest]):
    """A queue of ``InFlightRequest`` in the order of sending: the oldest is first."""

    __slots__ = ()

    def oldest(self) -> InFlightRequest | None:
        """Return the request whose response comes next."""
        return self[0] if self else None

    def take_all(self) -> list[InFlightRequest]:
        """Remove and return all, oldest first."""
        entries = list(self)
        self.clear()
        return entries

    def next_deadline_ms(self) -> int:
        """Return the earliest deadline, ``NEVER_MS`` when nothing is in flight.

        Not always the oldest request's: a JoinGroup may wait longer than what follows it.
        """
        return min((entry.deadline_ms for entry in self), default=NEVER_MS)

    def most_overdue(self) -> InFlightRequest:
        """Return the request with the earliest deadline; only when something is in flight."""
        return min(self, key=lambda entry: entry.deadline_ms)

    def postpone(self, ms: int) -> None:
        """Move all deadlines, for time in which this side chose not to read."""
        for entry in self:
            entry.deadline_ms += ms

    def __repr__(self) -> str:
        names = [entry.request.message.NAME for entry in self]
        return f"<InFlightRequests {names}>"
