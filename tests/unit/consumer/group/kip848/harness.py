"""A KIP-848 member without threads, sockets and time: the test is the coordinator.

Wires ConsumerMembership with CoordinatorFinder, TopicAssignmentManager and a `ScriptedApplication`
that runs the steps when the test has it poll.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kfast.client.request import Channel, UnsentRequest
from kfast.consumer.group.kip848.membership import ConsumerMembership
from kfast.consumer.group.membership import MemberIdentity, RebalanceKind, RebalanceStep
from kfast.consumer.pending_result import PendingResult
from kfast.consumer.subscription_state import SubscriptionState
from kfast.errors import KafkaError
from kfast.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kfast.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
)
from kfast.types import TopicPartition
from tests.unit.configs import config
from tests.unit.consumer.clusters import cluster, topic_id_of
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.group.coordinator_harness import (
    GROUP,
    CoordinatorHarness,
    GroupConnections,
    coordinator_is,
)

if TYPE_CHECKING:
    from kfast.client.cluster import Cluster

HEARTBEAT_KEY = 68
U0 = TopicPartition("u", 0)
LEADERS = dict.fromkeys([T0, T1, T2, U0], (1, 5))
ALL = {"rebalance_timeout_ms", "subscribed_topic_names", "topic_partitions"}
"""Fields of a full heartbeat."""


def assignment(*partitions: TopicPartition, incarnation: int = 0) -> Assignment:
    """Return an assignment of these partitions, by the ids of their topics."""
    found: dict[str, list[int]] = {}
    for tp in partitions:
        found.setdefault(tp.topic, []).append(tp.partition)
    return Assignment(
        [
            TopicPartitions(topic_id_of(name, incarnation), numbers)
            for name, numbers in found.items()
        ]
    )


class FeatureConnections(GroupConnections):
    """GroupConnections with features."""

    def __init__(self) -> None:
        super().__init__()
        self.features: dict[str, int] | None = {"group.version": 1}

    def finalized_feature(
        self, node_id: int, name: str, channel: Channel = Channel.DATA
    ) -> int | None:
        return None if self.features is None else self.features.get(name, 0)


class ScriptedApplication:
    """The application thread: a StepPort, and what happens in poll().

    Parameters
    ----------
    subscriptions : SubscriptionState
        Changed by steps as the facade does.
    now_ms : int
        When it last polled.

    Attributes
    ----------
    calls : list
        What listeners were called with: "revoked", "lost", "assigned" and the partitions.
    fails_at : RebalanceKind or None
        Whose listener raises.
    """

    def __init__(self, subscriptions: SubscriptionState, now_ms: int) -> None:
        self._subscriptions = subscriptions
        self.last_poll_ms = now_ms
        self.due: RebalanceStep | None = None
        self.running: RebalanceStep | None = None
        self.posted: list[RebalanceStep] = []
        self.withdrawn: list[RebalanceStep] = []
        self.calls: list[tuple[str, set[TopicPartition]]] = []
        self.fails_at: RebalanceKind | None = None
        self.on_done: Callable[[RebalanceStep, BaseException | None], None] | None = None

    def post(self, step: RebalanceStep) -> None:
        assert self.due is None, "one step at a time"
        assert self.running is None, "one step at a time"
        self.due = step
        self.posted.append(step)

    def withdraw(self) -> bool:
        if self.due is None:
            return False
        self.withdrawn.append(self.due)
        self.due = None
        return True

    def begin(self) -> RebalanceStep:
        """Begin the step that is due; its listener takes its time."""
        assert self.due is not None, "there is no step"
        self.running, self.due = self.due, None
        return self.running

    def end(self) -> None:
        """End the step that was begun."""
        step, self.running = self.running, None
        assert step is not None
        names = {"revoke": "revoked", "lose": "lost", "assign": "assigned"}
        if step.kind is RebalanceKind.ASSIGN:
            self._subscriptions.assign_from_group(step.assignment, pending_callback=step.partitions)
        self.calls.append((names[step.kind.value], set(step.partitions)))
        error = RuntimeError("listener") if step.kind is self.fails_at else None
        if step.kind is RebalanceKind.ASSIGN:
            self._subscriptions.clear_pending_callback(step.partitions)
        else:
            self._subscriptions.assign_from_group(step.assignment)
        assert self.on_done is not None
        self.on_done(step, error)

    def poll(self, now_ms: int) -> None:
        """Poll once: steps run until none is due, or one has failed."""
        self.last_poll_ms = now_ms
        while self.due is not None:
            failed = self.due.kind is self.fails_at
            self.begin()
            self.end()
            if failed:
                return


def is_done(pending: PendingResult[None]) -> bool:
    """Return whether a result is there, and no error."""
    return pending.is_done and pending.error is None


@dataclass(frozen=True)
class Sent:
    """A heartbeat that was sent."""

    request: UnsentRequest

    @property
    def message(self) -> ConsumerGroupHeartbeatRequest:
        return cast("ConsumerGroupHeartbeatRequest", self.request.message)

    @property
    def epoch(self) -> int:
        return self.message.member_epoch

    @property
    def fields(self) -> set[str]:
        """The fields that say something."""
        unset = {"rebalance_timeout_ms": -1}
        names = (
            "rack_id",
            "rebalance_timeout_ms",
            "subscribed_topic_names",
            "subscribed_topic_regex",
            "server_assignor",
            "topic_partitions",
        )
        return {n for n in names if getattr(self.message, n) != unset.get(n)}

    @property
    def owned(self) -> set[tuple[bytes, int]] | None:
        topics = self.message.topic_partitions
        return None if topics is None else {(t.topic_id, p) for t in topics for p in t.partitions}


class Member(CoordinatorHarness):
    """One member, driven by hand. Topics t (0-2) and u (0) exist; the coordinator is node 2.

    Parameters
    ----------
    topics : iterable of str
        Subscribed to from the start; none for no subscription.
    view : Cluster or None
        What metadata knows.
    **configs
        Settings.
    """

    connections: FeatureConnections

    def __init__(
        self, *, topics: Iterable[str] = ("t",), view: Cluster | None = None, **configs: object
    ) -> None:
        configs.setdefault("group_protocol", "consumer")
        settings = config(configs, group_id=GROUP)
        view = cluster(LEADERS) if view is None else view
        super().__init__(settings, view, FeatureConnections())
        self.topics = self.parts.assignment
        self.membership = cast("ConsumerMembership", self.group.membership)
        self.application.on_done = lambda step, error: self.membership.step_done(
            step, error, self.now
        )
        self.managers = self.in_order(self.topics, self.membership, self.finder)
        self.history: list[Sent] = []
        self.finds_coordinator = True
        if topics:
            self.subscriptions.subscribe(list(topics))

    def make_port(self) -> ScriptedApplication:
        self.application = ScriptedApplication(self.subscriptions, self.now)
        return self.application

    @property
    def state(self) -> str:
        return self.membership.state_name

    @property
    def id(self) -> str:
        return self.membership.heartbeats.member_id

    def identity(self) -> MemberIdentity | None:
        """Return who the member is; a call, for what it returns changes."""
        return self.membership.identity

    @property
    def calls(self) -> list[tuple[str, set[TopicPartition]]]:
        """What listeners were called with since the last look."""
        calls, self.application.calls = self.application.calls, []
        return calls

    @property
    def assigned(self) -> set[TopicPartition]:
        return set(self.subscriptions.assigned_partitions())

    def is_delivered(self, tp: TopicPartition) -> bool:
        state = self.subscriptions.state(tp)
        return state is not None and not state.is_pending_callback

    # --- turns ------------------------------------------------------------------------------------

    def answer_at_once(self, sent: Sequence[UnsentRequest]) -> bool:
        """Keep the heartbeats in mind; the coordinator is found at once."""
        for request in sent:
            if isinstance(request.message, ConsumerGroupHeartbeatRequest):
                assert request.channel is Channel.COORDINATOR
                assert request.node_id == self.finder.node_id
                self.history.append(Sent(request))
        asked = [r for r in self.outbox if isinstance(r.message, FindCoordinatorRequest)]
        if not asked or not self.finds_coordinator:
            return False
        self.outbox.remove(asked[0])
        self.respond(asked[0], coordinator_is())
        return True

    def application_polls(self) -> None:
        self.application.poll(self.now)
        self.turn()

    # --- the coordinator --------------------------------------------------------------------------

    def is_silent(self) -> bool:
        """Turn; return whether no heartbeat waits for an answer."""
        return not self.sends(ConsumerGroupHeartbeatRequest)

    def heartbeat(self) -> Sent:
        """Turn, then take the one unanswered heartbeat."""
        found = self.waiting(ConsumerGroupHeartbeatRequest)
        assert len(found) == 1, f"{len(found)} heartbeats: {self.outbox}"
        return Sent(self.take(ConsumerGroupHeartbeatRequest))

    def answer(
        self,
        sent: Sent,
        *partitions: TopicPartition,
        epoch: int = 1,
        error: int = 0,
        message: str | None = None,
        interval_ms: int = 5_000,
        member_id: str | None = None,
        target: Assignment | None = None,
        is_empty: bool = False,
    ) -> None:
        """Answer a heartbeat; without partitions the assignment is the one before.

        Parameters
        ----------
        is_empty
            Assign nothing at all.
        target
            The assignment as it is.
        """
        if target is None and (partitions or is_empty):
            target = assignment(*partitions)
        self.respond(
            sent.request,
            ConsumerGroupHeartbeatResponse(
                error_code=error,
                error_message=message,
                member_id=member_id,
                member_epoch=0 if error else epoch,
                heartbeat_interval_ms=0 if error else interval_ms,
                assignment=target,
            ),
        )
        self.turn()

    def fail(self, sent: Sent, error: KafkaError | None = None) -> None:
        """Let a heartbeat go unanswered."""
        self.lose(sent.request, error)
        self.turn()

    # --- ways to a state --------------------------------------------------------------------------

    def join(self, *partitions: TopicPartition, epoch: int = 1) -> Member:
        """Join and have these partitions assigned; leaves the member stable."""
        self.answer(self.heartbeat(), *partitions, epoch=epoch, is_empty=True)
        self.application_polls()
        self.answer(self.heartbeat(), epoch=epoch)
        assert self.state == "stable"
        assert self.assigned == set(partitions)
        self.application.calls.clear()
        self.history.clear()
        return self

    def next_heartbeat(self) -> Sent:
        """Let the interval pass; return the heartbeat that is sent then."""
        self.application.last_poll_ms = self.now
        self.advance(self.membership.heartbeats.timer.interval_ms)
        return self.heartbeat()

    def set_leaders(self, leaders: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.metadata.cluster = cluster(leaders)
        self.turn()

    def error(self) -> KafkaError | None:
        """Return what poll() would raise."""
        return self.errors.take(self.subscriptions.is_current)
