"""ErrorActions: a table of what to do on each error code.

Owns the set of actions and the rule for codes without a row, which follows the flags of Kafka's
error table. Every request manager has a table of its own. Stateless; any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, cast

from kfast.errors import error_info

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.errors import ErrorCode


class ErrorAction(Enum):
    """What to do about an error code in a response."""

    NONE = "no error"
    IGNORE = "nothing: the error has no effect on the sender"
    RETRY = "send again to the same broker after a back-off"
    REFRESH_METADATA = "request a metadata update, send again after a back-off"
    NEW_LEADER = "continue at the leader named in the response (KIP-951), else REFRESH_METADATA"
    FIND_COORDINATOR = "find the group coordinator, then send again"
    RESET_POSITION = "the log does not hold the fetch offset: reset by policy"
    NO_OFFSET = "the log has no such offset"
    TAKE_MEMBER_ID = "join again at once under the member id of the response (KIP-394)"
    REJOIN = "the group rebalances: join again, the membership is valid"
    RESET_GENERATION = "the generation is void: partitions lost, rejoin as the same member"
    RESET_MEMBER_ID = "member id and generation are void: partitions lost, join as a new member"
    FENCE_MEMBER = "the member is fenced: partitions lost, rejoin"
    STALE_EPOCH = "the member epoch is out of date: send again under the next one"
    FENCE_INSTANCE = "another consumer has taken over the group_instance_id"
    REPORT = "raise at the application's next call, send again after a back-off"
    FAIL = "raise at the application's next call, give up"


@dataclass(frozen=True, slots=True)
class ErrorActions:
    """The actions of one kind of request.

    ``rows`` decides first. A code without a row goes by its flags: to ``FIND_COORDINATOR`` if the
    request goes to a coordinator, to ``REFRESH_METADATA`` if it goes to a partition leader, else to
    ``retriable`` or ``otherwise``.
    """

    rows: Mapping[ErrorCode, ErrorAction]
    to_coordinator: bool = False
    to_leader: bool = False
    retriable: ErrorAction = ErrorAction.RETRY
    otherwise: ErrorAction = ErrorAction.FAIL

    def of(self, code: int) -> ErrorAction:
        """Return the action for an error code, whatever number it is."""
        action = cast("Mapping[int, ErrorAction]", self.rows).get(code)  # equal numbers
        if action is not None:
            return action
        info = error_info(code)
        if info.rediscover_coordinator and self.to_coordinator:
            return ErrorAction.FIND_COORDINATOR
        if info.refresh_metadata and self.to_leader:
            return ErrorAction.REFRESH_METADATA
        return self.retriable if info.retriable else self.otherwise
