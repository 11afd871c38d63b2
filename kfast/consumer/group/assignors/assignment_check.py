"""Check of an assignor's result before the leader sends it to the group.

Pure; network thread. Once the assignment is sent, no member and no broker would notice that two
members read one partition, or one a topic it is not subscribed to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kfast.consumer.group.assignors.assignor import RebalanceProtocol
from kfast.consumer.group.assignors.strategies import is_built_in
from kfast.errors import IllegalStateError
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfast.consumer.group.assignors.assignor import ConsumerPartitionAssignor, GroupMember

INT32_MAX: Final = 2**31 - 1


def check_assignment(
    assignor: ConsumerPartitionAssignor,
    result: Mapping[str, Sequence[TopicPartition]],
    members: Sequence[GroupMember],
    protocol: RebalanceProtocol,
) -> dict[str, list[TopicPartition]]:
    """Return the assignment, with an entry for every member.

    kfast's own assignors may assign a partition that another member claims to own: they know which
    claims are out of date.

    Raises
    ------
    IllegalStateError
        A partition is assigned twice, to an unknown member, to a member that is not subscribed to
        the topic, or, under the cooperative protocol, while another member owns it.
    """
    name = assignor.name
    assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    topics = {member.member_id: frozenset(member.topics) for member in members}
    holder: dict[TopicPartition, str] = {}
    for member_id, partitions in _items(name, result):
        if member_id not in assigned:
            raise _refusal(name, f"{member_id!r} is not a member of the group")
        for item in partitions:
            tp = _partition(name, member_id, item)
            if tp in holder:
                raise _refusal(name, f"{tp} assigned to both {holder[tp]} and {member_id}", tp)
            if tp.topic not in topics[member_id]:
                raise _refusal(
                    name, f"{tp} assigned to {member_id}, which is not subscribed to {tp.topic}", tp
                )
            holder[tp] = member_id
            assigned[member_id].append(tp)
    if protocol is RebalanceProtocol.COOPERATIVE and not is_built_in(assignor):
        _check_owners(name, holder, members)
    return assigned


def _check_owners(
    name: str, holder: Mapping[TopicPartition, str], members: Sequence[GroupMember]
) -> None:
    owned = {member.member_id: frozenset(member.owned_partitions) for member in members}
    for owner, partitions in owned.items():
        for tp in sorted(partitions):
            to = holder.get(tp, owner)
            if to != owner and tp not in owned[to]:
                raise _refusal(
                    name,
                    f"{tp} assigned to {to} while {owner} owns it",
                    tp,
                    hint="leave the partition out; its owner revokes it and the group rebalances "
                    "again (RebalanceProtocol.COOPERATIVE)",
                )


def _items(name: str, result: Any) -> list[tuple[str, Sequence[object]]]:
    try:
        return [(member_id, list(partitions)) for member_id, partitions in result.items()]
    except (AttributeError, TypeError, ValueError):
        raise _refusal(
            name, f"{type(result).__name__} returned, not partitions by member id"
        ) from None


def _partition(name: str, member_id: str, item: Any) -> TopicPartition:
    match item:
        case (str() as topic, int() as number) if 0 <= number <= INT32_MAX:
            return TopicPartition(topic, number)
    raise _refusal(name, f"{item!r} assigned to {member_id}, which is not a TopicPartition")


def _refusal(
    name: str, cause: str, tp: TopicPartition | None = None, hint: str | None = None
) -> IllegalStateError:
    return IllegalStateError(
        f'the assignor "{name}" made an assignment that the group cannot use',
        cause=cause,
        hint=hint,
        topic=tp.topic if tp else None,
        partition=tp.partition if tp else None,
    )
