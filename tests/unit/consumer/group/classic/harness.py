"""A member of a classic group without threads, sockets and time: every answer is the test's.

Wires ClassicMembership, CoordinatorFinder and the topics' manager with an application that does
what its methods say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from kfast.client.request import UnsentRequest
from kfast.consumer.group.assignors.assignor import ConsumerPartitionAssignor
from kfast.consumer.group.classic.membership import ClassicMembership
from kfast.consumer.group.membership import RebalanceKind, RebalanceStep
from kfast.errors import KafkaError
from kfast.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kfast.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
)
from kfast.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kfast.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kfast.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kfast.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kfast.types import TopicPartition
from tests.fake_clock import FakeClock
from tests.unit.configs import config
from tests.unit.consumer.clusters import cluster
from tests.unit.consumer.fakes import T0, T1
from tests.unit.consumer.group.coordinator_harness import (
    COORDINATOR,
    GROUP,
    LEADERS,
    CoordinatorHarness,
    GroupConnections,
    coordinator_is,
)

ME = "me"


class FakePort:
    """StepPort: the application takes steps when the test says so."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.polled_ms: int | None = None
        self.due: RebalanceStep | None = None
        self.posted: list[RebalanceStep] = []
        self.withdrawn: list[RebalanceStep] = []

    @property
    def last_poll_ms(self) -> int:
        return self._clock.now if self.polled_ms is None else self.polled_ms

    def post(self, step: RebalanceStep) -> None:
        assert self.due is None, "a step is outstanding"
        self.due = step
        self.posted.append(step)

    def withdraw(self) -> bool:
        if self.due is None:
            return False
        self.withdrawn.append(self.due)
        self.due = None
        return True


