"""The sticky algorithm for a group in which everyone is subscribed to the same topics.

Pure; network thread. With P partitions and C members, everyone gets P // C of them or one more, and
keeps as much of what it owned as that allows. Linear but for sorting.

Members that own too little come first when the free partitions are dealt, until they have the lower
quota; then those with exactly the lower quota, one partition each.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfast.consumer.assignors.sticky_claims import Claims
    from kfast.types import TopicPartition


def assign_equally(
    member_ids: Sequence[str], partitions: Sequence[TopicPartition], claims: Claims
) -> dict[str, list[TopicPartition]]:
    """Return the partitions of every member.

    Parameters
    ----------
    member_ids : sequence of str
        In order; at least one.
    partitions : sequence of TopicPartition
        Everything to share out, ordered by topic and number.
    claims : Claims
        What the members owned.
    """
    low, extra = divmod(len(partitions), len(member_ids))
    high = low + (extra > 0)
    owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in member_ids}
    for tp, member_id in claims.owners.items():
        if tp not in claims.doubled:
            owned[member_id].append(tp)
    under: deque[str] = deque()
    exact: list[str] = []
    assigned: dict[str, list[TopicPartition]] = {}
    kept: set[TopicPartition] = set()
    over = 0
    for member_id, mine in owned.items():
        # By number, then topic: when something has to go, not all of it is of one topic.
        mine.sort(key=lambda tp: (tp.partition, tp.topic))
        if len(mine) < low:
            under.append(member_id)
        elif len(mine) >= high and over < extra:
            over += 1
            del mine[high:]
        else:
            del mine[low:]
            exact.append(member_id)
        assigned[member_id] = mine
        kept.update(mine)
    candidates = deque(exact if over < extra else ())
    for tp in partitions:
        if tp in kept:
            continue
        if not under:
            assigned[candidates.popleft()].append(tp)
            continue
        member_id = under.popleft()
        mine = assigned[member_id]
        mine.append(tp)
        (candidates if len(mine) == low else under).append(member_id)
    return assigned
