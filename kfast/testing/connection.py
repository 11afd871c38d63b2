"""One client connection to one fake node, sans-IO: bytes in, chunks out, time as an argument.

Owns the bytes received but not yet handled and the answer being sent. As on a real broker, one
request is handled at a time: the next one is looked at only when the last byte of the answer before
is out, so answers keep their order and a long poll holds up everything behind it.

Life of a request: bytes of its size and header -> (early faults) -> whole frame -> logged -> fault
plan -> handler -> (waiting) -> frame -> chunks at their times -> next request.

A request is refused as a broker refuses it: an unknown API, a version outside the offered range
(except ApiVersions) or a body that cannot be decoded is logged, and its connection closed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

from kfast.errors import KafkaError
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.message import Message
from kfast.protocol.messages import REQUESTS
from kfast.testing.answers import Answer, DelayedAnswer, VersionedAnswer
from kfast.testing.apis import HANDLERS
from kfast.testing.cluster import FakeCluster
from kfast.testing.context import RequestContext
from kfast.testing.fault_table import CONNECT, ReplyPlan
from kfast.testing.headers import decode_request_header, encode_response
from kfast.testing.request_log import LoggedRequest
from kfast.testing.sasl import SaslSession

MAX_REQUEST_BYTES: Final = 100 * 1024 * 1024

_SIZE: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">ihhi")  # size, api key, version, correlation id


@dataclass(frozen=True, slots=True)
class _ParsedRequest:
    """A request frame taken apart.

    Attributes
    ----------
    entry : LoggedRequest
        As it goes into the request log.
    is_refused : bool
        The broker closes the connection instead of answering.
    """

    entry: LoggedRequest
    is_refused: bool


def _parse_request(
    cluster: FakeCluster, node_id: int, connection_id: int, frame: bytes, now_ms: int
) -> _ParsedRequest:
    """Take a request frame (without size prefix) apart."""
    header = decode_request_header(frame)
    message: Any = None
    offered = cluster.api_versions(node_id).get(header.api_key)
    is_in_range = offered is not None and offered[0] <= header.api_version <= offered[1]
    request_class = REQUESTS.get(header.api_key)
    if is_in_range and header.api_key in HANDLERS and request_class is not None:
        try:
            message = request_class.decode(frame, header.api_version, header.body_offset)
        except KafkaError:
            message = None
    entry = LoggedRequest(
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
        message,
        node_id,
        connection_id,
        now_ms,
    )
    is_version_question = header.api_key == ApiKey.API_VERSIONS and not is_in_range
    return _ParsedRequest(entry, message is None and not is_version_question)


def _answer_request(
    cluster: FakeCluster, entry: LoggedRequest, plan: ReplyPlan, now_ms: int
) -> Answer:
    """Let the handler of the API answer."""
    return HANDLERS[entry.api_key](RequestContext(cluster, entry, plan, now_ms), entry.message)


def _encode_answer(
    answer: Message | VersionedAnswer, entry: LoggedRequest, plan: ReplyPlan
) -> bytes:
    """Return the frame to send, after all edits of the plan."""
    if not isinstance(answer, VersionedAnswer):
        answer = VersionedAnswer(answer, entry.version)
    if plan.throttle_time_ms and hasattr(answer.message, "throttle_time_ms"):
        answer.message.throttle_time_ms = plan.throttle_time_ms
    plan.edit_message(answer.message, entry)
    frame = encode_response(answer.message, answer.version, entry.correlation_id)
    return plan.edit_frame(frame)


@dataclass(slots=True)
class _Waiting:
    """A request whose handler waits."""

    entry: LoggedRequest
    plan: ReplyPlan
    answer: DelayedAnswer


class _Outgoing:
    """An answer on its way, and when its next chunk is due."""

    def __init__(self, data: bytes, plan: ReplyPlan, now_ms: int) -> None:
        self.plan = plan
        self._data = data
        self._sent = 0
        self._chunks: Iterator[tuple[int, int]] = plan.chunks(len(data))
        self._size = 0
        self.next_ms = now_ms + plan.delay_ms
        self._load()

    def _load(self) -> None:
        self._size, gap_ms = next(self._chunks, (0, 0))
        self.next_ms += gap_ms

    @property
    def is_done(self) -> bool:
        return self._sent >= len(self._data)

    def take(self, now_ms: int) -> bytes:
        chunk = self._data[self._sent : self._sent + self._size]
        self._sent += len(chunk)
        self.next_ms = max(self.next_ms, now_ms)
        self._load()
        return chunk


class BrokerConnection:
    """The broker's end of one connection.

    Attributes
    ----------
    is_closed : bool
        The broker has closed it; nothing more comes out.
    is_reset : bool
        It was closed with a reset.
    sasl : SaslSession or None
        How far the log-in is, on a cluster with SASL.
    """

    def __init__(self, cluster: FakeCluster, node_id: int, connection_id: int, now_ms: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.connection_id = connection_id
        self.is_closed = False
        self.is_reset = False
        self._inbox = bytearray()
        self._early_plan: ReplyPlan | None = None
        self._waiting: _Waiting | None = None
        self._outgoing: _Outgoing | None = None
        self._is_silent = False
        self._has_input_ended = False
        self._muted_until_ms = now_ms
        self.sasl = None if cluster.sasl is None else SaslSession(cluster.sasl)
        self._apply_connect_faults(now_ms)

    @classmethod
    def accept(cls, cluster: FakeCluster, node_id: int, now_ms: int) -> Self:
        """Accept a connection to a node.

        Raises
        ------
        ConnectionRefusedError
            The node is stopped.
        """
        with cluster.lock:
            if not cluster.nodes[node_id].is_running:
                raise ConnectionRefusedError(f"node {node_id} is stopped")
            cluster.connections_made += 1
            connection = cls(cluster, node_id, cluster.connections_made, now_ms)
            if not connection.is_closed:
                cluster.connections[connection.connection_id] = connection
            return connection

    def receive(self, data: bytes, now_ms: int) -> None:
        """Take bytes from the client."""
        with self.cluster.lock:
            if not self.is_closed:
                self._inbox += data
                self._advance(now_ms)

    def next_chunk(self, now_ms: int) -> bytes | None:
        """Return bytes that may go out now, None if there are none; one chunk per call."""
        with self.cluster.lock:
            self._advance(now_ms)
            outgoing = self._outgoing
            if outgoing is None or now_ms < outgoing.next_ms:
                return None
            chunk = outgoing.take(now_ms)
            if outgoing.is_done:
                self._finish(outgoing.plan, now_ms)
            return chunk

    def next_event_ms(self) -> int | None:
        """Return when something happens by time alone, None if never."""
        with self.cluster.lock:
            if self.is_closed:
                return None
            if self._outgoing is not None:
                return self._outgoing.next_ms
            if self._waiting is not None:
                return self._waiting.answer.next_event_ms()
            has_input = self._inbox or self._has_input_ended
            return self._muted_until_ms if has_input and not self._is_silent else None

    def close(self, *, is_reset: bool = False) -> None:
        """Close from the broker's side."""
        with self.cluster.lock:
            self.is_closed = True
            self.is_reset = is_reset
            self._waiting = None
            self._outgoing = None
            self._inbox.clear()
            self.cluster.connections.pop(self.connection_id, None)

    def client_closed(self) -> None:
        """Learn that the client is gone: nothing can be sent to it any more."""
        self.close()

    def input_ended(self, now_ms: int) -> None:
        """Learn that nothing more comes.

        As in Kafka, requests that came before are served first: the end is behind them in the
        stream, and the broker does not read on while it works on a request.
        """
        with self.cluster.lock:
            self._has_input_ended = True
            if self._is_silent:
                self.close()
            else:
                self._advance(now_ms)

    # -- progress --------------------------------------------------------------------------

    def _apply_connect_faults(self, now_ms: int) -> None:
        entry = LoggedRequest(CONNECT, 0, 0, None, None, self.node_id, self.connection_id, now_ms)
        plan = self.cluster.faults.plan(entry)
        self._is_silent = not plan.is_answered
        if plan.raw_answer is not None:
            self._outgoing = _Outgoing(plan.raw_answer, plan, now_ms)
        elif plan.is_closing:
            self.is_closed = True
            self.is_reset = plan.is_reset

    def _advance(self, now_ms: int) -> None:
        """Go on until there is something to send, something to wait for, or nothing to do."""
        self.cluster.groups.advance(now_ms)
        while not self.is_closed and self._outgoing is None and not self._is_silent:
            if self._waiting is not None:
                if not self._complete_waiting(now_ms):
                    return
            elif now_ms < self._muted_until_ms:
                return
            elif not self._start_next(now_ms):
                if self._has_input_ended:
                    self.close()
                return

    def _complete_waiting(self, now_ms: int) -> bool:
        waiting = self._waiting
        if waiting is None:
            return True
        message = waiting.answer.complete(now_ms >= waiting.answer.deadline_ms)
        if message is None:
            return False
        self._waiting = None
        self._send(message, waiting.entry, waiting.plan, now_ms)
        return True

    def _start_next(self, now_ms: int) -> bool:
        """Handle the next request if it is complete; return whether anything happened."""
        if len(self._inbox) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._inbox)
            if not 0 <= size <= MAX_REQUEST_BYTES:
                self.close()
                return True
        if self._is_cut_short(now_ms):
            return True
        if len(self._inbox) < _SIZE.size or len(self._inbox) < _SIZE.size + size:
            return False
        frame = bytes(self._inbox[_SIZE.size : _SIZE.size + size])
        del self._inbox[: _SIZE.size + size]
        self._early_plan = None
        self._handle(frame, now_ms)
        return True

    def _is_cut_short(self, now_ms: int) -> bool:
        """Close the connection if a fault says so before the request is complete."""
        if len(self._inbox) < _HEAD.size:
            return False
        if self._early_plan is None:
            _, api_key, version, correlation_id = _HEAD.unpack_from(self._inbox)
            entry = LoggedRequest(
                api_key,
                version,
                correlation_id,
                None,
                None,
                self.node_id,
                self.connection_id,
                now_ms,
            )
            self._early_plan = self.cluster.faults.plan(entry, is_early=True)
        limit = self._early_plan.request_bytes
        if limit is None or len(self._inbox) < limit:
            return False
        self.close(is_reset=self._early_plan.is_reset)
        return True

    def _handle(self, frame: bytes, now_ms: int) -> None:
        try:
            parsed = _parse_request(self.cluster, self.node_id, self.connection_id, frame, now_ms)
        except KafkaError:
            self.close()
            return
        entry = parsed.entry
        self.cluster.requests.append(entry)
        plan = self.cluster.faults.plan(entry)
        if plan.raw_answer is not None:
            self._outgoing = _Outgoing(plan.raw_answer, plan, now_ms)
            return
        is_in_order = self.sasl is None or self.sasl.may_send(entry.api_key, now_ms)
        if parsed.is_refused or not is_in_order:
            self.close()
            return
        answer = _answer_request(self.cluster, entry, plan, now_ms)
        if isinstance(answer, DelayedAnswer):
            self._waiting = _Waiting(entry, plan, answer)
        else:
            self._send(answer, entry, plan, now_ms)

    def _send(
        self,
        answer: Message | VersionedAnswer,
        entry: LoggedRequest,
        plan: ReplyPlan,
        now_ms: int,
    ) -> None:
        if not plan.is_answered:
            self._is_silent = True
            if self._has_input_ended:
                self.close()
            return
        frame = _encode_answer(answer, entry, plan)
        if frame:
            self._outgoing = _Outgoing(frame, plan, now_ms)
        else:
            self._finish(plan, now_ms)

    def _finish(self, plan: ReplyPlan, now_ms: int) -> None:
        self._outgoing = None
        self._muted_until_ms = now_ms + plan.throttle_time_ms
        if plan.is_closing:
            self.close(is_reset=plan.is_reset)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"<BrokerConnection {self.connection_id} to node {self.node_id} {state}>"
