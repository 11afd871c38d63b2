"""KafkaChannel: one open connection: a transport, its protocol state and its selector events.

Network thread only. Moves bytes between the two, straight into the frame being received, and leaves
every decision about reconnecting to the network client. Errors of the socket become ``KafkaError``
like those of the protocol.

Back-pressure. Before the buffer of a large frame is allocated, the receive gate is checked; while
it is shut, the socket is not read, so TCP slows the broker down, and the deadlines of what is in
flight on this connection are postponed: the delay is this side's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kfast.network.selector import MAX_UNASKED_BYTES
from kfast.network.transport import EVENT_READ, EVENT_WRITE, Transport

if TYPE_CHECKING:
    from kfast._native.frame import FrameReceiver
    from kfast.client.broker_connection import BrokerConnection
    from kfast.client.connection_states import ConnectionKey
    from kfast.client.request import CompletedRequest
    from kfast.network.selector import SelectorLike

ReceiveGate = Callable[[int], bool]
"""Returns whether there is memory for a frame of this size now."""

GATED_FRAME_BYTES: Final = MAX_UNASKED_BYTES + 1
"""Smaller frames are received without the gate: heartbeats, commits and metadata continue."""

MAX_READ_BYTES: Final = 8 << 20
"""Most bytes read from one connection before the others are served."""


class KafkaChannel:
    """An open connection; owns its transport."""

    __slots__ = (
        "_gate",
        "_gated_since_ms",
        "_interest",
        "_is_admitted",
        "_selector",
        "_transport",
        "connection",
        "has_unread",
        "is_connected",
        "key",
        "wants_write",
    )

    def __init__(
        self,
        key: ConnectionKey,
        transport: Transport,
        connection: BrokerConnection,
        selector: SelectorLike,
        receive_gate: ReceiveGate | None,
    ) -> None:
        self.key = key
        self.connection = connection
        self.is_connected = False
        self.has_unread = False
        """Whether `read` has more to read that no selector reports."""
        self.wants_write = False
        """Whether `read` is to be called again when something can be written."""
        self._transport = transport
        self._selector = selector
        self._gate = receive_gate
        self._interest = 0
        self._is_admitted = False
        self._gated_since_ms: int | None = None

    # --- set-up -----------------------------------------------------------------------------------

    def set_up(self, now_ms: int) -> bool:
        """Continue setting up the transport; return whether it is up. Raises `OSError`."""
        events = self._transport.setup()
        if events:
            self._set_interest(events)
            return False
        self.is_connected = True
        self.connection.start(now_ms)
        return True

    @property
    def is_handshaking(self) -> bool:
        """Whether TCP is connected and the transport's own handshake is under way."""
        return self._transport.is_handshaking

    # --- bytes ------------------------------------------------------------------------------------

    @property
    def is_gated(self) -> bool:
        """Whether the socket is not read until there is memory."""
        return self._gated_since_ms is not None

    def read(self, now_ms: int, completed: list[CompletedRequest]) -> int:
        """Read what is there, append what it completed, return how many bytes it was.

        A `KafkaError` means that the connection ended or is unusable; ``completed`` holds what came
        before that.
        """
        connection, transport = self.connection, self._transport
        total = 0
        while total < MAX_READ_BYTES and self._may_receive(now_ms):
            view = connection.next_view()
            room = len(view)
            try:
                count = transport.recv_into(view)
            except OSError as error:
                raise connection.closed_by_peer(_words(error)) from error
            del view
            if count is None:
                break
            if count == 0:
                raise connection.closed_by_peer("the broker closed it")
            total += count
            done = connection.data_received(count, now_ms)
            if done is not None:
                completed.append(done)
            if connection.pending_frame_size is None:
                self._is_admitted = False
            if count < room and room >= GATED_FRAME_BYTES:
                break  # the socket is empty: one system call less
        self.wants_write = transport.wants_write
        self.has_unread = transport.has_pending and self._gated_since_ms is None
        return total

    def direct_receiver(self) -> tuple[int, FrameReceiver] | None:
        """Return descriptor and receiver if frames may be received without ``read``."""
        if not self._transport.is_raw or self._interest != EVENT_READ:
            return None
        receiver = self.connection.direct_receiver()
        return None if receiver is None else (self._transport.fileno(), receiver)

    def take_frame(self, now_ms: int, completed: list[CompletedRequest]) -> None:
        """Take the frame that was received without ``read``, if one is complete."""
        done = self.connection.frame_received(now_ms)
        if done is not None:
            completed.append(done)
            self._is_admitted = False

    def write(self, now_ms: int) -> int:
        """Write what is queued and fits; return how many bytes it was."""
        total = 0
        while (data := self.connection.data_to_send()) is not None:
            try:
                count = self._transport.send(data)
            except OSError as error:
                raise self.connection.closed_by_peer(_words(error)) from error
            if count is None:
                break
            self.connection.data_sent(count, now_ms)
            total += count
        return total

    def _may_receive(self, now_ms: int) -> bool:
        if self._gate is None or self._is_admitted:
            return True
        size = self.connection.pending_frame_size
        if size is None or size < GATED_FRAME_BYTES:
            return True
        if not self._gate(size):
            if self._gated_since_ms is None:
                self._gated_since_ms = now_ms
            return False
        self._is_admitted = True
        if self._gated_since_ms is not None:
            self.connection.postpone(now_ms - self._gated_since_ms)
            self._gated_since_ms = None
        return True

    def retry_gate(self, now_ms: int) -> bool:
        """Check the gate again if it was shut; return whether to `read` without an event."""
        if not self.is_gated or not self._may_receive(now_ms):
            return False
        self.update_interest()
        return self._transport.has_pending

    # --- the end ----------------------------------------------------------------------------------

    def end_output(self) -> None:
        """End the outgoing half of the stream; from now on only `discard` reads."""
        self._transport.end_output()
        self._set_interest(EVENT_READ)

    def discard(self, scratch: memoryview) -> bool:
        """Discard some of what arrived; return whether the stream goes on."""
        try:
            return self._transport.recv_into(scratch) != 0
        except OSError:
            return False

    # --- interest ---------------------------------------------------------------------------------

    def update_interest(self) -> None:
        """Wait for what the connection can use: responses unless gated, room if data is queued."""
        events = 0 if self.is_gated else EVENT_READ
        if events and self.wants_write:
            events |= EVENT_WRITE
        if self.connection.data_to_send() is not None:
            events |= EVENT_WRITE
        self._set_interest(events)

    def _set_interest(self, events: int) -> None:
        self._selector.set_interest(self._transport, events, self._interest, self)
        self._interest = events

    def close(self) -> None:
        """Close the transport at once."""
        self._set_interest(0)
        self._transport.close()

    def __repr__(self) -> str:
        return f"<KafkaChannel {self.connection!r} gated={self.is_gated}>"


def _words(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
