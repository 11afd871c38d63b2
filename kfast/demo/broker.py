"""DemoBroker: a broker in this process with one canned topic, for a first look without Kafka.

Serves the topic ``orders`` (`PARTITIONS` partitions, `RECORDS` records, one per ms and partition,
the last one of now) and the group ``billing``, which has committed some offsets and has no members.
It answers what reading, members of classic groups and the administrative commands ask; nothing can
be written. Records are made of a few thousand different ones when they are fetched. One thread
per connection; a request that it does not know or cannot read closes the connection.

Batches are of magic 2, without compression; of a batch only base offset, timestamps and checksum
depend on its place, so that its records are encoded once.
"""

from __future__ import annotations

import contextlib
import json
import random
import socketserver
import threading
import time
from collections.abc import Callable, Sequence
from struct import Struct
from types import TracebackType
from typing import Any, Final, Self

from kfast._native.crc32c import crc32c
from kfast.demo.coordinator import NO_GENERATION, PROTOCOL_TYPE, DemoCoordinator
from kfast.errors import ErrorCode, KafkaError, ProtocolError
from kfast.protocol.api_keys import API_SPECS, ApiKey
from kfast.protocol.message import Message
from kfast.protocol.messages import REQUESTS
from kfast.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from kfast.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kfast.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kfast.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kfast.protocol.messages.join_group import JoinGroupRequest
from kfast.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kfast.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kfast.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kfast.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

TOPIC: Final = "orders"
GROUP: Final = "billing"
PARTITIONS: Final = 4
RECORDS: Final = 1_000_000

_HOST: Final = "127.0.0.1"
_NODE: Final = 1
_END: Final = RECORDS // PARTITIONS
_BATCH: Final = 1_000
_TEMPLATES: Final = 6
_COMMITTED: Final = (_END, _END, _END - 70_000, _END - 1_000)
"""Committed offsets of ``GROUP`` by partition."""
_TOPIC_ID: Final = b"kfast demo topic"
_MAX_REQUEST_BYTES: Final = 1 << 20
_MAX_WAIT_S: Final = 5.0

_OFFERED: Final = {
    ApiKey.FETCH: (10, 12),
    ApiKey.LIST_OFFSETS: (2, 7),
    ApiKey.METADATA: (7, 12),
    ApiKey.OFFSET_COMMIT: (6, 8),
    ApiKey.OFFSET_FETCH: (8, 8),
    ApiKey.FIND_COORDINATOR: (4, 4),
    ApiKey.JOIN_GROUP: (5, 9),
    ApiKey.HEARTBEAT: (3, 4),
    ApiKey.LEAVE_GROUP: (3, 5),
    ApiKey.SYNC_GROUP: (3, 5),
    ApiKey.DESCRIBE_GROUPS: (2, 5),
    ApiKey.LIST_GROUPS: (2, 5),
    ApiKey.API_VERSIONS: (0, 4),
}
"""Fetch by topic name only; OffsetFetch and FindCoordinator with lists of groups only."""

_SIZE: Final = Struct(">i")
_REQUEST_START: Final = Struct(">hhih")
_BATCH_START: Final = Struct(">qiibI")
_BATCH_REST: Final = Struct(">hiqqqhii")
_NO_TAGS: Final = b"\0"


# --- records --------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    """Return a zigzag varint."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _templates() -> list[bytes]:
    """Return the encoded records of some batches; a record's offset is that in its batch."""
    chooser = random.Random(7)
    lengths = [_varint(number) for number in range(1_024)]
    made = []
    for _ in range(_TEMPLATES):
        records = []
        for number in range(_BATCH):
            key = b"user-%05d" % chooser.randrange(10_000)
            value = json.dumps(
                {
                    "order": chooser.randrange(10**9),
                    "product": chooser.choice(("lamp", "chair", "kettle", "bicycle", "backpack")),
                    "quantity": chooser.choice((1, 1, 1, 2, 3)),
                    "price": chooser.randrange(100, 40_000) / 100,
                    "country": chooser.choice(("DE", "FR", "US", "JP", "BR", "IN")),
                },
                separators=(",", ":"),
            ).encode()
            place = lengths[number]
            body = b"".join(
                (b"\0", place, place, lengths[len(key)], key, lengths[len(value)], value, b"\0")
            )
            records.append(lengths[len(body)] + body)
        made.append(b"".join(records))
    return made


