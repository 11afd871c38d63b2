"""The coordinator connection: CoordinatorFinder and CommitRequestManager on a scripted network."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kfast.client.request import Channel
from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.error_mailbox import ErrorMailbox
from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.consumer.manager_context import ManagerContext
from kfast.consumer.pending_result import PendingResult
from kfast.consumer.request_managers import RequestManagers
from kfast.consumer.subscription_state import SubscriptionState
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.message import Message
from kfast.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kfast.settings.offset_reset import RESET_EARLIEST
from kfast.threads.application_steps import ApplicationSteps
from kfast.types import OffsetAndMetadata, TopicPartition
from tests.unit.client.frames import metadata
from tests.unit.consumer.fakes import T0
from tests.unit.network.bench_client import Bench
from tests.unit.network.scripted import Received, ScriptedServer, metadata_answer

GROUP = "g"
TWO = {1: ("b1", 9092), 2: ("b2", 9092)}


class GroupBench(Bench):
    """A network client with the parts of a group that send requests.

    Parameters
    ----------
    brokers : dict
        Those the metadata knows, and tells.
    coordinator : tuple of (int, str)
        Node id and host that FindCoordinator answers; may be changed.
    """

    def __init__(
        self,
        brokers: dict[int, tuple[str, int]],
        coordinator: tuple[int, str],
        **settings: object,
    ) -> None:
        super().__init__(brokers, group_id=GROUP, **settings)  # type: ignore[arg-type]
        self.coordinator = coordinator
        self.brokers = brokers
        subscriptions = SubscriptionState(RESET_EARLIEST)
        wakeup = ApplicationWakeup()
        buffer = FetchBuffer(self.config.buffer_memory_bytes, wakeup)
        context = ManagerContext(
            self.config,
            self.clock,
            self.metadata,
            self.client,
            subscriptions,
            ErrorMailbox(wakeup),
            wakeup,
        )
        port = ApplicationSteps(self.clock.now, wakeup.signal)
        group = RequestManagers.of(context, buffer, port).group
        assert group is not None
        self.finder, self.commits = group.finder, group.commits
        self.commits.membership = None  # partitions are assigned by hand
        self.servers = {n: self.listen(f"b{n}") for n in brokers}

    def listen(self, host: str) -> ScriptedServer:
        """Start a broker that answers all but Fetch."""
        server = self.network.listen(host)
        server.answers[ApiKey.METADATA] = self._metadata
        server.answers[ApiKey.FIND_COORDINATOR] = self._coordinator
        server.answers[ApiKey.OFFSET_COMMIT] = stored
        return server

    def _metadata(self, received: Received) -> Message | bytes | None:
        return metadata_answer(self.brokers)(received)

    def _coordinator(self, received: Received) -> Message:
        node_id, host = self.coordinator
        found = Coordinator(GROUP, node_id, host, 9092, 0)
        return FindCoordinatorResponse(coordinators=[found])

    def turn(self, timeout_ms: int = 1_000) -> None:
        for manager in (self.commits, self.finder):
            result = manager.poll(self.clock.now)
            for request in result.requests:
                self.client.send(request, self.clock.now)
            timeout_ms = min(timeout_ms, result.next_poll_ms)
        super().turn(timeout_ms)

    def commit(self, offset: int = 1) -> PendingResult[Mapping[TopicPartition, OffsetAndMetadata]]:
        offsets = {T0: OffsetAndMetadata(offset)}
        return self.commits.commit(offsets, self.clock.now, self.clock.now + 60_000)

    def commit_now(self) -> None:
        """Commit, and wait until that is stored."""
        result = self.commit()
        self.run_until(lambda: result.is_done)
        assert result.error is None


def stored(received: Received) -> Message:
    assert isinstance(received.message, OffsetCommitRequest)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(part.partition_index, 0)
                    for part in topic.partitions
                ],
            )
            for topic in received.message.topics
        ]
    )


def test_a_commit_does_not_wait_behind_a_fetch() -> None:
    """N-07: the answer comes while a long poll is parked on the broker's other connection."""
    bench = GroupBench({1: ("b1", 9092)}, (1, "b1"))
    server = bench.servers[1]
    bench.make_ready(1)
    bench.commit_now()
    del server.answers[ApiKey.METADATA]
    parked = bench.ask(1)
    bench.run_until(lambda: bench.in_flight(1))
    start = bench.clock.now
    bench.commit_now()
    assert bench.clock.now == start
    assert bench.handler.count == 0, "still parked"
    (fetching,) = {r.transport for r in server.requests(ApiKey.METADATA)[-1:]}
    committing = {r.transport for r in server.requests(ApiKey.OFFSET_COMMIT)}
    assert len(committing) == 1
    assert fetching not in committing
    assert len(server.open_transports()) == 2
    assert {r.transport for r in server.requests(ApiKey.FIND_COORDINATOR)} == {fetching}
    server.requests(ApiKey.METADATA)[-1].reply(metadata(brokers=bench.brokers))
    bench.run_until(lambda: bench.handler.count)
    assert [request for request, _ in bench.handler.responses] == [parked]


