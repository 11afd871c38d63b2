"""A group member with an application that does everything an application may do.

The member is the product's: ClassicMembership, CoordinatorFinder, CommitRequestManager,
CommittedPositions and SubscriptionState. The application polls, commits before its partitions are
revoked and from time to time, stalls, changes its subscription, leaves, comes back, crashes. What
it is assigned is reported to a `GroupLedger`, which knows what must never happen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, cast

from kfast.client.cluster import Cluster
from kfast.client.metadata import Metadata
from kfast.client.request_manager import NEVER_MS
from kfast.config import ConsumerConfig
from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.error_mailbox import ErrorMailbox
from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.group.classic.membership import ClassicMembership
from kfast.consumer.group.membership import RebalanceKind, RebalanceStep
from kfast.consumer.manager_context import ManagerContext
from kfast.consumer.pending_result import PendingResult
from kfast.consumer.request_managers import RequestManagers
from kfast.consumer.subscription_state import SubscriptionState
from kfast.consumer.topic_partition_state import AdvancePosition, FetchState
from kfast.protocol.messages.list_offsets import ListOffsetsRequest
from kfast.settings.offset_reset import OffsetResetStrategy
from kfast.types import OffsetAndMetadata, TopicPartition
from tests.end_to_end.group_ledger import LOG_END, GroupLedger
from tests.end_to_end.group_network import GroupNetwork, LinkedConnections

AUTO_COMMIT_MS: Final = 1_500
EARLIEST: Final = OffsetResetStrategy.parse("earliest")


class SimulatedMember:
    """One process of the group; also its StepPort.

    Parameters
    ----------
    name : str
        For messages.
    network : GroupNetwork
        Where its messages go.
    config : ConsumerConfig
        Its settings.
    ledger : GroupLedger
        Gets everything that is assigned, delivered and revoked.
    view : Cluster
        The topics as every member knows them.
    """

    def __init__(
        self,
        name: str,
        network: GroupNetwork,
        config: ConsumerConfig,
        ledger: GroupLedger,
        view: Cluster,
    ) -> None:
        self.name = name
        self.is_alive = True
        self.is_stalled = False
        self._network = network
        self._rng: random.Random = network.rng
        self._ledger = ledger
        self._commits_before_revoking = config.enable_auto_commit
        self._connections = LinkedConnections(network, self)
        clock = network.clock
        metadata = Metadata(config, clock)
        metadata.cluster = view
        wakeup = ApplicationWakeup()
        self.errors = ErrorMailbox(wakeup)
        self.subscriptions = SubscriptionState(EARLIEST)
        context = ManagerContext(
            config, clock, metadata, self._connections, self.subscriptions, self.errors, wakeup
        )
        parts = RequestManagers.of(context, FetchBuffer(1 << 20, wakeup), self)
        assert parts.group is not None
        self.membership = cast("ClassicMembership", parts.group.membership)
        self._commits = parts.group.commits
        # There are no records to fetch, and the view of the cluster is the simulation's.
        self._managers = [m for m in parts.in_order if m not in (parts.fetcher, parts.metadata)]
        self._timer_ms = -1
        self._polled_ms = network.now
        self._is_blocked = False
        self._due: RebalanceStep | None = None
        self._committed_ms = network.now
        self._poll_delays_ms = (100, 1_200)

    # -- StepPort --------------------------------------------------------------------------

    @property
    def last_poll_ms(self) -> int:
        return self._network.now if self._is_blocked else self._polled_ms

    def post(self, step: RebalanceStep) -> None:
        assert self._due is None, "two steps at once"
        self._due = step

    def withdraw(self) -> bool:
        is_there, self._due = self._due is not None, None
        return is_there

    # -- the network thread ----------------------------------------------------------------

    def turn(self) -> None:
        """Let all managers do what is due."""
        if not self.is_alive:
            return
        now = self._network.now
        for _ in range(20):
            next_ms = NEVER_MS
            for manager in self._managers:
                result = manager.poll(now)
                next_ms = min(next_ms, result.next_poll_ms)
                for request in result.requests:
                    if isinstance(request.message, ListOffsetsRequest):
                        self._reset_positions()  # the simulation has no leaders
                    else:
                        self._connections.send(request)
            if next_ms > 0:
                break
        else:
            raise AssertionError(f"{self.name} is polled without end")
        due_ms = now + next_ms
        if not now < self._timer_ms <= due_ms:
            self._timer_ms = due_ms
            if next_ms < 1 << 30:
                self._network.at(next_ms, partial(self._timer, due_ms))

    def _reset_positions(self) -> None:
        for tp in self.subscriptions.partitions_in(FetchState.AWAIT_RESET):
            version = self.subscriptions.assigned(tp).version
            self.subscriptions.complete_reset(tp, version, FetchPosition(0))

    def _timer(self, due_ms: int) -> None:
        if due_ms == self._timer_ms:
            self._network.touch(self)

    # -- the application -------------------------------------------------------------------

    def subscribe(self, topics: Collection[str]) -> None:
        self.subscriptions.subscribe(topics)
        self._network.touch(self)

    @property
    def is_subscribed(self) -> bool:
        return self.subscriptions.has_subscription()

    @property
    def can_act(self) -> bool:
        """Whether the application is not inside a call."""
        return self.is_alive and not self._is_blocked and not self.is_stalled

    def start(self) -> None:
        """Begin to poll from time to time."""
        self._network.at(self._rng.randrange(50), self._loop)

    def hurry(self) -> None:
        """Poll often from now on."""
        self._poll_delays_ms = (100, 400)

    def _loop(self) -> None:
        if not self.is_alive:
            return
        if self.can_act and self.is_subscribed:
            self.poll()
        self._network.at(self._rng.randrange(*self._poll_delays_ms), self._loop)

    def stall(self, ms: int) -> None:
        """Be busy with something else, longer perhaps than the group allows."""
        self.is_stalled = True
        self._network.at(ms, self._wake)

    def _wake(self) -> None:
        self.is_stalled = False

    def poll(self) -> None:
        """What poll() does: commit, steps, records."""
        now = self._polled_ms = self._network.now
        if now - self._committed_ms >= AUTO_COMMIT_MS:
            self._committed_ms = now
            identity = self.membership.identity
            self._commits.commit(self._to_commit(), now, None, identity=identity)
            self._network.touch(self)
        elif self.membership.identity is None:
            self._network.touch(self)
        self._steps()

    def _steps(self) -> None:
        while self._due is not None:
            step, self._due = self._due, None
            if step.kind is RebalanceKind.REVOKE and self._commits_before_revoking:
                self._commit_then(partial(self._take_away, step), step.deadline_ms)
                return
            if step.kind is RebalanceKind.ASSIGN:
                self._assign(step)
            else:
                self._take_away(step, {})
                return
        self._deliver()

    def _to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        found = {}
        with self.subscriptions.lock:
            for state in self.subscriptions.states():
                if state.position is not None:
                    found[state.topic_partition] = OffsetAndMetadata(state.position.offset)
        return found

    def _commit_then(
        self, then: Callable[[Mapping[TopicPartition, int]], None], deadline_ms: int
    ) -> None:
        """Block in a commit, then go on with the offsets that are committed."""
        now = self._network.now
        offsets = self._to_commit()
        self._is_blocked = True

        def ended(result: PendingResult[Any]) -> None:
            done = {} if result.error is not None else {tp: o.offset for tp, o in offsets.items()}
            self._network.at(0, partial(self._unblock, then, done))

        until_ms = min(deadline_ms, now + 3_000)
        identity = self.membership.identity
        result = self._commits.commit(offsets, now, until_ms, identity=identity)
        result.add_callback(ended)
        self._network.touch(self)

    def _unblock(
        self,
        then: Callable[[Mapping[TopicPartition, int]], None],
        done: Mapping[TopicPartition, int],
    ) -> None:
        self._polled_ms = self._network.now
        self._is_blocked = False
        if self.is_alive:
            then(done)

    def _take_away(self, step: RebalanceStep, done: Mapping[TopicPartition, int]) -> None:
        owned = self.subscriptions.assigned_partitions()
        assert step.partitions <= owned
        assert step.assignment == owned - step.partitions
        for tp in step.partitions:
            assert self.subscriptions.assigned(tp).is_pending_callback, (
                "delivered while being revoked"
            )
        self._give_up(step.partitions, {} if step.kind is RebalanceKind.LOSE else done)
        self.subscriptions.assign_from_group(sorted(step.assignment))
        self._done(step)

    def _give_up(
        self, partitions: Collection[TopicPartition], done: Mapping[TopicPartition, int]
    ) -> None:
        for tp in partitions:
            position = self.subscriptions.assigned(tp).position
            if position is not None:
                self._ledger.given_up(tp, position.offset, done.get(tp))

    def _assign(self, step: RebalanceStep) -> None:
        assert step.partitions == step.assignment - self.subscriptions.assigned_partitions()
        self._ledger.assigned(self, step.assignment, step.partitions)
        self.subscriptions.assign_from_group(
            sorted(step.assignment), pending_callback=step.partitions
        )
        self.subscriptions.clear_pending_callback(step.partitions)
        self.membership.step_done(step, None, self._network.now)
        self._network.touch(self)

    def _done(self, step: RebalanceStep) -> None:
        self.membership.step_done(step, None, self._network.now)
        self._network.touch(self)
        self._network.at(0, self._go_on)

    def _go_on(self) -> None:
        if self.can_act and self.is_subscribed:
            self._steps()

    def _deliver(self) -> None:
        with self.subscriptions.lock:
            for state in list(self.subscriptions.states()):
                if not state.is_deliverable or state.position is None:
                    continue
                tp, start = state.topic_partition, state.position.offset
                end = min(LOG_END, start + self._rng.randrange(1, 12))
                if end > start:
                    self._ledger.delivered(self, tp, range(start, end), state.version)
                    self.subscriptions.advance_positions([AdvancePosition(tp, state.version, end)])

    # -- ends ------------------------------------------------------------------------------

    def unsubscribe(self, *, is_closing: bool = False) -> None:
        """Commit, give everything up, leave."""
        if self.is_subscribed:
            deadline_ms = self._network.now + 1_000
            self._commit_then(partial(self._leave, is_closing), deadline_ms)

    def _leave(self, is_closing: bool, done: Mapping[TopicPartition, int]) -> None:
        is_lost = self.membership.identity is None or (
            self._due is not None and self._due.kind is RebalanceKind.LOSE
        )
        self._due = None
        self._give_up(self.subscriptions.assigned_partitions(), {} if is_lost else done)
        self.subscriptions.assign_from_group(())
        self.membership.leave(self._network.now, is_closing=is_closing)
        self.subscriptions.unsubscribe()
        self._network.touch(self)
        if is_closing:
            self._network.at(500, self.crash)

    def crash(self) -> None:
        """Be gone without a word."""
        self.is_alive = False
        self._network.drop_member(self)

    # -- what it has -----------------------------------------------------------------------

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """Return what it reads at the moment: assigned, not held."""
        with self.subscriptions.lock:
            return frozenset(
                state.topic_partition
                for state in self.subscriptions.states()
                if not state.is_pending_callback
            )

    @property
    def generation(self) -> int:
        identity = self.membership.identity
        return -1 if identity is None else identity.generation_id

    def __repr__(self) -> str:
        return f"<SimulatedMember {self.name} alive={self.is_alive} {self.membership!r}>"
