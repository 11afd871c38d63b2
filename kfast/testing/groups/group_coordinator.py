"""Consumer groups of a fake cluster: who coordinates them, and the time that passes for them.

Owns the groups of both protocols, their committed offsets, which node coordinates which group, and
the clock of sessions and rebalances: ``advance`` lets everything happen that is due, in the order
of the times it was due. Nothing here knows a request; the rules of a group are in
``classic_group`` and ``consumer_group``. Changed under the cluster's lock; methods for tests take
it themselves.

`CommittedOffsets` has the committed offsets of one group and those of open transactions (KIP-447).
A topic that was deleted and created again has another id: its old offsets are gone, as a broker
deletes them with the topic.

Coordinator of a group: the node that leads partition ``hash(group) % 50`` of the offsets topic,
spread over the nodes; it moves when its node stops, or when a test says so. A coordinator that
moved has loaded its groups anew: parked answers get error 16, sessions start again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from kfast.errors import ErrorCode
from kfast.testing.changes import Changes
from kfast.testing.groups.classic_group import ClassicGroup
from kfast.testing.groups.consumer_group import ConsumerGroup
from kfast.testing.groups.settings import GroupSettings
from kfast.testing.topology import FakeNode, FakeTopic, topic_id_of
from kfast.types import TopicPartition

FIRST_VERSION_WITH_EPOCHS: Final = 9
"""OffsetCommit says that a group is not there by its own error from this version on."""

OFFSETS_PARTITIONS: Final = 50


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset.

    Attributes
    ----------
    offset, leader_epoch, metadata : int, int, str
        As they were sent.
    topic_id : bytes
        Id the topic had then.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: bytes = b""


Offsets: TypeAlias = Mapping[TopicPartition, Committed]


class CommittedOffsets:
    """All committed offsets of a group.

    Parameters
    ----------
    topic_id : callable
        Returns the id a topic has now.

    Attributes
    ----------
    history : list of (TopicPartition, Committed)
        Every commit that was accepted, in order.
    """

    def __init__(self, topic_id: Callable[[str], bytes]) -> None:
        self.history: list[tuple[TopicPartition, Committed]] = []
        self._topic_id = topic_id
        self._offsets: dict[TopicPartition, Committed] = {}
        self._pending: dict[int, dict[TopicPartition, Committed]] = {}

    def commit(
        self, partition: TopicPartition, offset: int, leader_epoch: int = -1, metadata: str = ""
    ) -> None:
        """Store an offset."""
        entry = Committed(offset, leader_epoch, metadata, self._topic_id(partition.topic))
        self._offsets[partition] = entry
        self.history.append((partition, entry))

    def get(self, partition: TopicPartition) -> Committed | None:
        """Return the committed offset of a partition of the topic as it is now."""
        entry = self._offsets.get(partition)
        if entry is None or entry.topic_id != self._topic_id(partition.topic):
            return None
        return entry

    def all(self) -> dict[TopicPartition, Committed]:
        """Return all committed offsets."""
        offsets = {partition: self.get(partition) for partition in self._offsets}
        return {partition: entry for partition, entry in offsets.items() if entry is not None}

    def forget(self, partition: TopicPartition) -> None:
        """Drop the committed offset of a partition, as expiry does."""
        self._offsets.pop(partition, None)

    # -- transactions ----------------------------------------------------------------------

    def add_pending(
        self, producer_id: int, partition: TopicPartition, offset: int, leader_epoch: int = -1
    ) -> None:
        """Let an open transaction hold an offset."""
        entry = Committed(offset, leader_epoch, "", self._topic_id(partition.topic))
        self._pending.setdefault(producer_id, {})[partition] = entry

    def finish_pending(self, producer_id: int, *, committed: bool) -> None:
        """End the transaction of a producer: its offsets become real or vanish."""
        for partition, entry in self._pending.pop(producer_id, {}).items():
            if committed:
                self._offsets[partition] = entry
                self.history.append((partition, entry))

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Return whether an open transaction holds an offset of a partition."""
        return any(partition in offsets for offsets in self._pending.values())

    def __repr__(self) -> str:
        return f"<CommittedOffsets {len(self._offsets)} partitions {len(self._pending)} pending>"


