"""One KIP-848 group as its coordinator keeps it.

Owns members, epochs and the target assignment. The group epoch rises when members, subscriptions or
the topics subscribed to change; the next heartbeat then computes a new target, and each member is
led there by its own heartbeats. Not locked; time comes as an argument.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kfast.errors import ErrorCode
from kfast.protocol.messages.consumer_group_heartbeat import (
    JOIN_EPOCH,
    TEMPORARY_LEAVE_EPOCH,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kfast.testing.groups.assignors import SERVER_ASSIGNORS, AssignorInput, IdPartition, Target
from kfast.testing.groups.consumer_member import ConsumerMember, ConsumerSubscription, MemberState
from kfast.testing.groups.settings import GroupSettings
from kfast.testing.topology import FakeTopic

FIRST_VERSION_WITH_MEMBER_IDS: Final = 1
FIRST_COMMIT_VERSION: Final = 9
FIRST_GROUP_EPOCH: Final = 1
"""The first join raises it: a fresh group answers 2, as a 4.3 broker was seen to do."""


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """A KIP-848 group.

    Parameters
    ----------
    group_id : str
        Its name.
    settings : GroupSettings
        Timeouts and limits of the brokers.
    topics : callable
        Returns the topics there are now, by name.

    Attributes
    ----------
    epoch, target_epoch : int
        Of the group, and of the target; the target is behind until the next heartbeat.
    members : dict
        By member id.
    static_members : dict
        Instance id to member id.
    target : dict
        Member id to its target assignment.
    """

    group_id: str
    settings: GroupSettings
    topics: Callable[[], Mapping[str, FakeTopic]]
    epoch: int = FIRST_GROUP_EPOCH
    target_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    target: Target = field(default_factory=dict)
    _subscribed_topics: dict[str, tuple[bytes, int]] = field(default_factory=dict)

    # -- requests --------------------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, new_id: str, now_ms: int
    ) -> ConsumerGroupHeartbeatResponse:
        """Answer a valid request; ``new_id`` is for a member without an id."""
        if request.member_epoch < JOIN_EPOCH:
            return self._leave(request)
        request = replace(request, member_id=request.member_id or new_id)
        owned = owned_by(request)
        error = self._admit(request, owned)
        if error == ErrorCode.UNRELEASED_INSTANCE_ID:
            owner = self.static_members[request.instance_id or ""]
            return refusal(error, f"The instance id is owned by member {owner}.")
        if error:
            return refusal(error)
        member = self.members[request.member_id]
        self._update(member, request)
        self._update_target()
        before = set(member.assigned)
        taken: set[IdPartition] = set()
        for other in self.members.values():
            if other is not member:
                taken |= other.assigned | other.revoking
        target = self.target.get(member.member_id, frozenset())
        member.reconcile(target, self.target_epoch, owned, taken)
        self._restart_timers(member, now_ms)
        is_full = (
            request.rebalance_timeout_ms != -1
            and owned is not None
            and not (
                request.subscribed_topic_names is None and request.subscribed_topic_regex is None
            )
        )
        sends_assignment = (
            request.member_epoch == JOIN_EPOCH or is_full or before != member.assigned
        )
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.settings.group_consumer_heartbeat_interval_ms,
            assignment=_assignment(member.assigned) if sends_assignment else None,
        )

    @property
    def state(self) -> str:
        """The state as Kafka names it."""
        if not self.members:
            return "Empty"
        if self.target_epoch < self.epoch:
            return "Assigning"
        is_stable = all(
            member.state is MemberState.STABLE and member.epoch == self.target_epoch
            for member in self.members.values()
        )
        return "Stable" if is_stable else "Reconciling"

    def commit_error(self, member_id: str, epoch: int, version: int) -> int:
        """Return why offsets cannot be committed, 0 if they can."""
        if epoch < 0 and not self.members:
            return 0
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if version < FIRST_COMMIT_VERSION:
            return ErrorCode.UNSUPPORTED_VERSION
        return 0 if epoch == self.members[member_id].epoch else ErrorCode.STALE_MEMBER_EPOCH

    def fetch_error(self, member_id: str | None, epoch: int) -> int:
        """Return why offsets cannot be read, 0 if they can; without a member id they can."""
        if member_id is None and epoch < 0:
            return 0
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return 0 if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    # -- coming and going ------------------------------------------------------------------

    def _admit(
        self, request: ConsumerGroupHeartbeatRequest, owned: frozenset[IdPartition] | None
    ) -> int:
        """Find or make the member a heartbeat is from; return the error to answer."""
        is_joining = request.member_epoch == JOIN_EPOCH
        member = self.members.get(request.member_id)
        if request.instance_id is not None:
            holder = self.members.get(self.static_members.get(request.instance_id, ""))
            if holder is None and not is_joining:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder is not None and holder.member_id != request.member_id:
                if not is_joining:
                    return ErrorCode.FENCED_INSTANCE_ID
                if holder.epoch != TEMPORARY_LEAVE_EPOCH:
                    return ErrorCode.UNRELEASED_INSTANCE_ID
                self._replace(holder, request.member_id)
                return 0
        elif member is None and not is_joining:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member is None:
            if len(self.members) >= self.settings.group_max_size:
                return ErrorCode.GROUP_MAX_SIZE_REACHED
            self.members[request.member_id] = ConsumerMember(
                request.member_id, request.instance_id, epoch=JOIN_EPOCH
            )
            if request.instance_id is not None:
                self.static_members[request.instance_id] = request.member_id
        elif member.epoch == TEMPORARY_LEAVE_EPOCH and is_joining:
            member.epoch = member.previous_epoch = JOIN_EPOCH
        elif not is_joining and not member.accepts_epoch(request.member_epoch, owned):
            return ErrorCode.FENCED_MEMBER_EPOCH
        return 0

    def _replace(self, old: ConsumerMember, member_id: str) -> None:
        """Give the place of a static member that left for a while to another process."""
        del self.members[old.member_id]
        self.target[member_id] = self.target.pop(old.member_id, frozenset())
        self.members[member_id] = replace(
            old, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH
        )
        self.static_members[old.instance_id or ""] = member_id

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        if request.instance_id is None:
            member = self.members.get(request.member_id)
        else:
            member = self.members.get(self.static_members.get(request.instance_id, ""))
            if member is not None and member.member_id != request.member_id:
                return refusal(ErrorCode.FENCED_INSTANCE_ID)
        if member is None:
            return refusal(ErrorCode.UNKNOWN_MEMBER_ID)
        if request.member_epoch == TEMPORARY_LEAVE_EPOCH:
            member.epoch = TEMPORARY_LEAVE_EPOCH
            member.state = MemberState.STABLE
            member.revoking = set()
            member.revoke_deadline_ms = None
        else:
            self.remove(member.member_id)
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )

    def remove(self, member_id: str) -> None:
        """Remove a member; its partitions are free at once."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.static_members.pop(member.instance_id or "", None)
            self.target.pop(member_id, None)
            self.epoch += 1

    # -- subscriptions and target ----------------------------------------------------------

    def _update(self, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
        """Take over what a heartbeat changes."""
        if request.rebalance_timeout_ms != -1:
            member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.rack_id = member.rack_id if request.rack_id is None else request.rack_id
        old = member.subscription
        names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        member.subscription = ConsumerSubscription(
            old.names if names is None else frozenset(names),
            old.regex if regex is None else regex,
        )
        is_new = member.session_deadline_ms is None
        is_changed = is_new or member.subscription != old
        if request.server_assignor not in {None, member.server_assignor}:
            member.server_assignor = request.server_assignor
            is_changed = True
        if is_changed:
            self.epoch += 1

    def _update_target(self) -> None:
        """Compute the target anew if anything it depends on changed."""
        subscribed = {
            name: (topic.topic_id, len(topic.partitions))
            for name, topic in self.topics().items()
            if any(member.subscription.includes(name) for member in self.members.values())
        }
        if subscribed != self._subscribed_topics:
            # A join raises the epoch by itself; its topics are known with it.
            self.epoch += self.epoch == self.target_epoch
            self._subscribed_topics = subscribed
        if self.epoch == self.target_epoch:
            return
        order = sorted(
            self.members.values(),
            key=lambda one: (one.instance_id is None, one.instance_id, one.member_id),
        )
        assignor_input = AssignorInput(
            subscriptions={
                member.member_id: frozenset(
                    topic_id
                    for name, (topic_id, _) in subscribed.items()
                    if member.subscription.includes(name)
                )
                for member in order
            },
            partitions=dict(subscribed.values()),
            current=self.target,
        )
        self.target = SERVER_ASSIGNORS[self._assignor()](assignor_input)
        self.target_epoch = self.epoch

    def _assignor(self) -> str:
        """Return the assignor most members ask for, else the brokers' first."""
        names = [member.server_assignor for member in self.members.values()]
        votes = Counter(name for name in names if name is not None)
        if not votes:
            return self.settings.group_consumer_assignors[0]
        return votes.most_common(1)[0][0]

    # -- time ------------------------------------------------------------------------------

    def _restart_timers(self, member: ConsumerMember, now_ms: int) -> None:
        member.session_deadline_ms = now_ms + self.settings.group_consumer_session_timeout_ms
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            member.revoke_deadline_ms = None
        elif member.revoke_deadline_ms is None:
            member.revoke_deadline_ms = now_ms + member.rebalance_timeout_ms

    def reload(self, now_ms: int) -> None:
        """Start all timers anew, as a coordinator does that has loaded the group."""
        for member in self.members.values():
            member.revoke_deadline_ms = None
            self._restart_timers(member, now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when something happens by time alone."""
        deadlines = [member.deadline_ms() for member in self.members.values()]
        return min((one for one in deadlines if one is not None), default=None)

    def time_passed(self, now_ms: int) -> None:
        """Remove the members whose time is over."""
        for member in list(self.members.values()):
            deadline_ms = member.deadline_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                self.remove(member.member_id)

    def __repr__(self) -> str:
        return (
            f"<ConsumerGroup {self.group_id} epoch {self.epoch} target {self.target_epoch} "
            f"{len(self.members)} members>"
        )


# --- requests in themselves -----------------------------------------------------------------------


def request_error(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Iterable[str]
) -> int:
    """Return the error of a request that no state of the group allows, 0 if there is none."""
    epoch = request.member_epoch
    needs_id = version >= FIRST_VERSION_WITH_MEMBER_IDS or epoch != JOIN_EPOCH
    if not request.group_id or (needs_id and not request.member_id):
        return ErrorCode.INVALID_REQUEST
    if "" in {request.instance_id, request.rack_id} or epoch < TEMPORARY_LEAVE_EPOCH:
        return ErrorCode.INVALID_REQUEST
    if epoch == TEMPORARY_LEAVE_EPOCH and request.instance_id is None:
        return ErrorCode.INVALID_REQUEST
    if epoch == JOIN_EPOCH and not _is_complete_join(request):
        return ErrorCode.INVALID_REQUEST
    if request.server_assignor is not None and request.server_assignor not in assignors:
        return ErrorCode.UNSUPPORTED_ASSIGNOR
    try:
        re.compile(request.subscribed_topic_regex or "")
    except re.error:
        return ErrorCode.INVALID_REGULAR_EXPRESSION
    return 0


def _is_complete_join(request: ConsumerGroupHeartbeatRequest) -> bool:
    has_topics = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return has_topics and request.rebalance_timeout_ms != -1 and request.topic_partitions == []


def owned_by(request: ConsumerGroupHeartbeatRequest) -> frozenset[IdPartition] | None:
    """Return the partitions that a member reports to own, None if it reports none."""
    if request.topic_partitions is None:
        return None
    return frozenset(
        (topic.topic_id, number)
        for topic in request.topic_partitions
        for number in topic.partitions
    )


def refusal(error: int, message: str = "refused") -> ConsumerGroupHeartbeatResponse:
    """Return an error response; like a broker's it has epoch 0 and interval 0."""
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)


def _assignment(partitions: Iterable[IdPartition]) -> Assignment:
    topics: dict[bytes, TopicPartitions] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, TopicPartitions(topic_id)).partitions.append(number)
    return Assignment(list(topics.values()))
