"""Members of a consumer group in one test thread and on one clock.

``LoopbackMember`` has the request managers of the product for a consumer with a ``group_id``, and
acts as its application: it polls, runs the steps of rebalances (a REVOKE commits first), and takes
records. ``LoopbackGroup`` runs all members in turn and moves the clock in small steps, so that
joins, fencing, coordinator moves and kills happen at exact points and every run is the same. After
each step it checks that no partition is delivered to two members of the coordinator's group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from kfast.application.record_converter import RecordConverter
from kfast.client.metadata import Metadata
from kfast.config import ConsumerConfig
from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.error_mailbox import ErrorMailbox
from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.consumer.fetch.collector import FetchCollector
from kfast.consumer.group.membership import RebalanceKind, RebalanceStep
from kfast.consumer.manager_context import ManagerContext
from kfast.consumer.pending_result import PendingResult
from kfast.consumer.request_managers import RequestManagers
from kfast.consumer.subscription_state import SubscriptionState
from kfast.errors import KafkaError
from kfast.network.network_client import NetworkClient
from kfast.network.network_io import NetworkIO
from kfast.records import PartitionRecords
from kfast.settings.offset_reset import OffsetResetStrategy
from kfast.testing.cluster import FakeCluster
from kfast.threads.application_steps import ApplicationSteps
from kfast.types import OffsetAndMetadata, TopicPartition
from tests.fake_clock import FakeClock
from tests.simulation.loopback import LoopbackNetwork

STEP_MS: Final = 50
"""How far the clock moves between two turns of all members."""


class LoopbackMember:
    """One consumer of a group with its application; ``clock`` is shared by all members.

    ``calls`` are the listener calls (kind of the step and its partitions), ``read`` the offsets by
    partition, ``errors`` those that polls raised. A member that ``is_dead`` was killed without a
    LeaveGroup request and gets no turn any more.
    """

    def __init__(self, cluster: FakeCluster, clock: FakeClock, **configs: Any) -> None:
        self.cluster = cluster
        self.clock = clock
        self.network = LoopbackNetwork(cluster, clock)
        configs.setdefault("bootstrap_servers", self.network.bootstrap_servers)
        configs.setdefault("auto_offset_reset", "earliest")
        self.config = config = ConsumerConfig(configs)
        self.metadata = Metadata(config, clock)
        self.subscriptions = SubscriptionState(OffsetResetStrategy.parse(config.auto_offset_reset))
        self.wakeup = ApplicationWakeup()
        self.mailbox = ErrorMailbox(self.wakeup)
        self.fetch_buffer = FetchBuffer(
            config.buffer_memory_bytes, self.wakeup, on_room=self.network.wakeup
        )
        self.client = NetworkClient(
            config,
            self.metadata,
            clock,
            NetworkIO(
                self.network,
                self.network.connect,
                self.network,
                self.fetch_buffer.memory.may_receive,
            ),
        )
        self.collector: FetchCollector[PartitionRecords] = FetchCollector(
            self.subscriptions, self.fetch_buffer, self.mailbox, RecordConverter(config)
        )
        self.steps = ApplicationSteps(clock.now, self.wakeup.signal)
        context = ManagerContext(
            config,
            clock,
            self.metadata,
            self.client,
            self.subscriptions,
            self.mailbox,
            self.wakeup,
        )
        self.managers = RequestManagers.of(context, self.fetch_buffer, self.steps)
        assert self.managers.group is not None
        self.group = self.managers.group
        self.membership = self.group.membership
        self.calls: list[tuple[RebalanceKind, set[TopicPartition]]] = []
        self.read: dict[TopicPartition, list[int]] = {}
        self.errors: list[KafkaError] = []
        self.is_polling = True
        self.is_dead = False
        self._step: RebalanceStep | None = None
        self._commit: PendingResult[Any] | None = None

    # -- turns -----------------------------------------------------------------------------

    def turn(self) -> None:
        """Run one turn of the network thread, then one of the application."""
        now_ms = self.clock.now
        for manager in self.managers.in_order:
            for request in manager.poll(now_ms).requests:
                self.client.send(request, now_ms)
        self.client.poll(0, now_ms)
        if self.is_polling:
            self._application(now_ms)

    def _application(self, now_ms: int) -> None:
        self.steps.last_poll_ms = now_ms
        if self._step is None:
            self._step = self.steps.begin()
            if self._step is not None and self._step.kind is RebalanceKind.REVOKE:
                offsets = self.consumed(self._step.partitions)
                self._commit = self.group.commits.commit(
                    offsets, now_ms, self._step.deadline_ms, is_auto_commit=True
                )
        if self._step is not None:
            if self._commit is None or self._commit.is_done:
                self._end(self._step, now_ms)
            return
        try:
            records = self.collector.collect(None) or {}
        except KafkaError as error:
            self.errors.append(error)
            return
        for tp, rows in records.items():
            self.read.setdefault(tp, []).extend(row.offset for row in rows)

    def _end(self, step: RebalanceStep, now_ms: int) -> None:
        self._step = self._commit = None
        if step.kind is RebalanceKind.ASSIGN:
            self.subscriptions.assign_from_group(step.assignment, pending_callback=step.partitions)
            self.subscriptions.clear_pending_callback(step.partitions)
        else:
            self.subscriptions.assign_from_group(step.assignment)
        self.calls.append((step.kind, set(step.partitions)))
        self.steps.end(step)
        self.membership.step_done(step, None, now_ms)

    # -- what the application may do -------------------------------------------------------

    def consumed(
        self, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of those of these partitions that have one."""
        found = {}
        for tp in partitions & self.subscriptions.assigned_partitions():
            position = self.subscriptions.position(tp)
            if position is not None:
                found[tp] = OffsetAndMetadata(position.offset)
        return found

    def leave(self, *, is_closing: bool = False) -> PendingResult[None]:
        """Leave the group without a commit."""
        self._step = self._commit = None
        self.subscriptions.unsubscribe()
        return self.membership.leave(self.clock.now, is_closing=is_closing)

    def delivered(self) -> set[TopicPartition]:
        """Return the partitions whose records the application may get now."""
        with self.subscriptions.lock:
            return {
                s.topic_partition for s in self.subscriptions.states() if not s.is_pending_callback
            }

    def __repr__(self) -> str:
        return f"<LoopbackMember {self.config.client_id} {self.membership!r}>"