class ClassicHarness(CoordinatorHarness):
    """One member, driven by hand.

    Parameters
    ----------
    topics : iterable of str
        What it subscribes to; nothing if empty.
    assignors : list of ConsumerPartitionAssignor or None
        By default those of the configuration.
    **configs
        Settings.
    """

    def __init__(
        self,
        topics: Iterable[str] = ("t",),
        *,
        leaders: Mapping[TopicPartition, tuple[int, int]] = LEADERS,
        assignors: list[ConsumerPartitionAssignor] | None = None,
        **configs: object,
    ) -> None:
        configs.setdefault("enable_auto_commit", False)
        if assignors:
            configs["partition_assignment_strategy"] = assignors
        settings = config({**configs, "group_id": GROUP})
        super().__init__(settings, cluster(leaders), GroupConnections())
        self.topics = self.parts.assignment
        self.member = cast("ClassicMembership", self.group.membership)
        self.managers = self.in_order(self.topics, self.member, self.finder)
        self.calls: list[tuple[str, set[TopicPartition]]] = []
        if topics:
            self.subscriptions.subscribe(list(topics))

    def make_port(self) -> FakePort:
        self.port = FakePort(self.clock)
        return self.port

    @property
    def state(self) -> str:
        return self.member.state_name

    def is_rebalancing(self) -> bool:
        return self.member.is_rebalancing

    @property
    def generation(self) -> int:
        identity = self.member.identity
        return -1 if identity is None else identity.generation_id

    @property
    def member_id(self) -> str | None:
        return None if self.member.identity is None else self.member.identity.member_id

    # --- requests and answers ---------------------------------------------------------------------

    def take(self, kind: type[object]) -> UnsentRequest:
        """Turn, then take the only unanswered request of a kind out of the outbox."""
        assert len(self.waiting(kind)) <= 1, f"several {kind.__name__}: {self.outbox}"
        return super().take(kind)

    def answer(self, request: UnsentRequest, message: Any, version: int | None = None) -> None:
        """Answer a request, then turn."""
        self.respond(request, message, version)
        self.turn()

    def fail(self, request: UnsentRequest, error: KafkaError | None = None) -> None:
        """Let a request go unanswered, then turn."""
        self.lose(request, error)
        self.turn()

    # --- the coordinator --------------------------------------------------------------------------

    def find(self, node_id: int = COORDINATOR, error: int = 0) -> None:
        """Answer FindCoordinator."""
        self.answer(self.take(FindCoordinatorRequest), coordinator_is(node_id, error))

    def joining(self) -> JoinGroupRequest:
        """Return the JoinGroup that waits for an answer."""
        (request,) = self.waiting(JoinGroupRequest)
        return cast("JoinGroupRequest", request.message)

    def subscription(self, message: JoinGroupRequest) -> ConsumerProtocolSubscription:
        """Return what a JoinGroup says of the member; all assignors must say the same."""
        return ConsumerProtocolSubscription.decode(message.protocols[0].metadata)

    def reply_join(
        self,
        generation: int = 1,
        *,
        error: int = 0,
        member_id: str = ME,
        leader: str = "other",
        protocol: str | None = None,
        members: Mapping[str, bytes] | None = None,
        request: UnsentRequest | None = None,
        **fields: Any,
    ) -> None:
        """Answer JoinGroup: by default another member leads."""
        request = request or self.take(JoinGroupRequest)
        name = protocol or cast("JoinGroupRequest", request.message).protocols[0].name
        response = JoinGroupResponse(
            error_code=error,
            generation_id=-1 if error else generation,
            protocol_type=None if error else fields.pop("protocol_type", "consumer"),
            protocol_name="" if error else name,
            leader="" if error else leader,
            member_id=member_id,
            members=[
                JoinGroupResponseMember(member_id=one, metadata=data)
                for one, data in (members or {}).items()
            ],
            **fields,
        )
        self.answer(request, response)

    def reply_sync(
        self,
        partitions: Collection[TopicPartition] = (),
        *,
        error: int = 0,
        data: bytes | None = None,
        request: UnsentRequest | None = None,
        **fields: Any,
    ) -> None:
        """Answer SyncGroup."""
        if data is None:
            data = b"" if error else ConsumerProtocolAssignment(list(partitions)).encode()
        request = request or self.take(SyncGroupRequest)
        self.answer(request, SyncGroupResponse(error_code=error, assignment=data, **fields))

    def reply_heartbeat(self, error: int = 0, request: UnsentRequest | None = None) -> None:
        request = request or self.take(HeartbeatRequest)
        self.answer(request, HeartbeatResponse(error_code=error))

    def beat(self, error: int = 0) -> None:
        """Let the heartbeat interval pass and answer the heartbeat."""
        self.advance(self.config.heartbeat_interval_ms)
        self.reply_heartbeat(error)

    def reply_leave(self, error: int = 0) -> LeaveGroupRequest:
        request = self.take(LeaveGroupRequest)
        self.answer(request, LeaveGroupResponse(error_code=error))
        return cast("LeaveGroupRequest", request.message)

    # --- the application --------------------------------------------------------------------------

    def app_polls(self, error: BaseException | None = None, steps: int = 10) -> None:
        """Let the application poll: it runs the steps that are due, and those that follow."""
        if self.port.polled_ms is not None:
            self.port.polled_ms = self.now
        for _ in range(steps):
            self.turn()
            step, self.port.due = self.port.due, None
            if step is None:
                return
            self.run(step)
            self.member.step_done(step, error, self.now)
            self.turn()

    def run(self, step: RebalanceStep) -> None:
        """Do what the application does in a step."""
        owned = self.subscriptions.assigned_partitions()
        if step.kind is RebalanceKind.ASSIGN:
            assert step.partitions == step.assignment - owned
            self.subscriptions.assign_from_group(
                sorted(step.assignment), pending_callback=step.partitions
            )
            self.calls.append(("assigned", set(step.partitions)))
            self.subscriptions.clear_pending_callback(step.partitions)
            return
        assert step.partitions <= owned
        assert step.assignment == owned - step.partitions
        assert all(self.is_held(tp) for tp in step.partitions)
        if step.kind is RebalanceKind.LOSE or step.partitions:
            name = "lost" if step.kind is RebalanceKind.LOSE else "revoked"
            self.calls.append((name, set(step.partitions)))
        self.subscriptions.assign_from_group(sorted(step.assignment))

    def take_calls(self) -> list[tuple[str, set[TopicPartition]]]:
        calls, self.calls = self.calls, []
        return calls

    def stops_polling(self) -> None:
        """From now on the application is somewhere else."""
        self.port.polled_ms = self.now

    def is_held(self, tp: TopicPartition) -> bool:
        return self.subscriptions.assigned(tp).is_pending_callback

    @property
    def owned(self) -> set[TopicPartition]:
        return set(self.subscriptions.assigned_partitions())

    @property
    def held(self) -> set[TopicPartition]:
        return {tp for tp in self.owned if self.is_held(tp)}

    def error(self) -> KafkaError | None:
        """Return the next error poll() would raise."""
        return self.errors.take(lambda tp, version: True)

    # --- whole rounds -----------------------------------------------------------------------------

    def join(
        self, partitions: Collection[TopicPartition] = (T0, T1), generation: int = 1, **fields: Any
    ) -> None:
        """Go from wherever it is to STABLE with these partitions."""
        self.turn()
        if self.finder.node_id is None:
            self.find()
        self.app_polls()
        self.reply_join(generation, **fields)
        self.reply_sync(partitions)
        self.app_polls()
        assert self.state == "stable", self.member
        assert not self.held, "a kept partition is not fetchable"

    def refresh_metadata(
        self, leaders: Mapping[TopicPartition, tuple[int, int]] = LEADERS, **options: Any
    ) -> None:
        """Let the client know this view of the cluster."""
        self.metadata.cluster = cluster(leaders, **options)
        self.metadata.version += 1
        self.metadata._is_update_needed = False
        self.turn()


def joining(**configs: Any) -> ClassicHarness:
    """Return a member whose first JoinGroup waits for an answer."""
    member = ClassicHarness(**configs)
    member.find()
    assert member.sends(JoinGroupRequest)
    return member


def syncing(**configs: Any) -> ClassicHarness:
    """Return a member whose first SyncGroup waits for an answer."""
    member = joining(**configs)
    member.reply_join(1)
    assert member.sends(SyncGroupRequest)
    return member


def rejoining() -> ClassicHarness:
    """Return a cooperative member with two partitions whose second JoinGroup waits."""
    member = ClassicHarness(partition_assignment_strategy="cooperative-sticky")
    member.join()
    member.beat(27)
    assert member.sends(JoinGroupRequest)
    member.take_calls()
    return member


def metadata_of(*topics: str, owned: Iterable[TopicPartition] = (), generation: int = -1) -> bytes:
    """Encode what another member says of itself."""
    return ConsumerProtocolSubscription(list(topics), None, list(owned), generation, None).encode()


def assignments_of(request: UnsentRequest) -> dict[str, set[TopicPartition]]:
    """Return what the leader hands in."""
    message = cast("SyncGroupRequest", request.message)
    return {
        one.member_id: set(ConsumerProtocolAssignment.decode(one.assignment).partitions)
        for one in message.assignments
    }
