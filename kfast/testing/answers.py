"""Answers that handlers return: a response, or one that is sent later or in another version.

A handler is called once per request, under the cluster's lock. A Fetch without enough data gets a
``DelayedAnswer``; a JoinGroup or SyncGroup that waits for other members is ``Parked`` in the group.
A parked answer whose connection is gone is filled all the same, as on a broker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from kfast.protocol.message import Message
from kfast.protocol.messages.join_group import JoinGroupResponse
from kfast.protocol.messages.sync_group import SyncGroupResponse

NEVER_MS: Final = 1 << 62
ALWAYS_MS: Final = -1


@dataclass(frozen=True, slots=True)
class VersionedAnswer:
    """A response to encode in a version of its own."""

    message: Message
    version: int


@dataclass(frozen=True, slots=True)
class DelayedAnswer:
    """A response that may have to wait.

    Attributes
    ----------
    complete : callable
        Given whether the time is up, returns the response, or None to go on waiting. Called again
        whenever the cluster changed.
    deadline_ms : int
        When the time is up.
    due_ms : callable, optional
        Returns when to look again by time alone, None for never; default the deadline.
    """

    complete: Callable[[bool], Message | None]
    deadline_ms: int
    due_ms: Callable[[], int | None] | None = None

    def next_event_ms(self) -> int | None:
        """Return when something may happen by time alone."""
        return self.deadline_ms if self.due_ms is None else self.due_ms()


Answer: TypeAlias = Message | VersionedAnswer | DelayedAnswer


@dataclass(slots=True, eq=False)
class Parked:
    """A slot for one answer.

    Attributes
    ----------
    version : int
        Version the answer will be encoded in.
    answer : Message or None
        None as long as it waits.
    """

    version: int
    answer: JoinGroupResponse | SyncGroupResponse | None = None

    def until(self, due_ms: Callable[[], int | None]) -> DelayedAnswer:
        """Delay the answer until the group has filled it.

        Parameters
        ----------
        due_ms : callable
            When something happens in the groups by time alone.
        """
        # Filled by a request of another connection, it is due at once.
        return DelayedAnswer(
            lambda _: self.answer,
            NEVER_MS,
            lambda: due_ms() if self.answer is None else ALWAYS_MS,
        )
