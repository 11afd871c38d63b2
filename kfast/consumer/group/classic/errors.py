"""What a member of a classic group does about every error of the group protocol, as data.

Owns the table of actions by exchange and code, and the words of the errors that reach the
application, which name the setting at fault. Stateless; any thread.

A retriable code that has no row of its own is waited out, everything else ends the membership with
an error.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from kfast.errors import error_info, exception_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.config import ConsumerConfig
    from kfast.errors import KafkaError


class Exchange(Enum):
    """Which request was answered with an error."""

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    COMMIT = "a commit"


class Action(Enum):
    """What to do about it."""

    IGNORE = auto()
    TAKE_MEMBER_ID = auto()
    """Join again at once under the member id of the answer (KIP-394)."""
    FORGET_MEMBER = auto()
    """Member id and generation are void: lose the partitions, join as a new member."""
    FORGET_GENERATION = auto()
    """The generation is void: lose the partitions, join again as the same member."""
    REJOIN = auto()
    """The group rebalances: join again, the membership is good."""
    REDISCOVER = auto()
    """Find the coordinator anew, then try again."""
    BACK_OFF = auto()
    """Try again later, at the same coordinator."""
    RAISE = auto()
    """Tell the application and try again later: permission may be granted any time."""
    FAIL = auto()
    """Tell the application; there is no way on."""


_LOST: Final = {22: Action.FORGET_GENERATION, 25: Action.FORGET_MEMBER}
_ANY: Final = {15: Action.REDISCOVER, 16: Action.REDISCOVER, 14: Action.BACK_OFF, 30: Action.RAISE}

ACTIONS: Final[Mapping[Exchange, Mapping[int, Action]]] = {
    Exchange.JOIN: {**_ANY, **_LOST, 27: Action.REJOIN, 79: Action.TAKE_MEMBER_ID},
    Exchange.SYNC: {**_ANY, **_LOST, 27: Action.REJOIN},
    Exchange.HEARTBEAT: {**_ANY, **_LOST, 27: Action.REJOIN},
    # Finding the coordinator and waiting are the committer's own business.
    Exchange.COMMIT: {**_LOST, 27: Action.REJOIN, 82: Action.FAIL},
}
"""Action by exchange and code, for the codes that are not FAIL or, being retriable, BACK_OFF."""

FENCED_INSTANCE_ID: Final = 82


def action_for(exchange: Exchange, code: int) -> Action:
    """Return what to do about an error code, whatever number it is."""
    action = ACTIONS[exchange].get(code)
    if action is not None:
        return action
    if exchange is Exchange.COMMIT:
        return Action.IGNORE
    return Action.BACK_OFF if error_info(code).retriable else Action.FAIL


_MESSAGES: Final[Mapping[int, tuple[str, str]]] = {
    23: (
        'cannot join group "{group_id}": it has no assignor in common with '
        "partition_assignment_strategy={assignors}",
        "give all members of the group one common partition_assignment_strategy",
    ),
    24: (
        'group_id "{group_id}" is not allowed',
        "choose another group_id",
    ),
    26: (
        'cannot join group "{group_id}": session_timeout_ms={session_timeout_ms} is outside the '
        "broker's limits",
        "set session_timeout_ms between group.min.session.timeout.ms and "
        "group.max.session.timeout.ms of the broker (6000 and 1800000 by default)",
    ),
    30: (
        'not allowed to use group "{group_id}"',
        "grant READ on the group to this user, or set another group_id",
    ),
    35: (
        'the coordinator of group "{group_id}" does not support this version of {exchange}',
        "upgrade the broker, or leave out what needs this version",
    ),
    81: (
        'cannot join group "{group_id}": it has as many members as the broker allows',
        "raise group.max.size on the broker, or set another group_id",
    ),
    FENCED_INSTANCE_ID: (
        'group_instance_id "{group_instance_id}" of group "{group_id}" was taken over by another '
        "consumer",
        "close this consumer, and give each one a group_instance_id of its own",
    ),
}


def membership_error(
    exchange: Exchange, code: int, config: ConsumerConfig, assignors: tuple[str, ...]
) -> KafkaError:
    """Return the error to raise for a code that a coordinator answered.

    Parameters
    ----------
    exchange : Exchange
        What was asked.
    code : int
        What was answered.
    config : ConsumerConfig
        The settings that the message names.
    assignors : tuple of str
        Names of the assignors on offer.
    """
    message, hint = _MESSAGES.get(
        code, ('{exchange} of group "{group_id}" was refused', "see the broker's log for why")
    )
    text = message.format(
        exchange=exchange.value,
        group_id=config.group_id,
        group_instance_id=config.group_instance_id,
        session_timeout_ms=config.session_timeout_ms,
        assignors=list(assignors),
    )
    return exception_for(code, text, hint=hint)