def test_a_coordinator_no_metadata_has_named() -> None:
    """M-01: it is reached at the address FindCoordinator gives."""
    bench = GroupBench({1: ("b1", 9092)}, (7, "b7"))
    hidden = bench.listen("b7")
    bench.commit_now()
    assert len(hidden.requests(ApiKey.OFFSET_COMMIT)) == 1
    bench.metadata.request_update()
    bench.clock.advance(1_000)
    bench.run_until(lambda: not bench.metadata.is_update_needed)
    assert 7 not in bench.metadata.cluster.brokers
    bench.commit_now()
    assert len(hidden.transports) == 1, "an answer that does not name it changes nothing"
    hidden.kill()
    bench.turn()
    bench.commit_now()
    assert len(hidden.transports) == 2


@pytest.mark.parametrize("has_request", [True, False])
def test_a_coordinator_that_dies_is_looked_for(has_request: bool) -> None:
    """G-04, G-25: with or without a request in flight; the commit is made at the next one."""
    bench = GroupBench(TWO, (2, "b2"))
    bench.commit_now()
    bench.coordinator = (1, "b1")
    dead = bench.servers[2]
    result = None
    if has_request:
        del dead.answers[ApiKey.OFFSET_COMMIT]
        result = bench.commit(2)
        bench.run_until(lambda: len(dead.requests(ApiKey.OFFSET_COMMIT)) == 2)
    del bench.network.servers["b2", 9092]
    dead.kill()
    bench.run_until(lambda: bench.finder.node_id != 2)
    result = result or bench.commit(2)
    bench.run_until(lambda: result.is_done)
    assert result.error is None
    assert len(bench.servers[1].requests(ApiKey.OFFSET_COMMIT)) == 1


def test_a_dead_coordinator_that_is_named_again_and_again_costs_little() -> None:
    """N-17: the cluster has not noticed yet; nobody spins."""
    bench = GroupBench(TWO, (2, "b2"))
    del bench.network.servers["b2", 9092]
    result = bench.commit()
    start = bench.clock.now
    while bench.clock.now - start < 30_000:
        bench.turn()
    assert not result.is_done
    questions = bench.servers[1].requests(ApiKey.FIND_COORDINATOR)
    assert 5 <= len(questions) <= 60
    assert bench.network.selects < 600
    bench.listen("b2")
    bench.run_until(lambda: result.is_done)
    assert result.error is None


def test_a_silent_coordinator_does_not_take_the_fetches_down() -> None:
    """N-07: the request timeout ends its own connection only."""
    bench = GroupBench({1: ("b1", 9092)}, (1, "b1"), request_timeout_ms=5_000)
    server = bench.servers[1]
    bench.make_ready(1)
    bench.commit_now()
    data = server.requests(ApiKey.FIND_COORDINATOR)[0].transport
    own = server.requests(ApiKey.OFFSET_COMMIT)[0].transport
    del server.answers[ApiKey.OFFSET_COMMIT]
    result = bench.commit()
    start = bench.clock.now
    bench.run_until(lambda: own.is_closed)
    assert bench.clock.now - start == 5_000
    assert not data.is_closed
    server.answers[ApiKey.OFFSET_COMMIT] = stored
    bench.run_until(lambda: result.is_done)
    assert result.error is None
    assert not data.is_closed


def test_a_lost_data_connection_leaves_the_coordinator_known() -> None:
    """G-04: the other connection says nothing about it."""
    bench = GroupBench({1: ("b1", 9092)}, (1, "b1"))
    server = bench.servers[1]
    bench.make_ready(1)
    bench.commit_now()
    server.requests(ApiKey.FIND_COORDINATOR)[0].transport.fail(ConnectionResetError())
    for _ in range(3):
        bench.turn()
    assert bench.finder.node_id == 1
    bench.commit_now()
    assert len(server.requests(ApiKey.FIND_COORDINATOR)) == 1


def test_an_idle_coordinator_connection_is_opened_again() -> None:
    """N-11: closing it for idleness does not make the coordinator unknown."""
    bench = GroupBench({1: ("b1", 9092)}, (1, "b1"), connections_max_idle_ms=60_000)
    server = bench.servers[1]
    bench.commit_now()
    own = server.requests(ApiKey.OFFSET_COMMIT)[0].transport
    bench.run_until(lambda: own.is_closed)
    assert bench.finder.node_id == 1
    bench.commit_now()
    assert len(server.requests(ApiKey.FIND_COORDINATOR)) == 1
    assert server.requests(ApiKey.OFFSET_COMMIT)[1].transport is not own


def test_a_coordinator_that_moves_is_followed() -> None:
    """N-10: connections follow the metadata to the broker's new address."""
    bench = GroupBench(TWO, (2, "b2"))
    bench.commit_now()
    moved = bench.listen("b22")
    bench.brokers = {1: ("b1", 9092), 2: ("b22", 9092)}
    bench.coordinator = (2, "b22")
    del bench.network.servers["b2", 9092]
    bench.servers[2].kill()
    bench.turn()
    bench.commit_now()
    assert len(moved.requests(ApiKey.OFFSET_COMMIT)) == 1
    assert bench.is_ready(2, Channel.COORDINATOR)


def test_starting_over_finds_the_coordinator_anew() -> None:
    """N-15: a rebootstrap closes the coordinator's connection too."""
    bench = GroupBench({1: ("b1", 9092)}, (1, "b1"), bootstrap_servers="b1:9092")
    bench.commit_now()
    bench.client.rebootstrap("asked to")
    bench.run_until(lambda: bench.metadata.cluster.brokers)
    bench.commit_now()
    assert bench.finder.node_id == 1
