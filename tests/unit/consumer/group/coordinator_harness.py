"""A group member's managers without threads, sockets and time: what all its harnesses do alike.

Connections are just a set of usable brokers, messages travel as bytes, and every answer is the
test's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kfast._native.buffers import copy_of
from kfast.client.metadata import Metadata
from kfast.client.request import Channel, ClientResponse, UnsentRequest
from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.error_mailbox import ErrorMailbox
from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.consumer.group.membership import StepPort
from kfast.consumer.manager_context import ManagerContext
from kfast.consumer.request_managers import RequestManagers
from kfast.consumer.subscription_state import SubscriptionState
from kfast.errors import DisconnectError, KafkaError
from kfast.protocol.messages import response_reader
from kfast.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kfast.settings.offset_reset import OffsetResetStrategy
from kfast.threads.application_steps import ApplicationSteps
from kfast.types import TopicPartition
from tests.fake_clock import FakeClock
from tests.unit.consumer.fakes import T0, T1, T2
from tests.unit.consumer.harness import BrokerConnections

if TYPE_CHECKING:
    from kfast.client.cluster import Cluster
    from kfast.client.request_manager import RequestManager
    from kfast.config import ConsumerConfig

COORDINATOR = 2
GROUP = "g"
LEADERS: Mapping[TopicPartition, tuple[int, int]] = {T0: (1, 5), T1: (1, 5), T2: (3, 5)}


class GroupConnections(BrokerConnections):
    """BrokerConnections that note the channels asked about; channels can fail by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.channel_errors: dict[tuple[int, Channel], KafkaError] = {}

    def ready(self, node_id: int, now_ms: int, channel: Channel = Channel.DATA) -> bool:
        return node_id not in self.down and (node_id, channel) not in self.channel_errors

    def connection_delay(self, node_id: int, now_ms: int, channel: Channel = Channel.DATA) -> int:
        return 0 if self.ready(node_id, now_ms, channel) else self.delay_ms

    def connection_failed(self, node_id: int, channel: Channel | None = None) -> KafkaError | None:
        if channel is not None:
            return self.channel_errors.get((node_id, channel))
        return self.errors.get(node_id)


def coordinator_is(node_id: int = COORDINATOR, error: int = 0) -> FindCoordinatorResponse:
    """Return the answer to FindCoordinator from version 4 on."""
    found = Coordinator(GROUP, node_id, f"b{node_id}", 9092, error)
    return FindCoordinatorResponse(coordinators=[found])


class CoordinatorHarness:
    """Managers driven by hand.

    Parameters
    ----------
    config : ConsumerConfig
        Settings.
    view : Cluster
        What metadata knows.
    connections : GroupConnections
        Says which brokers can be written to.
    reset : str
        Where partitions without a committed offset begin.

    Attributes
    ----------
    managers : sequence of RequestManager
        To be set by whoever derives from it; polled in this order.
    outbox : list of UnsentRequest
        Sent and not answered.
    next_poll_ms : int
        When the managers want to be polled again.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        view: Cluster,
        connections: GroupConnections,
        reset: str = "earliest",
    ) -> None:
        self.config = config
        self.clock = FakeClock()
        self.metadata = Metadata(config, self.clock)
        self.metadata.cluster = view
        self.connections = connections
        self.subscriptions = SubscriptionState(OffsetResetStrategy.parse(reset))
        self.wakeup = ApplicationWakeup()
        self.errors = ErrorMailbox(self.wakeup)
        buffer = FetchBuffer(config.buffer_memory_bytes, self.wakeup)
        self.context = ManagerContext(
            config,
            self.clock,
            self.metadata,
            connections,
            self.subscriptions,
            self.errors,
            self.wakeup,
        )
        self.parts = RequestManagers.of(self.context, buffer, self.make_port())
        assert self.parts.group is not None
        self.group = self.parts.group
        self.finder = self.group.finder
        self.finder_errors: list[KafkaError] = []
        self.finder.add_error_listener(lambda error, _: self.finder_errors.append(error))
        self.managers: Sequence[RequestManager] = ()
        self.outbox: list[UnsentRequest] = []
        self.next_poll_ms = 0

    def make_port(self) -> StepPort:
        """Return what takes steps in place of the application thread."""
        return ApplicationSteps(self.now, self.wakeup.signal)

    def in_order(self, *managers: RequestManager) -> tuple[RequestManager, ...]:
        """Return these managers in the order in which the product polls them."""
        return tuple(each for each in self.parts.in_order if each in managers)

    @property
    def now(self) -> int:
        return self.clock.now

    def coordinator(self) -> int | None:
        return self.finder.node_id

    def failure(self) -> KafkaError | None:
        """Return why the coordinator is unknown; a call, for what it returns changes."""
        return self.finder.last_failure

    # --- turns ------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Poll until no manager wants to be polled at once."""
        for _ in range(20):
            self.next_poll_ms = 1 << 40
            sent: list[UnsentRequest] = []
            for manager in self.managers:
                result = manager.poll(self.now)
                for request in result.requests:
                    request.created_ms = self.now
                sent += result.requests
                self.next_poll_ms = min(self.next_poll_ms, result.next_poll_ms)
            self.outbox += sent
            if not self.answer_at_once(sent) and self.next_poll_ms > 0:
                return
        raise AssertionError("a manager wants to be polled without end")

    def answer_at_once(self, sent: Sequence[UnsentRequest]) -> bool:
        """See what was just sent; return whether something of it was answered."""
        return False

    def advance(self, ms: int) -> None:
        """Let time pass, then turn."""
        self.clock.advance(ms)
        self.turn()

    # --- requests and answers ---------------------------------------------------------------------

    def waiting(self, kind: type[object]) -> list[UnsentRequest]:
        """Turn, then return the unanswered requests of a kind."""
        self.turn()
        return [request for request in self.outbox if isinstance(request.message, kind)]

    def take(self, kind: type[object]) -> UnsentRequest:
        """Turn, then take the oldest unanswered request of a kind out of the outbox."""
        found = self.waiting(kind)
        assert found, f"no {kind.__name__}: {self.outbox} {self.managers}"
        self.outbox.remove(found[0])
        return found[0]

    def sends(self, kind: type[object]) -> bool:
        """Turn, then return whether a request of a kind is unanswered."""
        return bool(self.waiting(kind))

    def version_of(self, request: UnsentRequest) -> int:
        """Return the version a request goes out in; it must encode in that one."""
        assert request.node_id is not None
        version = self.connections.api_version(
            request.node_id, request.message.API_KEY, request.max_version, request.channel
        )
        assert request.min_version is None or request.min_version <= version
        request.message.encode(version)
        return version

    def respond(self, request: UnsentRequest, message: Any, version: int | None = None) -> None:
        """Answer a request."""
        version = self.version_of(request) if version is None else version
        frame = copy_of(message.encode(version))
        assert request.node_id is not None
        decoded = response_reader(request.message.API_KEY)(frame, 0, version)
        response = ClientResponse(decoded, version, request.node_id, frame, 1)
        request.handler.handle_response(request, response, self.now)

    def lose(self, request: UnsentRequest, error: KafkaError | None = None) -> None:
        """Let a request go unanswered."""
        error = error or DisconnectError("gone", node=request.node_id)
        request.handler.handle_failure(request, error, self.now)