class _Log:
    """The records of the topic; ``start_ms`` is the timestamp of the first ones."""

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self._templates = _templates()

    def batches(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Return batches from that with ``offset`` on: one, and more while they fit."""
        parts: list[bytes] = []
        size = 0
        for number in range(offset // _BATCH, _END // _BATCH):
            body = self._templates[(number + partition) % _TEMPLATES]
            size += _BATCH_START.size + _BATCH_REST.size + len(body)
            if parts and size > max_bytes:
                break
            base = number * _BATCH
            first_ms = self.start_ms + base
            rest = _BATCH_REST.pack(
                0, _BATCH - 1, first_ms, first_ms + _BATCH - 1, -1, -1, -1, _BATCH
            )
            checksum = crc32c(body, crc32c(rest))
            length = len(rest) + len(body) + _BATCH_START.size - 12
            parts += (_BATCH_START.pack(base, length, 0, 2, checksum), rest, body)
        return b"".join(parts)

    def offset_at(self, timestamp: int) -> tuple[int, int]:
        """Return offset and timestamp of what ListOffsets asks for; -1 for none."""
        if timestamp == LATEST_TIMESTAMP:
            return _END, -1
        if timestamp == EARLIEST_TIMESTAMP:
            return 0, -1
        if timestamp == MAX_TIMESTAMP:
            return _END - 1, self.start_ms + _END - 1
        offset = max(0, timestamp - self.start_ms)
        return (offset, self.start_ms + offset) if timestamp >= 0 and offset < _END else (-1, -1)


# --- requests -------------------------------------------------------------------------------------


class _Answers:
    """Answers requests; any thread."""

    def __init__(self, log: _Log, port: int, closing: threading.Event) -> None:
        self._log = log
        self._port = port
        self._closing = closing
        self.groups = DemoCoordinator()
        committed = {(TOPIC, number): _COMMITTED[number] for number in range(PARTITIONS)}
        self.groups.commit(GROUP, "", NO_GENERATION, committed)
        self._by_api: dict[int, Callable[[Any], Message]] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.FETCH: self._fetch,
            ApiKey.FIND_COORDINATOR: self._find_coordinator,
            ApiKey.OFFSET_COMMIT: self._offset_commit,
            ApiKey.OFFSET_FETCH: self._offset_fetch,
            ApiKey.HEARTBEAT: self.groups.heartbeat,
            ApiKey.LEAVE_GROUP: self.groups.leave,
            ApiKey.SYNC_GROUP: self.groups.sync,
            ApiKey.DESCRIBE_GROUPS: self._describe_groups,
            ApiKey.LIST_GROUPS: self._list_groups,
        }

    def answer(self, frame: bytes) -> bytes:
        """Return the response to a frame; both without size. Raises KafkaError if there is none."""
        if len(frame) < _REQUEST_START.size:
            raise ProtocolError("the request is too short")
        api_key, version, correlation_id, length = _REQUEST_START.unpack_from(frame)
        low, high = _OFFERED.get(api_key, (1, 0))
        if not low <= version <= high:
            raise ProtocolError(f"API {api_key} version {version} is not offered")
        is_flexible = version >= API_SPECS[api_key].flexible_from
        start = _REQUEST_START.size + max(0, length) + is_flexible
        request = REQUESTS[api_key].decode(frame, version, start)
        if isinstance(request, JoinGroupRequest):
            client_id = frame[_REQUEST_START.size :][: max(0, length)].decode(errors="replace")
            response: Message = self.groups.join(request, client_id)
        else:
            response = self._by_api[api_key](request)
        out = bytearray(_SIZE.pack(correlation_id))
        if is_flexible and api_key != ApiKey.API_VERSIONS:
            out += _NO_TAGS
        response.encode_into(out, version)
        return bytes(out)

    def _api_versions(self, _request: ApiVersionsRequest) -> Message:
        offered = [ApiVersion(key, low, high) for key, (low, high) in _OFFERED.items()]
        return ApiVersionsResponse(0, offered)

    def _metadata(self, request: MetadataRequest) -> Message:
        names = [TOPIC] if request.topics is None else [each.name for each in request.topics]
        topics = []
        for name in names:
            if name != TOPIC:
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topics.append(MetadataResponseTopic(unknown, name, bytes(16), False, []))
                continue
            partitions = [
                MetadataResponsePartition(0, number, _NODE, 0, [_NODE], [_NODE], [])
                for number in range(PARTITIONS)
            ]
            topics.append(MetadataResponseTopic(0, TOPIC, _TOPIC_ID, False, partitions))
        broker = MetadataResponseBroker(_NODE, _HOST, self._port)
        return MetadataResponse(0, [broker], "kfast-demo", _NODE, topics)

    def _list_offsets(self, request: ListOffsetsRequest) -> Message:
        def found(topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
            number = asked.partition_index
            error = _error(topic, number)
            if error:
                return ListOffsetsPartitionResponse(number, error)
            offset, timestamp = self._log.offset_at(asked.timestamp)
            return ListOffsetsPartitionResponse(number, 0, timestamp, offset, 0)

        return ListOffsetsResponse(
            0,
            [
                ListOffsetsTopicResponse(each.name, [found(each.name, p) for p in each.partitions])
                for each in request.topics
            ],
        )

    def _fetch(self, request: FetchRequest) -> Message:
        left = request.max_bytes
        has_any = False

        def data(topic: str, asked: FetchPartition) -> PartitionData:
            nonlocal left, has_any
            error = _error(topic, asked.partition)
            if not error and not 0 <= asked.fetch_offset <= _END:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
            records = b""
            if error:
                has_any = True
            elif asked.fetch_offset < _END and (left > 0 or not has_any):
                most = min(left, asked.partition_max_bytes)
                records = self._log.batches(asked.partition, asked.fetch_offset, most)
                left -= len(records)
                has_any = True
            end = -1 if error else _END
            start = -1 if error else 0
            return PartitionData(asked.partition, error, end, end, start, None, -1, records)

        topics = [
            FetchableTopicResponse(
                each.topic, bytes(16), [data(each.topic, p) for p in each.partitions]
            )
            for each in request.topics
        ]
        if not has_any:
            self._closing.wait(min(max(0, request.max_wait_ms) / 1000, _MAX_WAIT_S))
        return FetchResponse(0, 0, 0, topics)

    def _find_coordinator(self, request: FindCoordinatorRequest) -> Message:
        found = [
            Coordinator(key, _NODE, _HOST, self._port, 0, None) for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(0, coordinators=found)

    def _offset_commit(self, request: OffsetCommitRequest) -> Message:
        offsets = {
            (topic.name, each.partition_index): each.committed_offset
            for topic in request.topics
            for each in topic.partitions
            if not _error(topic.name, each.partition_index)
        }
        error = self.groups.commit(
            request.group_id, request.member_id, request.generation_id_or_member_epoch, offsets
        )
        topics = [
            OffsetCommitResponseTopic(
                topic.name,
                bytes(16),
                [
                    OffsetCommitResponsePartition(
                        each.partition_index, error or _error(topic.name, each.partition_index)
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return OffsetCommitResponse(0, topics)

    def _offset_fetch(self, request: OffsetFetchRequest) -> Message:
        everything: Sequence[tuple[str, Sequence[int]]] = [(TOPIC, range(PARTITIONS))]

        groups = []
        for group in request.groups:
            committed = self.groups.committed(group.group_id)
            asked = (
                (everything if committed else [])
                if group.topics is None
                else [(each.name, each.partition_indexes) for each in group.topics]
            )
            topics = [
                OffsetFetchResponseTopics(
                    topic,
                    bytes(16),
                    [
                        OffsetFetchResponsePartitions(
                            number, committed.get((topic, number), -1), -1, "", 0
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in asked
            ]
            groups.append(OffsetFetchResponseGroup(group.group_id, topics, 0))
        return OffsetFetchResponse(0, groups=groups)

    def _describe_groups(self, request: DescribeGroupsRequest) -> Message:
        found = [self.groups.describe(name, _HOST) for name in request.groups]
        return DescribeGroupsResponse(0, found)

    def _list_groups(self, request: ListGroupsRequest) -> Message:
        states = {each.lower() for each in request.states_filter}
        types = {each.lower() for each in request.types_filter}
        found = [
            ListedGroup(name, PROTOCOL_TYPE, state, "classic")
            for name, state in self.groups.states().items()
            if not states or state.lower() in states
        ]
        return ListGroupsResponse(0, 0, found if not types or "classic" in types else [])


def _error(topic: str, partition: int) -> int:
    is_there = topic == TOPIC and 0 <= partition < PARTITIONS
    return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- the server -----------------------------------------------------------------------------------


class _Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        with contextlib.suppress(OSError, KafkaError):
            while True:
                start = self.rfile.read(_SIZE.size)
                if len(start) < _SIZE.size:
                    return
                (size,) = _SIZE.unpack(start)
                if not 0 < size <= _MAX_REQUEST_BYTES:
                    return
                frame = self.rfile.read(size)
                if len(frame) < size:
                    return
                response = server.answers.answer(frame)
                self.request.sendall(_SIZE.pack(len(response)) + response)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    answers: _Answers


class DemoBroker:
    """The broker, from ``__enter__`` to ``__exit__``; ``address`` is HOST:PORT."""

    def __init__(self) -> None:
        self._closing = threading.Event()
        self._server = _Server((_HOST, 0), _Connection)
        self._port = self._server.server_address[1]
        log = _Log(time.time_ns() // 1_000_000 - _END)
        self._server.answers = _Answers(log, self._port, self._closing)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="kfast-demo-broker", daemon=True
        )
        self.address = f"{_HOST}:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._server.answers.groups.end()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __repr__(self) -> str:
        return f"<DemoBroker {self.address}>"
