"""A whole consumer without threads, sockets and time: the test makes every response.

Metadata, SubscriptionState, FetchBuffer and the request managers of the product, with connections
that are a set of usable brokers. Requests are in ``outbox``; a test takes them out and makes their
responses, which are encoded and parsed as they would be from a socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from kfast._native.buffers import copy_of
from kfast.client.metadata import Metadata
from kfast.client.request import Channel, ClientResponse, UnsentRequest
from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.error_mailbox import ErrorMailbox
from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.consumer.fetch.collector import FetchCollector
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.manager_context import ManagerContext
from kfast.consumer.request_managers import RequestManagers
from kfast.consumer.subscription_state import SubscriptionState
from kfast.errors import DisconnectError, KafkaError, UnsupportedVersionError
from kfast.protocol.api_keys import API_VERSIONS, ApiKey
from kfast.protocol.messages import response_reader
from kfast.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kfast.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kfast.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kfast.settings.offset_reset import OffsetResetStrategy
from kfast.testing.batches import Record
from kfast.threads.application_steps import ApplicationSteps
from kfast.types import TopicPartition
from tests.fake_clock import FakeClock
from tests.reference.batches import encode_record_batch
from tests.unit.configs import config
from tests.unit.consumer.clusters import cluster, topic_id_of
from tests.unit.consumer.fakes import FakeBuild, FakeRows

if TYPE_CHECKING:
    from kfast._native.record_index import RecordIndex
    from kfast.client.cluster import Cluster
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.consumer.topic_partition_state import TopicPartitionState

M = TypeVar("M")

Leaders = Mapping[TopicPartition, tuple[int, int]]


def batch(first: int, count: int, *, epoch: int = -1, size: int = 10, **header: Any) -> bytes:
    """Encode a batch of consecutive records with values of one size."""
    records = [Record(value=b"x" * size) for _ in range(count)]
    return encode_record_batch(records, first, leader_epoch=epoch, **header)


@dataclass
class Part:
    """One partition of a Fetch response."""

    records: bytes = b""
    error: int = 0
    high_watermark: int = 1_000_000
    last_stable_offset: int | None = None
    log_start_offset: int = 0
    preferred: int = -1
    leader: tuple[int, int] | None = None
    aborted: Iterable[tuple[int, int]] = ()

    def data(self, partition: int) -> PartitionData:
        is_error = self.error != 0
        stable = self.last_stable_offset
        return PartitionData(
            partition_index=partition,
            error_code=self.error,
            high_watermark=-1 if is_error else self.high_watermark,
            last_stable_offset=-1
            if is_error
            else self.high_watermark
            if stable is None
            else stable,
            log_start_offset=-1 if is_error else self.log_start_offset,
            aborted_transactions=[AbortedTransaction(*entry) for entry in self.aborted],
            preferred_read_replica=self.preferred,
            records=self.records,
            current_leader=LeaderIdAndEpoch(*(self.leader or (-1, -1))),
        )


def fetch_response(parts: Mapping[TopicPartition, Part], incarnation: int = 0) -> FetchResponse:
    """Make a Fetch response with these partitions."""
    topics: dict[str, FetchableTopicResponse] = {}
    for tp, part in parts.items():
        topic_id = topic_id_of(tp.topic, incarnation)
        if tp.topic not in topics:
            topics[tp.topic] = FetchableTopicResponse(
                topic=tp.topic, topic_id=topic_id, partitions=[]
            )
        topics[tp.topic].partitions.append(part.data(tp.partition))
    return FetchResponse(responses=list(topics.values()))


@dataclass
class BrokerConnections:
    """NodeConnections: brokers are usable unless a test says otherwise."""

    down: set[int] = field(default_factory=set)
    delay_ms: int = 50
    errors: dict[int, KafkaError] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    """Highest version offered, by API key; -1 for not at all."""

    def ready(self, node_id: int, now_ms: int, channel: Channel = Channel.DATA) -> bool:
        return node_id not in self.down

    def connection_delay(self, node_id: int, now_ms: int, channel: Channel = Channel.DATA) -> int:
        return self.delay_ms if node_id in self.down else 0

    def api_version(
        self,
        node_id: int,
        api_key: int,
        max_version: int | None = None,
        channel: Channel = Channel.DATA,
    ) -> int:
        low, high = API_VERSIONS[ApiKey(api_key)]
        high = min(high, self.newest.get(api_key, high))
        if max_version is not None:
            high = min(high, max_version)
        if high < low:
            raise UnsupportedVersionError(f"node {node_id} lacks API {api_key}", node=node_id)
        return high

    def connection_failed(self, node_id: int, channel: Channel | None = None) -> KafkaError | None:
        return self.errors.get(node_id)

    def finalized_feature(
        self, node_id: int, name: str, channel: Channel = Channel.DATA
    ) -> int | None:
        return None

    def least_loaded_node(self, now_ms: int) -> int | None:
        return 1


def rows_of(fetch: CompletedFetch, chunk: RecordIndex) -> FakeBuild:
    """Convert a real chunk to its offsets."""
    offsets = np.frombuffer(memoryview(chunk.offsets), np.int64, len(chunk)).tolist()
    return FakeBuild(FakeRows(offsets, chunk.next_offset))


class Harness:
    """One consumer, run by the test.

    ``leaders`` has the leader id and epoch of every partition; brokers are 1, 2 and 3.
    ``auto_offset_reset`` is earliest unless configured.
    """

    def __init__(self, leaders: Leaders | None = None, **configs: object) -> None:
        configs.setdefault("auto_offset_reset", "earliest")
        self.config = config(configs)
        self.clock = FakeClock()
        self.metadata = Metadata(self.config, self.clock)
        self.connections = BrokerConnections()
        self.rooms = 0
        self.on_room: Callable[[], object] = lambda: None
        self.subscriptions = SubscriptionState(
            OffsetResetStrategy.parse(self.config.auto_offset_reset),
            is_read_committed=self.config.isolation_level == "read_committed",
        )
        self.wakeup = ApplicationWakeup()
        self.errors = ErrorMailbox(self.wakeup)
        self.buffer = FetchBuffer(
            self.config.buffer_memory_bytes, self.wakeup, on_room=self._room_made
        )
        context = ManagerContext(
            self.config,
            self.clock,
            self.metadata,
            self.connections,
            self.subscriptions,
            self.errors,
            self.wakeup,
        )
        port = ApplicationSteps(self.clock.now, self.wakeup.signal)
        self.managers = RequestManagers.of(context, self.buffer, port)
        self.offsets = self.managers.offsets
        self.fetcher = self.managers.fetcher
        self.collector = FetchCollector(self.subscriptions, self.buffer, self.errors, rows_of)
        self.outbox: list[UnsentRequest] = []
        self.next_poll_ms = 0
        if leaders is not None:
            self.set_leaders(leaders)

    def _room_made(self) -> None:
        self.rooms += 1
        self.on_room()

    # --- the cluster ------------------------------------------------------------------------------

    def set_leaders(self, leaders: Leaders, **options: Any) -> None:
        """Replace the cluster metadata."""
        self.set_cluster(cluster(leaders, **options))

    def set_cluster(self, view: Cluster) -> None:
        self.metadata.cluster = view
        self.metadata.version += 1

    # --- the application --------------------------------------------------------------------------

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Assign partitions by hand and seek in each."""
        self.subscriptions.assign_from_user(offsets)
        for tp, offset in offsets.items():
            self.subscriptions.seek(tp, FetchPosition(offset))

    def state(self, tp: TopicPartition) -> TopicPartitionState:
        return self.subscriptions.assigned(tp)

    def position(self, tp: TopicPartition) -> int | None:
        position = self.subscriptions.position(tp)
        return None if position is None else position.offset

    def collect(self, max_records: int | None = None) -> dict[TopicPartition, list[int]]:
        """Poll once without waiting; return the offsets handed out."""
        records = self.collector.collect(max_records) or {}
        return {tp: rows.offsets for tp, rows in records.items() if rows.offsets}

    # --- the network thread -----------------------------------------------------------------------

    def turn(self) -> list[UnsentRequest]:
        """Poll the managers in their order; return their requests."""
        now = self.clock.now_ms()
        sent: list[UnsentRequest] = []
        self.next_poll_ms = 1 << 40
        for manager in self.managers.in_order[:-1]:  # the view of the cluster is the test's
            result = manager.poll(now)
            sent += result.requests
            self.next_poll_ms = min(self.next_poll_ms, result.next_poll_ms)
        self.outbox += sent
        return sent

    def advance(self, ms: int) -> list[UnsentRequest]:
        """Let time pass, then turn."""
        self.clock.advance(ms)
        return self.turn()

    def waiting(self, kind: type[object], node: int | None = None) -> list[UnsentRequest]:
        """Return the unanswered requests of a kind, optionally of one broker."""
        return [
            request
            for request in self.outbox
            if isinstance(request.message, kind) and node in (None, request.node_id)
        ]

    def take(self, kind: type[object], node: int | None = None) -> UnsentRequest:
        """Turn, then take the one unanswered request of a kind out of the outbox."""
        self.turn()
        found = self.waiting(kind, node)
        assert len(found) == 1, f"{len(found)} requests: {self.outbox}"
        self.outbox.remove(found[0])
        return found[0]

    def fetch(self, node: int | None = None) -> UnsentRequest:
        return self.take(FetchRequest, node)

    def version_of(self, request: UnsentRequest) -> int:
        assert request.node_id is not None
        key = request.message.API_KEY
        return self.connections.api_version(request.node_id, key, request.max_version)

    def answer(self, request: UnsentRequest, message: Any, *, is_gated: bool = False) -> bool:
        """Answer a request; the message goes through bytes.

        Returns
        -------
        bool
            False when ``is_gated`` and the receive gate says that there is no room.
        """
        assert request.node_id is not None
        version = self.version_of(request)
        frame = copy_of(message.encode(version))
        if is_gated and not self.buffer.memory.may_receive(frame.size):
            return False
        response = ClientResponse(
            response_reader(request.message.API_KEY)(frame, 0, version),
            version,
            request.node_id,
            frame,
            1,
        )
        request.handler.handle_response(request, response, self.clock.now_ms())
        return True

    def fail(self, request: UnsentRequest, error: KafkaError | None = None) -> None:
        """Fail a request."""
        error = error or DisconnectError("gone", node=request.node_id)
        request.handler.handle_failure(request, error, self.clock.now_ms())

    # --- Fetch ------------------------------------------------------------------------------------

    def listed(self, request: UnsentRequest) -> dict[TopicPartition, FetchPartition]:
        """Return the partitions a Fetch lists, in order."""
        message = cast("FetchRequest", request.message)
        return {
            TopicPartition(topic.topic, part.partition): part
            for topic in message.topics
            for part in topic.partitions
        }

    def offsets_of(self, request: UnsentRequest) -> dict[TopicPartition, int]:
        return {tp: part.fetch_offset for tp, part in self.listed(request).items()}

    def forgotten(self, request: UnsentRequest) -> list[TopicPartition]:
        message = cast("FetchRequest", request.message)
        return [
            TopicPartition(topic.topic, number)
            for topic in message.forgotten_topics_data
            for number in topic.partitions
        ]

    def session_of(self, request: UnsentRequest) -> tuple[int, int]:
        message = cast("FetchRequest", request.message)
        return message.session_id, message.session_epoch

    def reply(
        self,
        request: UnsentRequest,
        parts: Mapping[TopicPartition, Part] | None = None,
        *,
        session_id: int = 0,
        error: int = 0,
        throttle_ms: int = 0,
        endpoints: Iterable[tuple[int, str, int]] = (),
        exactly: bool = False,
        incarnation: int = 0,
    ) -> None:
        """Answer a Fetch. Full requests get an answer about every partition they list.

        Parameters
        ----------
        parts
            What partitions answer; the others have nothing new.
        exactly
            Answer about these partitions only, also where a broker would not.
        """
        parts = dict(parts or {})
        message = cast("FetchRequest", request.message)
        if message.session_epoch <= 0 and not error and not exactly:
            parts = {tp: parts.get(tp, Part()) for tp in self.listed(request)}
        response = fetch_response(parts, incarnation)
        response.throttle_time_ms = throttle_ms
        response.error_code = error
        response.session_id = session_id
        response.node_endpoints = [NodeEndpoint(*endpoint) for endpoint in endpoints]
        self.answer(request, response)

    # --- ListOffsets, OffsetForLeaderEpoch --------------------------------------------------------

    def asked_times(self, request: UnsentRequest) -> dict[TopicPartition, int]:
        message = cast("ListOffsetsRequest", request.message)
        return {
            TopicPartition(topic.name, part.partition_index): part.timestamp
            for topic in message.topics
            for part in topic.partitions
        }

    def reply_offsets(
        self, request: UnsentRequest, offsets: Mapping[TopicPartition, int | tuple[int, int]]
    ) -> None:
        """Answer a ListOffsets: offsets, or (error code, offset)."""
        topics: dict[str, ListOffsetsTopicResponse] = {}
        for tp, value in offsets.items():
            code, offset = value if isinstance(value, tuple) else (0, value)
            if tp.topic not in topics:
                topics[tp.topic] = ListOffsetsTopicResponse(name=tp.topic, partitions=[])
            topics[tp.topic].partitions.append(
                ListOffsetsPartitionResponse(
                    partition_index=tp.partition,
                    error_code=code,
                    timestamp=-1 if offset < 0 else 1000 + offset,
                    offset=offset,
                    leader_epoch=-1 if offset < 0 else 5,
                )
            )
        self.answer(request, ListOffsetsResponse(topics=list(topics.values())))

    def reply_epochs(
        self, request: UnsentRequest, ends: Mapping[TopicPartition, tuple[int, int] | int]
    ) -> None:
        """Answer an OffsetForLeaderEpoch: (leader epoch, end offset), or an error code."""
        assert isinstance(request.message, OffsetForLeaderEpochRequest)
        topics: dict[str, OffsetForLeaderTopicResult] = {}
        for tp, end in ends.items():
            code, (epoch, offset) = (0, end) if isinstance(end, tuple) else (end, (-1, -1))
            if tp.topic not in topics:
                topics[tp.topic] = OffsetForLeaderTopicResult(topic=tp.topic, partitions=[])
            topics[tp.topic].partitions.append(
                EpochEndOffset(
                    error_code=code, partition=tp.partition, leader_epoch=epoch, end_offset=offset
                )
            )
        self.answer(request, OffsetForLeaderEpochResponse(topics=list(topics.values())))


def reading(offsets: Mapping[TopicPartition, int] | None = None, **configs: object) -> Harness:
    """Return a consumer of one broker's partitions, by default of t-0 from offset 0."""
    offsets = offsets or {TopicPartition("t", 0): 0}
    harness = Harness(dict.fromkeys([TopicPartition("t", n) for n in range(3)], (1, 5)), **configs)
    harness.assign(offsets)
    return harness