class FakeGroups:
    """All groups of a cluster.

    Parameters
    ----------
    nodes, topics, denied_topics : mapping, mapping, set
        Those of the cluster.
    changes : Changes
        The cluster's lock.

    Attributes
    ----------
    settings : GroupSettings
        May be changed at any time.
    denied : set of str
        Groups the client may not use (error 30).
    now_ms : int
        How far time has come.
    client_ids : dict
        Member id to the client id of its requests.
    """

    def __init__(
        self,
        nodes: Mapping[int, FakeNode],
        topics: Mapping[str, FakeTopic],
        denied_topics: AbstractSet[str],
        changes: Changes,
    ) -> None:
        self.settings = GroupSettings()
        self.denied: set[str] = set()
        self.now_ms = 0
        self.client_ids: dict[str, str] = {}
        self._nodes = nodes
        self._topics = topics
        self._denied_topics = denied_topics
        self._changes = changes
        self._classic: dict[str, ClassicGroup] = {}
        self._consumer: dict[str, ConsumerGroup] = {}
        self._offsets: dict[str, CommittedOffsets] = {}
        self._coordinators: dict[str, int] = {}
        self._loading: set[str] = set()
        self._restarted: set[str] = set()
        self._members_made = 0

    # -- coordinators ----------------------------------------------------------------------

    def coordinator(self, group_id: str) -> int:
        """Return the node that coordinates a group."""
        node_id = self._coordinators.get(group_id)
        if node_id is None:
            ids = sorted(self._nodes)
            start = java_hash(group_id) % OFFSETS_PARTITIONS % len(ids)
            order = ids[start:] + ids[:start]
            running = [node for node in order if self._nodes[node].is_running]
            node_id = self._coordinators[group_id] = (running or order)[0]
        return node_id

    def move_coordinator(self, group_id: str, node_id: int, *, is_loading: bool = False) -> None:
        """Let another node coordinate a group; with ``is_loading`` it answers 14 for now."""
        with self._changes.changing():
            self._coordinators[group_id] = node_id
            if is_loading:
                self._loading.add(group_id)
            self._give_up_parked(group_id)

    def start_loading(self, group_id: str) -> None:
        """Let the coordinator load a group again: everything is answered 14."""
        self.move_coordinator(group_id, self.coordinator(group_id), is_loading=True)

    def finish_loading(self, group_id: str) -> None:
        """Let the coordinator have loaded a group."""
        with self._changes.changing():
            self._loading.discard(group_id)
            self._restarted.add(group_id)

    def node_stopped(self, node_id: int) -> None:
        """Let other nodes take over the groups of a node that is gone."""
        for group_id, coordinator in list(self._coordinators.items()):
            if coordinator == node_id:
                del self._coordinators[group_id]
                self._give_up_parked(group_id)

    def _give_up_parked(self, group_id: str) -> None:
        if group_id in self._classic:
            self._classic[group_id].give_up_parked(ErrorCode.NOT_COORDINATOR)
        self._restarted.add(group_id)

    def error_for(self, node_id: int, group_id: str) -> int:
        """Return why a node cannot serve a group, 0 if it can."""
        if group_id in self.denied:
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        if self.coordinator(group_id) != node_id:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if group_id in self._loading else 0

    # -- groups ----------------------------------------------------------------------------

    def classic(self, group_id: str) -> ClassicGroup | None:
        """Return a classic group, None if there is none of that name."""
        return self._classic.get(group_id)

    def classic_or_new(self, group_id: str) -> ClassicGroup:
        """Return a classic group, made if need be; an empty group changes its protocol."""
        self._consumer.pop(group_id, None)
        return self._classic.setdefault(group_id, ClassicGroup(group_id, self.settings))

    def is_used_by_consumers(self, group_id: str) -> bool:
        """Return whether members of the KIP-848 protocol are in a group."""
        return group_id in self._consumer and bool(self._consumer[group_id].members)

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        """Return a KIP-848 group, None if there is none of that name."""
        return self._consumer.get(group_id)

    def new_consumer(self, group_id: str) -> ConsumerGroup:
        """Make a KIP-848 group; an empty group changes its protocol."""
        self._classic.pop(group_id, None)
        group = ConsumerGroup(group_id, self.settings, self._visible_topics)
        self._consumer[group_id] = group
        return group

    def is_used_by_classic_members(self, group_id: str) -> bool:
        """Return whether members of the classic protocol are in a group."""
        return group_id in self._classic and bool(self._classic[group_id].members)

    def _visible_topics(self) -> Mapping[str, FakeTopic]:
        return {
            name: topic
            for name, topic in self._topics.items()
            if name not in self._denied_topics and not topic.is_internal
        }

    def names(self) -> list[str]:
        """Return the groups there are: those with members or with committed offsets."""
        committed = {group_id for group_id, offsets in self._offsets.items() if offsets.all()}
        return sorted({*self._classic, *self._consumer, *committed})

    def summary(self, group_id: str) -> tuple[str, str, str]:
        """Return state, type and protocol type of a group, as ListGroups has them."""
        group = self._consumer.get(group_id)
        if group is not None:
            return group.state, "consumer", "consumer"
        classic = self._classic.get(group_id)
        if classic is None:
            return "Empty", "classic", ""
        return classic.state.value, "classic", classic.protocol_type or ""

    def offsets(self, group_id: str) -> CommittedOffsets:
        """Return the committed offsets of a group."""
        return self._offsets.setdefault(
            group_id, CommittedOffsets(partial(topic_id_of, self._topics))
        )

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group as plain numbers."""
        with self._changes.lock:
            return {
                partition: entry.offset for partition, entry in self.offsets(group_id).all().items()
            }

    def commit_error(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, version: int
    ) -> int:
        """Return why a member cannot commit, 0 if it can."""
        group = self._classic.get(group_id)
        if group is not None:
            return group.commit_error(member_id, instance_id, generation, self.now_ms)
        consumers = self._consumer.get(group_id)
        if consumers is not None:
            return consumers.commit_error(member_id, generation, version)
        if generation < 0:
            return 0
        return (
            ErrorCode.GROUP_ID_NOT_FOUND
            if version >= FIRST_VERSION_WITH_EPOCHS
            else ErrorCode.ILLEGAL_GENERATION
        )

    def fetch_error(self, group_id: str, member_id: str | None, member_epoch: int) -> int:
        """Return why a member cannot read offsets, 0 if it can; only KIP-848 members are asked."""
        group = self._consumer.get(group_id)
        return 0 if group is None else group.fetch_error(member_id, member_epoch)

    def expire_member(self, group_id: str, member_id: str) -> None:
        """Remove a member as if its session had ended."""
        with self._changes.changing():
            if group_id in self._classic:
                self._classic[group_id].expire(member_id, self.now_ms)
            if group_id in self._consumer:
                self._consumer[group_id].remove(member_id)

    def delete_group(self, group_id: str) -> None:
        """Delete a group with its offsets, members or not."""
        with self._changes.changing():
            group = self._classic.pop(group_id, None)
            if group is not None:
                group.die()
            self._consumer.pop(group_id, None)
            self._offsets.pop(group_id, None)

    def new_member_id(self, prefix: str) -> str:
        """Return an id that no member had before."""
        self._members_made += 1
        return f"{prefix}-{self._members_made:04d}"

    # -- time ------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """Return when something happens by time alone."""
        deadlines = [deadline for _, deadline in self._deadlines()]
        return min(deadlines, default=None)

    def advance(self, now_ms: int) -> None:
        """Let time pass, and everything happen that is due by then."""
        for group_id in self._restarted - self._loading:
            self._restarted.discard(group_id)
            if group_id in self._classic:
                self._classic[group_id].reload(max(self.now_ms, now_ms))
            if group_id in self._consumer:
                self._consumer[group_id].reload(max(self.now_ms, now_ms))
        while True:
            due = min(self._deadlines(), key=lambda entry: entry[1], default=None)
            if due is None or due[1] > now_ms:
                break
            self.now_ms = max(self.now_ms, due[1])
            due[0](self.now_ms)
        self.now_ms = max(self.now_ms, now_ms)

    def _deadlines(self) -> list[tuple[Callable[[int], None], int]]:
        deadlines: list[tuple[Callable[[int], None], int]] = []
        groups: list[ClassicGroup | ConsumerGroup] = [*self._classic.values()]
        groups += self._consumer.values()
        for group in groups:
            deadline_ms = group.next_deadline_ms()
            if deadline_ms is not None and group.group_id not in self._loading:
                deadlines.append((group.time_passed, deadline_ms))
        return deadlines

    def __repr__(self) -> str:
        return f"<FakeGroups {len(self._classic)} classic {len(self._consumer)} consumer>"


def java_hash(text: str) -> int:
    """Return ``abs(String.hashCode())`` as Kafka takes it: never negative."""
    value = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value if value < 1 << 31 else ((1 << 32) - value) & 0x7FFF_FFFF
