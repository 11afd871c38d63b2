"""Questions about groups: the requests that ask them and how their responses are read.

A question has one or more forms, tried in order: the next one is for brokers that do not have the
API or version of the one before, and for groups of another type. Owns messages only; stateless; any
thread.

Responses are checked: negative partitions and offsets are dropped, a member whose assignment is
malformed has none (`MemberDescription.partitions` is None), the answer about a group that was not
asked for is not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kfast.consumer.admin.descriptions import (
    CLASSIC,
    CONSUMER,
    DEAD,
    GroupDescription,
    ListedGroup,
    MemberDescription,
)
from kfast.consumer.commits.offset_commit import (
    LAST_VERSION_BY_NAME,
    commit_codes,
    offset_commit_request,
)
from kfast.consumer.commits.offset_fetch import FIRST_BATCHED_VERSION, fetched_offsets
from kfast.consumer.group.membership import MemberIdentity
from kfast.errors import ErrorCode, ProtocolError, error_info
from kfast.protocol.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolAssignment
from kfast.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kfast.protocol.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kfast.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kfast.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kfast.client.request import ClientResponse
    from kfast.protocol.message import RequestMessage
    from kfast.protocol.messages.consumer_group_describe import Member
    from kfast.protocol.messages.offset_commit import OffsetCommitResponse
    from kfast.protocol.messages.offset_fetch import OffsetFetchResponse
    from kfast.types import OffsetAndMetadata

_FIRST_WITH_STATES: Final = 4
_FIRST_WITH_TYPES: Final = 5
_NOT_FOUND: Final = frozenset({int(ErrorCode.GROUP_ID_NOT_FOUND)})

Key = str | int
"""What a question is about: a group id, to its coordinator, or a node id, to that broker."""


class Reply(NamedTuple):
    """The answer about one key: an error code, or 0 and the value."""

    error_code: int
    value: Any = None


@dataclass(slots=True, frozen=True)
class Form:
    """One way to ask a question."""

    request: Callable[[Sequence[Any]], RequestMessage]
    """Makes the request about some keys of one broker."""
    read: Callable[[ClientResponse, Sequence[Any]], Mapping[Any, Reply]]
    """Returns the replies about these keys; one that is missing is asked for again."""
    min_version: int | None = None
    max_version: int | None = None
    is_batched: bool = True
    """Whether one request may be about several keys."""
    next_form_on: frozenset[int] = frozenset()
    """Error codes after which the next form is used."""


@dataclass(slots=True, frozen=True)
class Question:
    """A question; ``name`` is for messages."""

    name: str
    forms: tuple[Form, ...]


# --- groups of a broker ---------------------------------------------------------------------------


def list_groups(states: Sequence[str] = (), types: Sequence[str] = ()) -> Question:
    """Return the question for the groups of a broker, by node id; values are `ListedGroup`."""
    needed = _FIRST_WITH_TYPES if types else _FIRST_WITH_STATES if states else None

    def request(_: Sequence[int]) -> ListGroupsRequest:
        return ListGroupsRequest(states_filter=[*states], types_filter=[*types])

    return Question(
        "the list of groups",
        (Form(request, _listed, min_version=needed, is_batched=False),),
    )


def _listed(response: ClientResponse, keys: Sequence[int]) -> dict[int, Reply]:
    message = cast("ListGroupsResponse", response.message)
    groups = tuple(
        ListedGroup(
            group.group_id,
            group.group_state or None,
            group.group_type.lower() or None,
            group.protocol_type,
            response.node_id,
        )
        for group in message.groups
    )
    return {keys[0]: Reply(message.error_code, groups)}


# --- members of groups ----------------------------------------------------------------------------


def _describe_consumer(group_ids: Sequence[str]) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=[*group_ids])


def _described_consumer(response: ClientResponse, _keys: Sequence[str]) -> dict[str, Reply]:
    message = cast("ConsumerGroupDescribeResponse", response.message)
    return {
        group.group_id: Reply(
            group.error_code,
            GroupDescription(
                group.group_id,
                group.group_state,
                CONSUMER,
                PROTOCOL_TYPE,
                group.assignor_name,
                response.node_id,
                tuple(_consumer_member(member) for member in group.members),
            ),
        )
        for group in message.groups
    }


def _consumer_member(member: Member) -> MemberDescription:
    partitions = {
        TopicPartition(topic.topic_name, partition): None
        for topic in member.assignment.topic_partitions
        for partition in topic.partitions
        if partition >= 0 and topic.topic_name
    }
    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.member_epoch,
        tuple(partitions),
    )


def _describe_classic(group_ids: Sequence[str]) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=[*group_ids])


def _described_classic(response: ClientResponse, _keys: Sequence[str]) -> dict[str, Reply]:
    message = cast("DescribeGroupsResponse", response.message)
    replies = {}
    for group in message.groups:
        is_missing = group.error_code in _NOT_FOUND
        replies[group.group_id] = Reply(
            0 if is_missing else group.error_code,
            GroupDescription(
                group.group_id,
                DEAD if is_missing else group.group_state,
                CLASSIC,
                group.protocol_type,
                group.protocol_data,
                response.node_id,
                tuple(_classic_member(member, group.protocol_type) for member in group.members),
            ),
        )
    return replies


def _classic_member(member: DescribedGroupMember, protocol_type: str) -> MemberDescription:
    partitions: tuple[TopicPartition, ...] | None = None
    if protocol_type == PROTOCOL_TYPE:
        try:
            decoded = ConsumerProtocolAssignment.decode(member.member_assignment)
        except ProtocolError:  # the bytes are those of another member's client
            pass
        else:
            partitions = tuple(decoded.partitions)
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        None,
        partitions,
    )


DESCRIBE_GROUPS: Final = Question(
    "the description",
    (
        Form(_describe_consumer, _described_consumer, next_form_on=_NOT_FOUND),
        Form(_describe_classic, _described_classic),
    ),
)
"""State and members by group id; values are `GroupDescription`, of state Dead if not there."""


# --- committed offsets ----------------------------------------------------------------------------


def _fetch_offsets(group_ids: Sequence[str]) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in group_ids]
    )


def _fetch_offsets_of_one(group_ids: Sequence[str]) -> OffsetFetchRequest:
    return OffsetFetchRequest(group_id=group_ids[0], topics=None)


def _offsets(response: ClientResponse, keys: Sequence[str]) -> dict[str, Reply]:
    message = cast("OffsetFetchResponse", response.message)
    listed = {group.group_id for group in message.groups}
    replies = {}
    for group_id in keys:
        if response.api_version >= FIRST_BATCHED_VERSION and group_id not in listed:
            continue
        code, fetched = fetched_offsets(message, group_id, None, response.api_version)
        codes = (offset.error_code for offset in fetched.values() if offset.error_code)
        committed = {
            tp: offset.committed
            for tp, offset in fetched.items()
            if offset.committed is not None and tp.partition >= 0
        }
        replies[group_id] = Reply(code or next(codes, 0), committed)
    return replies


COMMITTED_OFFSETS: Final = Question(
    "the committed offsets",
    (
        Form(
            _fetch_offsets,
            _offsets,
            min_version=FIRST_BATCHED_VERSION,
            max_version=LAST_VERSION_BY_NAME,
        ),
        Form(
            _fetch_offsets_of_one,
            _offsets,
            max_version=FIRST_BATCHED_VERSION - 1,
            is_batched=False,
        ),
    ),
)
"""All committed offsets by group id; values are dicts of `OffsetAndMetadata` by partition.

Offsets of open transactions are left out, as in Kafka's own tool.
"""


def commit_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Question:
    """Return the question that commits offsets as a non-member; values: error code by partition.

    The coordinator refuses it while the group has members (UNKNOWN_MEMBER_ID).
    """

    def request(group_ids: Sequence[str]) -> RequestMessage:
        return offset_commit_request(offsets, MemberIdentity(group_ids[0]), LAST_VERSION_BY_NAME)

    def read(response: ClientResponse, keys: Sequence[str]) -> dict[str, Reply]:
        message = cast("OffsetCommitResponse", response.message)
        codes = commit_codes(message, offsets, response.api_version)
        if not codes.keys() >= offsets.keys():
            return {}
        retried = (code for code in codes.values() if error_info(code).retriable)
        return {keys[0]: Reply(next(retried, 0), codes)}

    return Question(
        "the commit",
        (Form(request, read, max_version=LAST_VERSION_BY_NAME, is_batched=False),),
    )