class LoopbackGroup:
    """Members on one clock.

    ``configs`` are settings of all members; ``members`` includes the dead ones; with
    ``checks_owners`` two owners of a partition are an error.
    """

    def __init__(self, cluster: FakeCluster, **configs: Any) -> None:
        self.cluster = cluster
        self.clock = FakeClock()
        self.members: list[LoopbackMember] = []
        self.checks_owners = True
        self._configs = {"group_id": "g", **configs}

    def add(self, *topics: str, **configs: Any) -> LoopbackMember:
        """Add a member that subscribes to these topics, by default to "t"."""
        configs.setdefault("client_id", f"member-{len(self.members)}")
        member = LoopbackMember(self.cluster, self.clock, **self._configs, **configs)
        member.subscriptions.subscribe(topics or ["t"])
        self.members.append(member)
        return member

    def run(self, ms: int) -> None:
        """Let virtual time pass."""
        self.run_until(lambda: False, ms)

    def run_until(self, condition: Callable[[], bool], timeout_ms: int = 60_000) -> bool:
        """Give turns until a condition holds; return whether it did in time."""
        deadline_ms = self.clock.now + timeout_ms
        while not condition():
            if self.clock.now >= deadline_ms:
                return False
            for member in self.members:
                if not member.is_dead:
                    member.turn()
            if self.checks_owners:
                self._check_owners()
            self.clock.advance(STEP_MS)
        return True

    def _check_owners(self) -> None:
        owners: Counter[TopicPartition] = Counter()
        for member in self.members:
            if not member.is_dead and self._is_counted_in(member):
                owners.update(member.delivered())
        shared = sorted(tp for tp, count in owners.items() if count > 1)
        assert not shared, f"{shared} delivered to two members: {self.members}"

    def _is_counted_in(self, member: LoopbackMember) -> bool:
        """Return whether the coordinator has the member too: a removed one does not know yet."""
        identity = member.membership.identity
        consumers = self.cluster.groups.consumer(member.config.group_id or "")
        return (
            identity is not None
            and consumers is not None
            and identity.member_id in consumers.members
        )

    def shares(self) -> list[set[TopicPartition]]:
        """Return what each member has, the dead ones left out."""
        return [member.delivered() for member in self.members if not member.is_dead]

    def is_balanced(self, total: int) -> bool:
        """Return whether all partitions are delivered, shared evenly."""
        counts = [len(share) for share in self.shares()]
        return sum(counts) == total and max(counts) - min(counts) <= 1

    def read_by(self, *members: LoopbackMember) -> Counter[tuple[TopicPartition, int]]:
        """Return how often each record was taken."""
        return Counter(
            (tp, offset)
            for member in members or self.members
            for tp, offsets in member.read.items()
            for offset in offsets
        )

    def __repr__(self) -> str:
        return f"<LoopbackGroup t={self.clock.now} {self.members}>"
