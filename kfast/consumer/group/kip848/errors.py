"""Error codes of ConsumerGroupHeartbeat: table of actions, and the errors raised.

The messages name the setting at fault and quote the broker. Stateless; any thread.

| code | action |
|---|---|
| 14 and other retriable codes | back off, same coordinator |
| 15, 16 | find the coordinator, send again |
| 25, 110 | the member is fenced: partitions lost, rejoin under the same member id |
| 29 | report, go on |
| 69 | ignored while leaving, else fatal |
| 30, 35, 42, 81, 82, 111, 112, 128 and all others | fatal: report, send no more |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast.consumer.error_actions import ErrorAction, ErrorActions
from kfast.errors import ErrorCode, UnsupportedVersionError, error_info, exception_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.config import ConsumerConfig
    from kfast.errors import KafkaError

GROUP_VERSION_FEATURE: Final = "group.version"
FIRST_GROUP_VERSION: Final = 1
"""Level of ``group.version`` from which KIP-848 is ready for use."""


ACTIONS: Final = ErrorActions(
    {
        ErrorCode.UNKNOWN_MEMBER_ID: ErrorAction.FENCE_MEMBER,
        ErrorCode.FENCED_MEMBER_EPOCH: ErrorAction.FENCE_MEMBER,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorAction.REPORT,
    },
    to_coordinator=True,
)

LEAVING_ACTIONS: Final = ErrorActions(
    {**ACTIONS.rows, ErrorCode.GROUP_ID_NOT_FOUND: ErrorAction.IGNORE}, to_coordinator=True
)
"""While the application revokes its partitions in order to leave."""


_MESSAGES: Final[Mapping[int, tuple[str, str]]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        'not allowed to see all topics that group "{group_id}" subscribes to',
        "grant DESCRIBE on the subscribed topics to this user",
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        'not allowed to use group "{group_id}"',
        "grant READ on the group to this user, or set another group_id",
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: (
        'group "{group_id}" does not exist any more',
        "make a new consumer; the group is created when it joins",
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        'cannot join group "{group_id}": it has as many members as the broker allows',
        "raise group.consumer.max.size on the broker, or set another group_id",
    ),
    ErrorCode.FENCED_INSTANCE_ID: (
        'group_instance_id "{group_instance_id}" of group "{group_id}" was taken over by another '
        "consumer",
        "close this consumer, and set a different group_instance_id for each",
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        'group_instance_id "{group_instance_id}" of group "{group_id}" is in use by another '
        "consumer",
        "close that one or wait until its session ends, and set a different group_instance_id for "
        "each",
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: (
        'the coordinator of group "{group_id}" has no assignor "{group_remote_assignor}"',
        'set group_remote_assignor to "uniform" or "range", or leave it out',
    ),
    ErrorCode.INVALID_REGULAR_EXPRESSION: (
        'the brokers cannot parse the pattern "{pattern}"',
        "write the SubscriptionPattern in RE2 syntax; a Python pattern is matched by the client",
    ),
}


def heartbeat_error(
    code: int,
    broker_message: str | None,
    config: ConsumerConfig,
    *,
    pattern: str | None = None,
    node: int | None = None,
) -> KafkaError:
    """Return the error to raise for a code; ``pattern`` is the subscribed one of the brokers."""
    if code == ErrorCode.UNSUPPORTED_VERSION:
        return unsupported(node, broker_message or "the broker answered UNSUPPORTED_VERSION")
    message, hint = _MESSAGES.get(
        code,
        ('ConsumerGroupHeartbeat of group "{group_id}" was refused', "see the broker's log"),
    )
    text = message.format(
        group_id=config.group_id,
        group_instance_id=config.group_instance_id,
        group_remote_assignor=config.group_remote_assignor,
        pattern=pattern,
    )
    cause = None
    if broker_message:
        cause = f"{broker_message.rstrip('. ')}: {error_info(code).name} (error {code})"
    return exception_for(code, text, cause=cause, hint=hint, node=node)


def unsupported(node: int | None, cause: str) -> UnsupportedVersionError:
    """Return the error for a broker that does not offer KIP-848."""
    broker = "the broker" if node is None else f"broker {node}"
    return UnsupportedVersionError(
        f'{broker} does not support group_protocol="consumer"',
        cause=cause,
        hint='set group_protocol="classic", or upgrade to Kafka 4.0 and finalize group.version 1',
        node=node,
        api="ConsumerGroupHeartbeat",
    )
