"""An answer that waits for a group to get ready, as JoinGroup and SyncGroup do.

Owns one slot. The connection looks into it whenever it is asked for bytes; the group fills it. A
parked answer whose connection is gone is filled all the same, and nobody sees it, as on a broker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kfast.protocol.message import Message
from kfast.protocol.messages.join_group import JoinGroupResponse
from kfast.protocol.messages.sync_group import SyncGroupResponse
from tests.fake_broker.context import DelayedAnswer

NEVER_MS: Final = 1 << 62
ALWAYS_MS: Final = -1


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

    def until(self, due_ms: Callable[[], int | None], throttle_time_ms: int) -> DelayedAnswer:
        """Return the answer to give to the connection.

        Parameters
        ----------
        due_ms : callable
            Returns when something happens in the groups by time alone.
        throttle_time_ms : int
            To be sent with the answer.
        """

        def complete(_: bool) -> Message | None:
            if self.answer is not None:
                self.answer.throttle_time_ms = throttle_time_ms
            return self.answer

        # Filled by what happened on another connection, it is due at once.
        return DelayedAnswer(
            complete, NEVER_MS, lambda: due_ms() if self.answer is None else ALWAYS_MS
        )
