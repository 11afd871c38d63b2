"""What the fetcher does about the error code of one partition in a Fetch reply.

A table, and the rule for codes the table does not name. Values only.

| action | meaning |
|---|---|
| RETRY | ask again after a backoff |
| REFRESH | as RETRY, and renew the metadata |
| NEW_LEADER | apply the reply's hint (KIP-951) and go on there at once; else as REFRESH |
| OUT_OF_RANGE | the log does not hold the offset: reset by policy |
| RAISE | tell the user at every poll, ask again after a backoff: it may be mended meanwhile |

None of them moves the position but OUT_OF_RANGE. An error from a follower sends the partition back
to its leader at once, whatever the code (KIP-392).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from kfast.errors import error_info

if TYPE_CHECKING:
    from collections.abc import Mapping


class FetchErrorAction(Enum):
    """See the module's table."""

    RETRY = "retry"
    REFRESH = "refresh"
    NEW_LEADER = "new_leader"
    OUT_OF_RANGE = "out_of_range"
    RAISE = "raise"


FETCH_ERROR_ACTIONS: Final[Mapping[int, FetchErrorAction]] = {
    -1: FetchErrorAction.RETRY,  # UNKNOWN_SERVER_ERROR
    1: FetchErrorAction.OUT_OF_RANGE,  # OFFSET_OUT_OF_RANGE
    2: FetchErrorAction.RAISE,  # CORRUPT_MESSAGE: the broker's own copy is damaged
    3: FetchErrorAction.REFRESH,  # UNKNOWN_TOPIC_OR_PARTITION
    5: FetchErrorAction.REFRESH,  # LEADER_NOT_AVAILABLE
    6: FetchErrorAction.NEW_LEADER,  # NOT_LEADER_OR_FOLLOWER
    9: FetchErrorAction.REFRESH,  # REPLICA_NOT_AVAILABLE
    29: FetchErrorAction.RAISE,  # TOPIC_AUTHORIZATION_FAILED
    56: FetchErrorAction.REFRESH,  # KAFKA_STORAGE_ERROR
    74: FetchErrorAction.NEW_LEADER,  # FENCED_LEADER_EPOCH
    75: FetchErrorAction.RETRY,  # UNKNOWN_LEADER_EPOCH: the broker is behind
    78: FetchErrorAction.RETRY,  # OFFSET_NOT_AVAILABLE: a new leader, or a follower's tail
    100: FetchErrorAction.REFRESH,  # UNKNOWN_TOPIC_ID: deleted or created anew
    103: FetchErrorAction.REFRESH,  # INCONSISTENT_TOPIC_ID
}
"""The codes a Fetch reply is known to carry."""


def fetch_error_action(code: int) -> FetchErrorAction:
    """Return what to do about a partition's error code (not 0)."""
    action = FETCH_ERROR_ACTIONS.get(code)
    if action is not None:
        return action
    info = error_info(code)
    if info.refresh_metadata:
        return FetchErrorAction.REFRESH
    return FetchErrorAction.RETRY if info.retriable else FetchErrorAction.RAISE
