"""ChannelPool: the open channels of one client, from the look-up of the host to the close.

Network thread only. Owns every ``KafkaChannel`` and updates the connection states with them; knows
nothing of metadata, of unsent requests, or of which node is best. Outcomes of requests are
collected in ``completed``; every failed attempt and lost connection is reported to ``on_failure``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger
from kfast.client import diagnosis
from kfast.client.broker_connection import BrokerConnection, ConnectionSettings
from kfast.client.cluster import Node
from kfast.client.connection_states import (
    TRANSPORT_STEPS,
    ClusterConnectionStates,
    ConnectionKey,
    ConnectionState,
    NodeConnectionState,
)
from kfast.client.diagnosis import FailureKind
from kfast.client.request import CompletedRequest
from kfast.client.request_manager import NEVER_MS
from kfast.errors import AuthenticationError, DisconnectError, KafkaError
from kfast.network.kafka_channel import KafkaChannel
from kfast.network.network_io import NetworkIO
from kfast.network.transport import (
    EVENT_READ,
    EVENT_WRITE,
)

if TYPE_CHECKING:
    from kfast._native.frame import FrameReceiver
    from kfast.config import ConsumerConfig

logger = get_logger(__name__)

LOOK_UP_CHECK_MS: Final = 50
"""How often a pending look-up is checked without a wakeup."""
ReadyListener = Callable[[ConnectionKey, Node], None]
"""Called with a connection that became ready."""

FailureListener = Callable[[ConnectionKey, KafkaError, bool, int], None]
"""Called with connection, error, whether it had been ready, and its requests in flight."""


class ChannelPool:
    """All open channels."""

    def __init__(
        self,
        config: ConsumerConfig,
        states: ClusterConnectionStates,
        io: NetworkIO,
        *,
        on_ready: ReadyListener,
        on_failure: FailureListener,
    ) -> None:
        self.completed: list[CompletedRequest] = []
        """Outcomes since ``take_completed``."""
        self.has_changed = False
        """Whether a connection came up or went down since this was last reset."""
        self.joined: list[KafkaChannel] = []
        """Channels with requests for `flush_joined`."""
        self.unread: list[KafkaChannel] = []
        """Channels to read in the next `process`, whatever the selector reports."""
        self._idle_ms = config.connections_max_idle_ms
        self._request_timeout_ms = config.request_timeout_ms
        self._settings = ConnectionSettings(
            config.client_id,
            io.client_version,
            config.receive_message_max_bytes,
            config.api_version,
            config.security_protocol,
            logins=io.logins,
        )
        self._states = states
        self._io = io
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._channels: dict[ConnectionKey, KafkaChannel] = {}
        self._receiving: list[tuple[FrameReceiver, KafkaChannel]] = []

    # --- state ------------------------------------------------------------------------------------

    def get(self, key: ConnectionKey) -> KafkaChannel | None:
        """Return an open channel."""
        return self._channels.get(key)

    def is_ready(self, key: ConnectionKey) -> bool:
        """Return whether requests can be written on a channel."""
        channel = self._channels.get(key)
        return (
            channel is not None
            and channel.connection.is_ready
            and not channel.connection.is_authenticating
        )

    def open_keys(self) -> list[ConnectionKey]:
        """Return which channels are open."""
        return list(self._channels)

    def in_flight(self, key: ConnectionKey) -> int:
        """Return how many requests are in flight on a channel; 0 if it is not open."""
        channel = self._channels.get(key)
        return 0 if channel is None else len(channel.connection.in_flight)

    def has_data_to_send(self) -> bool:
        """Return whether a connected channel has bytes to write."""
        return any(
            channel.is_connected and channel.connection.data_to_send() is not None
            for channel in self._channels.values()
        )

    def next_deadline_ms(self, now_ms: int) -> int:
        """Return the earliest deadline of the pool."""
        deadlines = [now_ms + NEVER_MS]
        for key, node_state in self._states.setting_up():
            deadlines.append(node_state.deadline_ms)
            if key not in self._channels:
                deadlines.append(now_ms + LOOK_UP_CHECK_MS)
        idle_ms = self._idle_ms
        for channel in self._channels.values():
            connection = channel.connection
            if not connection.in_flight:
                if idle_ms >= 0 and connection.is_ready:
                    deadlines.append(connection.last_activity_ms + idle_ms)
            elif not channel.is_gated:
                deadlines.append(connection.in_flight.next_deadline_ms())
            if connection.reauthenticate_ms is not None and connection.is_ready:
                deadlines.append(connection.reauthenticate_ms)
            if connection.login_deadline_ms is not None and not channel.is_gated:
                deadlines.append(connection.login_deadline_ms)
        return min(deadlines)

    # --- connecting -------------------------------------------------------------------------------

    def connect(self, key: ConnectionKey, node: Node, now_ms: int) -> None:
        """Start an attempt; only when the states allow it."""
        node_state = self._states.connecting(key, node, now_ms)
        logger.debug("connecting to %s for %s", diagnosis.describe(node), key.channel.name)
        self._open(key, node_state, now_ms)

    def continue_look_ups(self, now_ms: int) -> None:
        """Continue the attempts whose look-up was pending."""
        for key, node_state in self._states.setting_up():
            if key not in self._channels:
                self._open(key, node_state, now_ms)

    def _open(self, key: ConnectionKey, node_state: NodeConnectionState, now_ms: int) -> None:
        """Start on the current address, or on the next one if that fails at once."""
        node, addresses = node_state.node, node_state.addresses
        if addresses.needs_resolving:
            try:
                resolved = self._io.resolver.resolve(node.host, node.port)
                if resolved is not None and not resolved:
                    raise OSError("the name has no address")
            except OSError as error:
                self._failed(key, diagnosis.unresolvable(node, error), now_ms)
                return
            if resolved is None:
                return
            addresses.resolved(resolved)
        while True:
            try:
                transport = self._io.transport_factory(node, addresses.current)
            except OSError as error:
                if addresses.failed():
                    continue
                self._failed(key, diagnosis.connect_failed(node, error, addresses.ips), now_ms)
                return
            break
        connection = BrokerConnection(
            node, key.channel, self._settings, node_state.handshake_max_version
        )
        channel = KafkaChannel(key, transport, connection, self._io.selector, self._io.receive_gate)
        self._channels[key] = channel
        self._set_up(channel, node_state, now_ms)

    def _set_up(self, channel: KafkaChannel, node_state: NodeConnectionState, now_ms: int) -> None:
        """Continue setting up a transport; take the next address if this one fails."""
        key = channel.key
        try:
            is_complete = channel.set_up(now_ms)
            node_state.is_handshaking = channel.is_handshaking
            if not is_complete:
                self._states.progressed(key, int(node_state.is_handshaking), now_ms)
                return
            if channel.connection.is_authenticating:
                self._states.authenticating(key)
            else:
                self._states.checking_api_versions(key)
            self._states.progressed(key, TRANSPORT_STEPS + channel.connection.steps, now_ms)
            channel.write(now_ms)
            channel.update_interest()
        except OSError as error:
            if node_state.addresses.failed():
                self._drop(key)
                self._open(key, node_state, now_ms)
            else:
                ips = node_state.addresses.ips
                self._failed(key, diagnosis.connect_failed(node_state.node, error, ips), now_ms)
        except KafkaError as error:
            self._failed(key, error, now_ms)

    def _note_set_up(
        self, channel: KafkaChannel, node_state: NodeConnectionState, now_ms: int
    ) -> None:
        """Note how far the set-up of a connection has come."""
        connection = channel.connection
        if not node_state.is_down:
            self._states.progressed(channel.key, TRANSPORT_STEPS + connection.steps, now_ms)
        if node_state.state is ConnectionState.AUTHENTICATING and not connection.is_authenticating:
            self._states.checking_api_versions(channel.key)
        if node_state.state is ConnectionState.CHECKING_API_VERSIONS and connection.is_ready:
            self._handshake_done(channel)

    def continue_logins(self, now_ms: int) -> None:
        """Continue what waited for the login worker, and begin to authenticate again."""
        for channel in list(self._channels.values()):
            connection, node_state = channel.connection, self._states.get(channel.key)
            due_ms = connection.reauthenticate_ms
            try:
                if connection.is_waiting_for_worker:
                    connection.continue_login(now_ms)
                elif due_ms is not None and due_ms <= now_ms and connection.is_ready:
                    logger.debug("authenticating again: %r", channel)
                    connection.reauthenticate(now_ms, self._request_timeout_ms)
            except KafkaError as error:
                self._failed(channel.key, error, now_ms)
                continue
            if node_state is not None and node_state.state is ConnectionState.READY:
                self._states.authenticating_again(
                    channel.key, is_begun=connection.is_authenticating
                )
            elif node_state is not None:
                self._note_set_up(channel, node_state, now_ms)
            self.flush(channel, now_ms)

    def _handshake_done(self, channel: KafkaChannel) -> None:
        key = channel.key
        failed = self._states.ready(key)
        node_state = self._states.get(key)
        if node_state is not None:
            node_state.handshake_max_version = (
                channel.connection.handshake.max_version_after_success()
            )
        name = diagnosis.describe(channel.connection.node)
        logger.log(
            logging.INFO if failed else logging.DEBUG,
            "connected to %s for %s%s",
            name,
            key.channel.name,
            f" after {failed} failed attempts" if failed else "",
        )
        self._on_ready(key, channel.connection.node)
        self.has_changed = True

    # --- I/O --------------------------------------------------------------------------------------

    def process(self, events: Iterable[tuple[object, int]], now_ms: int) -> int:
        """Read and write what is ready; return how many bytes moved."""
        moved = 0
        if self.unread:
            events = [*events, *((channel, EVENT_READ) for channel in self.unread)]
            self.unread.clear()
        for channel, mask in events:
            if not isinstance(channel, KafkaChannel) or not self._is_open(channel):
                continue  # closed while an earlier event was served
            node_state = self._states.get(channel.key)
            if not channel.is_connected:
                if node_state is not None:
                    self._set_up(channel, node_state, now_ms)
                self.has_changed = True
                continue
            try:
                if mask & EVENT_READ or channel.wants_write:
                    moved += channel.read(now_ms, self.completed)
                if mask & EVENT_WRITE:
                    moved += channel.write(now_ms)
            except KafkaError as error:
                self._note_responses(channel, node_state, now_ms)
                self._failed(channel.key, error, now_ms)
                continue
            self._note_responses(channel, node_state, now_ms)
            moved += self._write(channel, now_ms) if channel.connection.data_to_send() else 0
            if self._is_open(channel):
                channel.update_interest()
                if channel.has_unread:
                    self.unread.append(channel)
        return moved

    def direct_receivers(self) -> dict[int, FrameReceiver]:
        """Return the receivers that may be read without `process`, by descriptor."""
        self._receiving.clear()
        receivers = {}
        for channel in self._channels.values():
            direct = channel.direct_receiver()
            if direct is not None:
                descriptor, receiver = direct
                receivers[descriptor] = receiver
                self._receiving.append((receiver, channel))
        return receivers

    def take_frames(self, now_ms: int) -> None:
        """Take what the last `direct_receivers` received without `process`."""
        for receiver, channel in self._receiving:
            if not receiver.has_outcome:
                continue
            try:
                channel.take_frame(now_ms, self.completed)
            except KafkaError as error:
                self._failed(channel.key, error, now_ms)
                continue
            if channel.connection.throttle_ms:
                self._throttle(channel, now_ms)
        if self._settings.logins is not None:
            self.has_changed = True  # what was received may have been an answer of a log-in

    def _note_responses(
        self, channel: KafkaChannel, node_state: NodeConnectionState | None, now_ms: int
    ) -> None:
        if node_state is not None and node_state.state is not ConnectionState.READY:
            self._note_set_up(channel, node_state, now_ms)
        elif node_state is not None and node_state.is_authenticating_again:
            self.has_changed = True  # its next deadline may be earlier
        if channel.connection.throttle_ms:
            self._throttle(channel, now_ms)

    def _throttle(self, channel: KafkaChannel, now_ms: int) -> None:
        until_ms = now_ms + channel.connection.take_throttle_ms()
        self._states.throttle(channel.key, until_ms, now_ms)

    def _write(self, channel: KafkaChannel, now_ms: int) -> int:
        try:
            return channel.write(now_ms)
        except KafkaError as error:
            self._failed(channel.key, error, now_ms)
            return 0

    def _is_open(self, channel: KafkaChannel) -> bool:
        return self._channels.get(channel.key) is channel

    def flush(self, channel: KafkaChannel, now_ms: int) -> None:
        """Write what was just queued, as far as it fits now; over TLS in `flush_joined`."""
        if channel.connection.joins_requests:
            self.joined.append(channel)
        else:
            self._flush(channel, now_ms)

    def flush_joined(self, now_ms: int) -> None:
        """Write what was queued on connections that join the requests of a turn."""
        joined, self.joined = self.joined, []
        for channel in joined:
            if self._is_open(channel):
                self._flush(channel, now_ms)

    def _flush(self, channel: KafkaChannel, now_ms: int) -> None:
        if channel.is_connected and channel.connection.data_to_send() is not None:
            self._write(channel, now_ms)
            if self._is_open(channel):
                channel.update_interest()

    def retry_gates(self, now_ms: int) -> None:
        """Check the receive gate again for channels it has stopped."""
        for channel in list(self._channels.values()):
            if channel.retry_gate(now_ms):
                self.unread.append(channel)

    # --- closing ----------------------------------------------------------------------------------

    def end_overdue(self, now_ms: int) -> None:
        """Close connections whose set-up or requests timed out."""
        for key, node_state in self._states.setting_up():
            if node_state.deadline_ms <= now_ms:
                elapsed_ms = now_ms - node_state.attempt_ms
                channel = self._channels.get(key)
                if channel is not None and channel.is_connected:
                    error = channel.connection.setup_timed_out(elapsed_ms)
                elif node_state.addresses.needs_resolving:
                    error = diagnosis.look_up_timed_out(node_state.node, elapsed_ms)
                else:
                    error = diagnosis.setup_timed_out(
                        node_state.node, elapsed_ms, is_handshaking=node_state.is_handshaking
                    )
                self._failed(key, error, now_ms, timed_out=True)
        for key, channel in list(self._channels.items()):
            connection = channel.connection
            if channel.is_gated:
                continue
            if connection.in_flight.next_deadline_ms() <= now_ms:
                self._failed(key, connection.request_timed_out(now_ms), now_ms)
            elif (
                connection.login_deadline_ms is not None and connection.login_deadline_ms <= now_ms
            ):
                reason = "it did not authenticate this client again in time"
                self._failed(key, diagnosis.connection_lost(connection.node, reason), now_ms)

    def close_idle(self, is_needed: Callable[[ConnectionKey], bool], now_ms: int) -> None:
        """Close connections unused for ``connections_max_idle_ms``, the longest unused first."""
        idle_ms = self._idle_ms
        for last_activity_ms, key in self._unused():
            if 0 <= idle_ms <= now_ms - last_activity_ms and not is_needed(key):
                self.close_channel(key, "it was idle")

    def adopt_bootstrap(self, brokers: Mapping[int, Node], now_ms: int) -> None:
        """Let a connection to a bootstrap server be that of the broker at the same address."""
        brokers_by_address = {node.address: node for node in brokers.values()}
        for key, channel in list(self._channels.items()):
            node = brokers_by_address.get(channel.connection.node.address)
            if key.node_id >= 0 or node is None or not self.is_ready(key):
                continue
            taken = ConnectionKey(node.node_id, key.channel)
            if taken in self._channels or not self._states.can_connect(taken, now_ms):
                continue
            logger.debug("%r is the connection to broker %d", channel, taken.node_id)
            self._channels[taken] = self._channels.pop(key)
            channel.key, channel.connection.node = taken, node
            self._states.renamed(key, taken, node)
            self._on_ready(taken, node)
            self.has_changed = True

    def close_bootstrap(self) -> None:
        """Close connections to bootstrap servers that carry nothing."""
        for _, key in self._unused():
            if key.node_id < 0:
                self.close_channel(key, "the brokers are known now")

    def _unused(self) -> list[tuple[int, ConnectionKey]]:
        return sorted(
            (channel.connection.last_activity_ms, key)
            for key, channel in self._channels.items()
            if channel.connection.is_ready
            and not channel.connection.in_flight
            and not channel.connection.is_authenticating
        )

    def _failed(
        self, key: ConnectionKey, error: KafkaError, now_ms: int, *, timed_out: bool = False
    ) -> None:
        """End an attempt or a connection: fail what it carried and start the backoff."""
        node_state = self._states.get(key)
        if node_state is None:
            return
        was_ready = node_state.state is ConnectionState.READY
        channel = self._channels.get(key)
        in_flight = 0
        if channel is not None:
            handshake = channel.connection.handshake
            is_in_handshake = not was_ready and not channel.connection.is_authenticating
            if is_in_handshake and diagnosis.failure_kind(error) is FailureKind.CLOSED_EARLY:
                node_state.handshake_max_version = handshake.max_version_after_close()
            abandoned = channel.connection.abandon(error)
            in_flight = len(abandoned)
            self.completed.extend(abandoned)
            self._drop(key)
        self._states.disconnected(key, error, now_ms, timed_out=timed_out)
        self._log_failure(node_state, error, now_ms, was_ready=was_ready, in_flight=in_flight)
        self._on_failure(key, error, was_ready, in_flight)
        self.has_changed = True

    @staticmethod
    def _log_failure(
        node_state: NodeConnectionState,
        error: KafkaError,
        now_ms: int,
        *,
        was_ready: bool,
        in_flight: int,
    ) -> None:
        text = f"{error.message} ({error.cause})" if error.cause else error.message
        if was_ready:
            level = logging.INFO if in_flight else logging.DEBUG
            logger.log(level, "%s; %d requests were in flight", text, in_flight)
            return
        is_refusal = isinstance(error, AuthenticationError)
        # A node that cannot be reached is one warning, a node that refuses is one for each reason.
        is_reported = node_state.reported == text if is_refusal else node_state.reported is not None
        node_state.reported = text if is_refusal else node_state.reported or text
        if is_reported:
            logger.debug("attempt %d: %s", node_state.failed_attempts, text)
        elif is_refusal and node_state.retry_ms is not None:
            wait_s = max(0, node_state.retry_ms - now_ms) // 1000
            logger.warning("%s; no other attempt within %d s", text, wait_s)
        else:
            logger.warning("%s; trying again", text)

    def close_channel(self, key: ConnectionKey, reason: str) -> None:
        """Close a connection that has not failed."""
        channel = self._channels.get(key)
        if channel is None:
            return
        logger.debug("closing %r: %s", channel, reason)
        node = channel.connection.node
        error = DisconnectError(
            f"the connection to {diagnosis.describe(node)} was closed", cause=reason
        )
        self.completed.extend(channel.connection.abandon(error))
        self._drop(key)
        self._states.closed(key)

    def end_output(self, error: KafkaError) -> None:
        """End the outgoing half of all streams; what is in flight fails with ``error``.

        Channels without requests in flight close at once, the others when `discard` finds the end.
        """
        for key, channel in list(self._channels.items()):
            abandoned = channel.connection.abandon(error)
            self.completed.extend(abandoned)
            if abandoned:
                channel.end_output()
            else:
                self._drop(key)

    def discard(self, events: Iterable[tuple[object, int]], scratch: memoryview) -> None:
        """Discard what arrived after `end_output`; close the channels whose stream ended."""
        for channel, _ in events:
            if isinstance(channel, KafkaChannel) and not channel.discard(scratch):
                self._drop(channel.key)

    def close_all(self, error: KafkaError) -> None:
        """Close every channel; what is in flight fails with ``error``."""
        for key, channel in list(self._channels.items()):
            self.completed.extend(channel.connection.abandon(error))
            self._drop(key)

    def take_completed(self) -> list[CompletedRequest]:
        """Return the outcomes so far, and start a new list."""
        taken, self.completed = self.completed, []
        return taken

    def _drop(self, key: ConnectionKey) -> None:
        self._channels.pop(key).close()

    def __repr__(self) -> str:
        return f"<ChannelPool {list(self._channels.values())!r}>"
