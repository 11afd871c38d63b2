"""Sticky assignment, common to both sticky assignors.

Pure; network thread. There are two algorithms, both rack-aware:

`EqualAssignment`, when all members are subscribed to the same topics. With P partitions and C
members each gets P // C of them or one more, and keeps as many of its own as that allows. Linear,
apart from sorting and the search for a member in a rack. Members below the lower quota come first
when the free partitions are assigned, until they have it; then those with exactly the lower quota,
one partition each. When racks matter, partitions are first assigned to members in a rack with a
replica, and the rest as without racks.

`GeneralAssignment` otherwise. It keeps the owned partitions, assigns every free one to the
subscriber with the fewest, then moves partitions as long as that makes the counts of two members
more even. Every move is from a member to one with at least two fewer, so the sum of the squared
counts falls each time and the run ends for any subscriptions. When racks matter, partitions without
a replica in the owner's rack are not kept, and free ones go to subscribers near a replica first.
Members, topics and partitions are numbers there, in the order of member ids and of ``partitions``;
an assignment is the list ``owner`` by partition, and ``count`` by member.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Final, NamedTuple

from kfast.consumer.group.assignors.group_topics import by_id, subscribed_partitions
from kfast.consumer.group.assignors.sticky_claims import Claims, GroupRacks, settle_claims
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kfast.client.cluster import Cluster
    from kfast.consumer.group.assignors.assignor import GroupMember
    from kfast.consumer.group.assignors.sticky_claims import Claim

NO_OWNER: Final = -1

Assigned = dict[str, list[TopicPartition]]


class StickyResult(NamedTuple):
    """An assignment; ``is_uniform`` if all members are subscribed to the same topics."""

    assigned: Assigned
    claims: Claims
    is_uniform: bool


def assign_sticky(
    cluster: Cluster, members: Sequence[GroupMember], claim_of: Callable[[GroupMember], Claim]
) -> StickyResult:
    """Return the partitions of every member."""
    ordered = by_id(members)
    topics = subscribed_partitions(cluster, ordered)
    partitions = [tp for of_topic in topics.values() for tp in of_topic]
    claims = settle_claims(ordered, set(partitions), claim_of)
    racks = GroupRacks.of(cluster, ordered, partitions)
    is_uniform = len({frozenset(member.topics) for member in ordered}) == 1
    if is_uniform:
        assigned = EqualAssignment([m.member_id for m in ordered], partitions, claims, racks).run()
    else:
        assigned = GeneralAssignment(ordered, topics, claims, racks).run()
    return StickyResult(assigned, claims, is_uniform)


class EqualAssignment:
    """One run of the algorithm. Members and partitions are in order; at least one member."""

    def __init__(
        self,
        member_ids: Sequence[str],
        partitions: Sequence[TopicPartition],
        claims: Claims,
        racks: GroupRacks,
    ) -> None:
        self._partitions = partitions
        self._racks = racks
        self._low, self._extra = divmod(len(partitions), len(member_ids))
        self._high = self._low + (self._extra > 0)
        self._assigned: dict[str, list[TopicPartition]] = {name: [] for name in member_ids}
        for tp, member_id in claims.owners.items():
            if tp not in claims.doubled and not racks.is_far(member_id, tp):
                self._assigned[member_id].append(tp)
        self._under: list[str] = []
        """Members with less than the lower quota."""
        self._exact: list[str] = []
        """Members with the lower quota, as long as some may have one more."""

    def run(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions of every member."""
        self._keep()
        kept = {tp for mine in self._assigned.values() for tp in mine}
        free = [tp for tp in self._partitions if tp not in kept]
        if self._racks.matter:
            free = self._assign_near(self._racks.hardest_first(free))
        self._assign(free)
        return self._assigned

    def _keep(self) -> None:
        for member_id, mine in self._assigned.items():
            # By number, then topic: partitions that are revoked are not all of one topic.
            mine.sort(key=lambda tp: (tp.partition, tp.topic))
            if len(mine) < self._low:
                self._under.append(member_id)
            elif len(mine) >= self._high and self._extra:
                del mine[self._high :]
                self._extra -= 1
            else:
                del mine[self._low :]
                self._exact.append(member_id)
        if not self._extra:
            self._exact = []

    def _assign_near(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members near them that have room; return the rest."""
        left: list[TopicPartition] = []
        turn = 0
        for tp in partitions:
            index = self._next_near(tp, self._under, turn)
            if index is not None:
                mine = self._assigned[self._under[index]]
                mine.append(tp)
                if len(mine) < self._low:
                    index += 1
                else:
                    member_id = self._under.pop(index)
                    if self._extra:
                        self._exact.append(member_id)
                turn = index % len(self._under) if self._under else 0
                continue
            index = self._next_near(tp, self._exact, 0)
            if index is None:
                left.append(tp)
                continue
            self._assigned[self._exact.pop(index)].append(tp)
            self._extra -= 1
            if not self._extra:
                self._exact = []
        return left

    def _next_near(self, tp: TopicPartition, members: Sequence[str], first: int) -> int | None:
        """Return the index of the next member near the partition, from ``first`` on in a circle."""
        for i in range(len(members)):
            index = (first + i) % len(members)
            if self._racks.is_near(members[index], tp):
                return index
        return None

    def _assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Assign partitions in turn to members below the quota, then one to each other."""
        under, exact = deque(self._under), deque(self._exact)
        for tp in partitions:
            if not under:
                self._assigned[exact.popleft()].append(tp)
                continue
            member_id = under.popleft()
            mine = self._assigned[member_id]
            mine.append(tp)
            (exact if len(mine) == self._low else under).append(member_id)

    def __repr__(self) -> str:
        return f"<EqualAssignment members={len(self._assigned)} quota={self._low}>"


class Moves:
    """Moves of partitions between members so far; ``topic_of`` has the topic of each partition.

    When a partition of a topic is to move from a to b though another one of that topic moved from b
    to a before, moving that one back gives the same balance and one move less.
    """

    __slots__ = ("_by_pair", "_moved", "_topic_of")

    def __init__(self, topic_of: list[int]) -> None:
        self._topic_of = topic_of
        self._moved: dict[int, tuple[int, int]] = {}
        self._by_pair: dict[tuple[int, int, int], dict[int, None]] = {}

    def instead(self, partition: int, owner: int, to: int) -> int:
        """Return the partition to move rather than this one; itself if there is no better one.

        Of several the one with the highest number: Java takes the first of a hash table, which most
        often is that one.
        """
        source = self._moved[partition][0] if partition in self._moved else owner
        reverse = self._by_pair.get((self._topic_of[partition], to, source))
        return max(reverse) if reverse else partition

    def record(self, partition: int, owner: int, to: int) -> None:
        """Note that a partition moved."""
        topic = self._topic_of[partition]
        before = self._moved.pop(partition, None)
        source = owner
        if before is not None:
            source = before[0]
            del self._by_pair[topic, *before][partition]
        if source != to:
            self._moved[partition] = source, to
            self._by_pair.setdefault((topic, source, to), {})[partition] = None

    def __repr__(self) -> str:
        return f"<Moves {len(self._moved)} partitions>"


class GeneralAssignment:
    """One run of the algorithm. Members are in order of their ids."""

    def __init__(
        self,
        members: Sequence[GroupMember],
        topics: Mapping[str, Sequence[TopicPartition]],
        claims: Claims,
        racks: GroupRacks,
    ) -> None:
        self._members = members
        self._racks = racks
        self._rack_of = [racks.of_member.get(member.member_id) for member in members]
        self._partitions = [tp for partitions in topics.values() for tp in partitions]
        names = {name: topic for topic, name in enumerate(topics)}
        self._consumers: list[list[int]] = [[] for _ in topics]
        self._subscribed: list[set[int]] = []
        for number, member in enumerate(members):
            mine = {names[name] for name in member.topics if name in names}
            self._subscribed.append(mine)
            for topic in mine:
                self._consumers[topic].append(number)
        self._topic_of = [names[tp.topic] for tp in self._partitions]
        self._of_topic: list[range] = []
        start = 0
        for partitions in topics.values():
            self._of_topic.append(range(start, start + len(partitions)))
            start += len(partitions)
        self._owner = [NO_OWNER] * len(self._partitions)
        self._count = [0] * len(members)
        self._previous: dict[int, int] = {}
        self._moves = Moves(self._topic_of)
        self._must_revoke = False
        self._keep_owned(claims)

    def _keep_owned(self, claims: Claims) -> None:
        numbers = {member.member_id: number for number, member in enumerate(self._members)}
        for partition, tp in enumerate(self._partitions):
            topic = self._topic_of[partition]
            if tp in claims.owners:
                number = numbers[claims.owners[tp]]
                is_far = self._racks.is_far(claims.owners[tp], tp)
                if topic in self._subscribed[number] and not is_far:
                    self._owner[partition] = number
                    self._count[number] += 1
                else:
                    self._must_revoke = True
            if tp in claims.outdated:
                number = numbers[claims.outdated[tp]]
                if topic in self._subscribed[number]:
                    self._previous[partition] = number

    def run(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions of every member."""
        order = sorted(
            range(len(self._consumers)), key=lambda topic: (len(self._consumers[topic]), topic)
        )
        added = {t: [p for p in self._of_topic[t] if self._owner[p] == NO_OWNER] for t in order}
        if self._racks.matter:
            self._assign_free(added, is_near=True)
        self._assign_free(added)
        shared = [topic for topic in order if len(self._consumers[topic]) > 1]
        if not self._must_revoke:
            # Rather move what has just been assigned than what a member reads already.
            self._even_out([(topic, added[topic]) for topic in shared])
        self._even_out([(topic, self._of_topic[topic]) for topic in shared])
        result: dict[str, list[TopicPartition]] = {m.member_id: [] for m in self._members}
        for tp, number in zip(self._partitions, self._owner, strict=True):
            if number != NO_OWNER:
                result[self._members[number].member_id].append(tp)
        return result

    def _assign_free(self, topics: Mapping[int, Sequence[int]], *, is_near: bool = False) -> None:
        """Assign each free partition of the topics to the subscriber with the fewest.

        With ``is_near`` only to subscribers in a rack with a replica, or without a rack.
        """
        owner, count = self._owner, self._count
        # One number per subscriber that orders by count, then by id.
        scale = len(count)
        for topic, partitions in topics.items():
            heaps: dict[str | None, list[int]] = {}
            for number in self._consumers[topic]:
                rack = self._rack_of[number] if is_near else None
                heaps.setdefault(rack, []).append(count[number] * scale + number)
            for heap in heaps.values():
                heapify(heap)
            for partition in partitions:
                if owner[partition] != NO_OWNER:
                    continue
                racks = self._racks.of_partition[self._partitions[partition]] if is_near else ()
                within = [heaps[rack] for rack in (None, *racks) if rack in heaps]
                if not within:
                    continue
                heap = min(within)  # by its first: no two are equal
                number = heap[0] % scale
                heapreplace(heap, heap[0] + scale)
                owner[partition] = number
                count[number] += 1

    def _even_out(self, topics: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Move partitions until no move makes the counts of two members more even."""
        owner, count = self._owner, self._count
        is_settled = False
        while not is_settled:
            is_settled = True
            for topic, partitions in topics:
                consumers = self._consumers[topic]
                fewest = min(consumers, key=count.__getitem__)
                for partition in partitions:
                    holder = owner[partition]
                    to = self._previous.get(partition, NO_OWNER)
                    if to == NO_OWNER or count[holder] <= count[to] + 1:
                        to = fewest
                        if count[holder] <= count[to] + 1:
                            continue
                    self._move(partition, holder, to)
                    fewest = min(consumers, key=count.__getitem__)
                    is_settled = False

    def _move(self, partition: int, holder: int, to: int) -> None:
        instead = self._moves.instead(partition, holder, to)
        # Moving another one back must make the counts more even as well, or this would not end.
        if self._count[self._owner[instead]] > self._count[to] + 1:
            partition, holder = instead, self._owner[instead]
        self._moves.record(partition, holder, to)
        self._owner[partition] = to
        self._count[holder] -= 1
        self._count[to] += 1

    def __repr__(self) -> str:
        return f"<GeneralAssignment members={len(self._members)} topics={len(self._of_topic)}>"
