"""NetworkClient: all connections of one consumer behind one ``poll``.

Owns the unsent requests and decides when to connect, and when to rebootstrap; the channels are the
pool's. Everything belongs to the network thread, except ``wakeup`` and ``bootstrap_error``, which
any thread may call. It blocks only in the selector (and in a resolver that does), never decodes
records, and calls response handlers only after the I/O of a ``poll`` is done.

One ``poll``::

    due work      rebootstrap, moved brokers, closed gates, pending look-ups, unsent requests
    wait          until something happens, the caller's timeout, or the earliest own deadline;
                  plain sockets receive frames meanwhile, without the GIL
    I/O           read and write what else is possible; completed requests are collected
    delivery      handlers get their responses and failures: first, as the application waits
    time          set-ups, requests and idle connections that timed out
    due work      requests for connections that just became ready are written at once
    delivery      of what the last two steps completed

While nothing but parts of frames arrives, ``poll`` goes on selecting instead of returning for each
socket buffer full of a large response.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kfast._base.clock import Clock, ExponentialBackoff
from kfast._base.logs import get_logger
from kfast.client import diagnosis
from kfast.client.bootstrap_diagnosis import BootstrapDiagnosis
from kfast.client.cluster import Node
from kfast.client.connection_states import (
    ClusterConnectionStates,
    ConnectionKey,
)
from kfast.client.node_selection import least_loaded_node, ms_until_choice_changes
from kfast.client.refusals import again
from kfast.client.request import Channel, CompletedRequest, UnsentRequest
from kfast.client.unsent_requests import UnsentRequests
from kfast.errors import (
    AuthenticationError,
    DisconnectError,
    IllegalStateError,
    InvalidMetadataError,
    KafkaError,
    KafkaTimeoutError,
)
from kfast.network.bootstrap_servers import BootstrapServers
from kfast.network.channel_pool import ChannelPool
from kfast.network.credentials import CredentialWatch
from kfast.network.network_io import NetworkIO
from kfast.protocol.api_keys import API_VERSIONS, ApiKey

if TYPE_CHECKING:
    from kfast.client.metadata import Metadata
    from kfast.client.request_metrics import RequestMetrics
    from kfast.config import ConsumerConfig

logger = get_logger(__name__)

CHANNELS: Final = tuple(Channel)

QUIET_MS: Final = 50
"""A connection being closed is closed for good after so long without data."""

DISCARDED_BYTES: Final = 1 << 18
"""Most bytes discarded in one read."""

THROTTLE_QUIET_MS: Final = 60_000
"""A broker has ceased to throttle after so long without a throttled response."""


class NetworkClient:
    """Sends requests to the brokers of a cluster; counts responses in ``metrics``, if given."""

    def __init__(
        self,
        config: ConsumerConfig,
        metadata: Metadata,
        clock: Clock,
        io: NetworkIO | None = None,
        metrics: RequestMetrics | None = None,
    ) -> None:
        io = io or NetworkIO.of(config)
        self._metadata = metadata
        self._clock = clock
        self._metrics = metrics
        self._throttle_log = ThrottleLog(config.client_id)
        self._selector = io.selector
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._reconnect_backoff = ExponentialBackoff(
            config.reconnect_backoff_ms, config.reconnect_backoff_max_ms
        )
        setup_timeout = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms,
            config.socket_connection_setup_timeout_max_ms,
        )
        self._states = ClusterConnectionStates(self._reconnect_backoff, setup_timeout, clock)
        self._pool = ChannelPool(
            config,
            self._states,
            io,
            on_failure=self._connection_failed,
            on_ready=self._connection_ready,
        )
        expands_names = config.client_dns_lookup != "use_all_dns_ips"
        self._bootstrap = BootstrapServers(
            config.bootstrap_servers, io.resolver if expands_names else None
        )
        self._diagnosis = BootstrapDiagnosis(self._states, metadata)
        self._unsent = UnsentRequests(config.request_timeout_ms)
        self._credentials = CredentialWatch(io.logins, io.credentials_version)
        self._has_logins = io.logins is not None
        self._seen_brokers: object = None
        self._may_rebootstrap = config.metadata_recovery_strategy == "rebootstrap"
        self._rebootstraps = 0
        self._next_rebootstrap_ms: int | None = None
        self._is_closed = False
        self.refusal: AuthenticationError | None = None
        """Why no broker can be used, if that is a refusal, which is final. May be read by any
        thread."""

    # --- state ------------------------------------------------------------------------------------

    def ready(self, node_id: int, now_ms: int, channel: Channel = Channel.DATA) -> bool:
        """Return whether a request sent now would be written now; else start to connect."""
        key = ConnectionKey(node_id, channel)
        if self._is_usable(key, now_ms):
            return True
        if self._states.can_connect(key, now_ms):
            node = self._node(node_id)
            if node is not None:
                self._connect(key, node, now_ms)
        return False

    def _is_usable(self, key: ConnectionKey, now_ms: int) -> bool:
        used = self._pool.in_flight(key) + self._unsent.count(key)
        return self._states.is_ready(key, now_ms) and used < self._max_in_flight

    def connection_delay(self, node_id: int, now_ms: int, channel: Channel = Channel.DATA) -> int:
        """Return the ms until a connect or a send to this node may be tried again."""
        return self._states.delay(ConnectionKey(node_id, channel), now_ms)

    def api_version(
        self,
        node_id: int,
        api_key: int,
        max_version: int | None = None,
        channel: Channel = Channel.DATA,
    ) -> int:
        """Return the version a request of this API would be sent in; see `NodeConnections`."""
        ready_channel = self._pool.get(ConnectionKey(node_id, channel))
        if ready_channel is None:
            raise IllegalStateError(f"no connection to node {node_id} is ready", node=node_id)
        low, high = API_VERSIONS[ApiKey(api_key)]
        if max_version is not None:
            high = min(high, max_version)
        return ready_channel.connection.usable_version(api_key, ApiKey(api_key).name, low, high)

    def finalized_feature(
        self, node_id: int, name: str, channel: Channel = Channel.DATA
    ) -> int | None:
        """Return the level of a feature in force at a node, 0 if it is not; None if unknown."""
        ready_channel = self._pool.get(ConnectionKey(node_id, channel))
        offered = None if ready_channel is None else ready_channel.connection.handshake.result
        return None if offered is None else offered.finalized_features.get(name, 0)

    def connection_failed(self, node_id: int, channel: Channel | None = None) -> KafkaError | None:
        """Return why the last connection to this node could not be made or was lost.

        Of one channel it is that connection's own error: another object after every failure.
        """
        refusal = self._states.refusal(node_id, self._clock.now_ms())
        if refusal is not None:
            return refusal
        for node_channel in CHANNELS if channel is None else (channel,):
            node_state = self._states.get(ConnectionKey(node_id, node_channel))
            if node_state is None or not node_state.is_down:
                continue
            if node_state.last_error is not None and channel is not None:
                return node_state.last_error
            if node_state.last_error is not None:
                dead = self._diagnosis.advertised_error(node_state, self._bootstrap.nodes.values())
                return dead or node_state.last_error
        return None

    def least_loaded_node(self, now_ms: int) -> int | None:
        """Return the node for a request any broker can answer, None if all are in backoff.

        Before the first metadata, and after a rebootstrap, this is a bootstrap server (negative).
        """
        return least_loaded_node(
            self._known_nodes(),
            self._states,
            self._pool.in_flight,
            self._max_in_flight,
            now_ms,
            self._clock.random(),
        )

    def bootstrap_error(self) -> KafkaError | None:
        """Return the best explanation of why no broker can be used. Thread-safe.

        None while a connection to a broker works, or before an attempt has failed or taken long.
        While servers are still being tried it gives the failures so far.
        """
        return self._diagnosis.error(self._bootstrap.nodes.values(), self._clock.now_ms())

    @property
    def all_servers_failed(self) -> bool:
        """Whether all servers were tried and failed for good, as `bootstrap_error` says.

        Thread-safe. A time-out is no such failure.
        """
        return self._diagnosis.all_servers_failed(self._bootstrap.nodes.values())

    @property
    def has_reached_broker(self) -> bool:
        """Whether a connection to a broker that metadata named ever worked. Thread-safe."""
        return self._diagnosis.has_reached_broker

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._pool.open_keys())

    # --- actions ----------------------------------------------------------------------------------

    def send(self, request: UnsentRequest, now_ms: int) -> None:
        """Queue a request; its handler gets the outcome in a later ``poll``."""
        request.created_ms = now_ms
        self._unsent.put(request)

    def wakeup(self) -> None:
        """End a running or the next ``poll`` early. Thread-safe."""
        self._selector.wakeup()

    def rebootstrap(self, reason: str) -> None:
        """Close all connections and return to ``bootstrap_servers`` (KIP-899)."""
        logger.info("rebootstrap from bootstrap_servers: %s", reason)
        for key in self._pool.open_keys():
            self._pool.close_channel(key, f"rebootstrap: {reason}")
        for key, _ in self._states.setting_up():
            self._states.closed(key)  # its name was still being looked up
        self._states.forget_addresses()
        self._bootstrap.forget()
        self._metadata.rebootstrap()

    # --- the loop ---------------------------------------------------------------------------------

    def poll(self, timeout_ms: int, now_ms: int) -> None:
        """Do I/O until something happened, for at most ``timeout_ms``, then call handlers.

        A `KafkaError` means that a handler raised; all others were called nevertheless.
        """
        self._do_due_work(now_ms)
        pool = self._pool
        wait_ms = 0 if pool.completed else min(timeout_ms, self._ms_to_next_deadline(now_ms))
        until_ms = now_ms + max(0, wait_ms)
        pool.has_changed = False
        while True:
            moved, is_woken, now_ms = self._wait(until_ms - now_ms)
            if is_woken or not moved or pool.completed or pool.has_changed or now_ms >= until_ms:
                break
        if pool.completed:
            self._deliver(now_ms)
        pool.end_overdue(now_ms)
        pool.close_idle(lambda key: self._unsent.count(key) > 0, now_ms)
        for request in self._unsent.expire(now_ms):
            self._fail([request], self._expired(request))
        self._do_due_work(now_ms)
        if pool.completed:
            self._deliver(now_ms)

    def _wait(self, wait_ms: int) -> tuple[int, bool, int]:
        """Wait for I/O and do it once: bytes moved, whether woken, and the time after it."""
        pool = self._pool
        receivers = pool.direct_receivers()
        moved = 0
        if pool.unread:
            wait_ms = 0
        if receivers:
            moved, is_select_due = self._selector.receive(receivers, max(0, wait_ms))
            now_ms = self._clock.now_ms()
            if moved:
                pool.take_frames(now_ms)
            if not is_select_due:
                return moved, False, now_ms
            wait_ms = 0 if moved else wait_ms
        events, is_woken = self._selector.select(max(0, wait_ms))
        moved += pool.process(events, self._clock.now_ms())
        return moved, is_woken, self._clock.now_ms()

    def _do_due_work(self, now_ms: int) -> None:
        reason = self._metadata.take_rebootstrap_request()
        if reason is None and self._is_unreachable(now_ms):
            reason = "no known broker can be reached"
        if reason is not None and now_ms >= (self._next_rebootstrap_ms or now_ms):
            pause = self._reconnect_backoff.backoff_ms(self._rebootstraps, self._clock)
            self._next_rebootstrap_ms = now_ms + pause
            self._rebootstraps += 1
            self.rebootstrap(reason)
        if self._metadata.cluster.brokers is not self._seen_brokers:
            self._seen_brokers = self._metadata.cluster.brokers
            self._brokers_changed()
            self._pool.adopt_bootstrap(self._seen_brokers, now_ms)
        if self._metadata.cluster.brokers:
            self._pool.close_bootstrap()
        self._pool.retry_gates(now_ms)
        self._pool.continue_look_ups(now_ms)
        if self._has_logins:
            self._pool.continue_logins(now_ms)
        self._send_waiting(now_ms)
        if self._pool.joined:
            self._pool.flush_joined(now_ms)
        if self._states.has_refusals:
            self._states.end_refusals(now_ms)
            if self._credentials.have_changed(now_ms):
                self._credentials_changed()
            else:
                self._fail_refused(now_ms)

    def _is_unreachable(self, now_ms: int) -> bool:
        """Return whether no known broker can be reached and something waits for any of them."""
        brokers = self._metadata.cluster.brokers
        return (
            self._may_rebootstrap
            and self._unsent.any_node_count > 0
            and bool(brokers)
            and all(
                self._states.is_unreachable(ConnectionKey(node_id, Channel.DATA), now_ms)
                for node_id in brokers
            )
        )

    def _brokers_changed(self) -> None:
        brokers = self._metadata.cluster.brokers
        for key, node_state in self._states.items():
            node = brokers.get(key.node_id)
            if key.node_id < 0 or not brokers:
                continue
            if node is None and node_state.is_down:
                self._states.remove(key)
            elif node is not None and node[:3] != node_state.node[:3]:
                logger.info("%s moved to %s", diagnosis.describe(node_state.node), node.address)
                self._pool.close_channel(key, f"the broker moved to {node.address}")
                self._states.remove(key)

    def _ms_to_next_deadline(self, now_ms: int) -> int:
        """Return the ms until the earliest deadline."""
        deadline_ms = self._pool.next_deadline_ms(now_ms)
        deadline_ms = min(deadline_ms, self._unsent.next_deadline_ms())
        for key in self._unsent.waiting():
            delay = self._states.delay(key, now_ms)
            if delay > 0:
                deadline_ms = min(deadline_ms, now_ms + delay)
        if self._states.has_refusals:
            deadline_ms = min(deadline_ms, max(now_ms + 1, self._credentials.next_check_ms))
        if self._unsent.any_node_count:
            wait = ms_until_choice_changes(self._known_nodes(), self._states, now_ms)
            deadline_ms = min(deadline_ms, now_ms + wait)
        return deadline_ms - now_ms

    def _deliver(self, now_ms: int) -> None:
        first_error: Exception | None = None
        metrics = self._metrics
        for done in self._pool.take_completed():
            request, response = done.request, done.response
            try:
                if response is not None:
                    request.handler.handle_response(request, response, now_ms)
                    throttle_ms = response.throttle_ms
                    if throttle_ms > 0:
                        name = request.message.NAME
                        self._throttle_log.note(response.node_id, name, throttle_ms, now_ms)
                    if metrics is not None:
                        key, nbytes = request.message.API_KEY, response.frame.size
                        metrics.answered(key, response.latency_ms, nbytes, throttle_ms, now_ms)
                elif done.error is not None:
                    request.handler.handle_failure(request, done.error, now_ms)
            except Exception as error:
                logger.exception("the handler of %r failed", request)
                first_error = first_error or error
        if first_error is not None:
            raise KafkaError(
                f"internal error: {type(first_error).__name__}: {first_error}",
                hint="close this consumer and make a new one; this is a bug worth reporting",
            ) from first_error

    # --- unsent requests --------------------------------------------------------------------------

    def _send_waiting(self, now_ms: int) -> None:
        for key in self._unsent.waiting():
            self._send_waiting_for(key, now_ms)
        while self._unsent.any_node_count:
            node_id = self.least_loaded_node(now_ms)
            if node_id is None:
                break
            key = ConnectionKey(node_id, Channel.DATA)
            if not self._can_send(key, now_ms):
                if not self._states.can_connect(key, now_ms):
                    break
                self._connect(key, self._known_nodes()[node_id], now_ms)
                continue  # wait for it, or choose again if it failed at once
            self._start_request(self._unsent.pop_any_node(), key, now_ms)

    def _send_waiting_for(self, key: ConnectionKey, now_ms: int) -> None:
        node = self._node(key.node_id)
        if node is None and self._pool.get(key) is None:
            error = InvalidMetadataError(
                f"broker {key.node_id} is not among the cluster's brokers", node=key.node_id
            )
            self._fail(self._unsent.take(key), error)
            self._metadata.request_update()
            return
        while self._can_send(key, now_ms) and (request := self._unsent.pop(key)) is not None:
            self._start_request(request, key, now_ms)
        if node is not None and self._unsent.count(key) and self._states.can_connect(key, now_ms):
            self._connect(key, node, now_ms)

    def _credentials_changed(self) -> None:
        logger.info("the credentials have changed: nodes that refused the old ones are tried again")
        self._states.credentials_changed()
        self._credentials.forget()
        self.refusal = None

    def _fail_refused(self, now_ms: int) -> None:
        """Fail what waits for nodes that have refused the credentials: they would again."""
        for key in self._unsent.waiting():
            refusal = self._states.refusal(key.node_id, now_ms)
            if refusal is not None and not self._pool.is_ready(key):
                self._fail(self._unsent.take(key), again(refusal))
        nodes = self._known_nodes()
        refusals = [self._states.refusal(node_id, now_ms) for node_id in nodes]
        if self._unsent.any_node_count and refusals and refusals[0] and all(refusals):
            self.refusal = refusals[0]
            self._fail(self._unsent.take_any_node(), again(refusals[0]))

    def _can_send(self, key: ConnectionKey, now_ms: int) -> bool:
        has_room = self._pool.in_flight(key) < self._max_in_flight
        return has_room and self._states.is_ready(key, now_ms)

    def _start_request(self, request: UnsentRequest, key: ConnectionKey, now_ms: int) -> None:
        channel = self._pool.get(key)
        if channel is None:
            return
        try:
            channel.connection.send(request, now_ms, self._unsent.timeout_ms(request))
        except KafkaError as error:
            self._fail([request], error)
        else:
            self._pool.flush(channel, now_ms)

    def _connect(self, key: ConnectionKey, node: Node, now_ms: int) -> None:
        self._diagnosis.connecting(now_ms)
        self._pool.connect(key, node, now_ms)

    # --- failures and close -----------------------------------------------------------------------

    def _expired(self, request: UnsentRequest) -> KafkaError:
        target = "any broker" if request.node_id is None else f"broker {request.node_id}"
        failed = None if request.node_id is None else self.connection_failed(request.node_id)
        return KafkaTimeoutError(
            f"{request.message.NAME} could not be sent to {target} within "
            f"{diagnosis.seconds(self._unsent.timeout_ms(request))}",
            cause=failed.message if failed is not None else None,
            node=request.node_id,
        )

    def _connection_ready(self, key: ConnectionKey, node: Node) -> None:
        if self.refusal is not None:
            self.refusal = None
            self._credentials.forget()
        self._diagnosis.ready(node)
        if key.node_id >= 0:
            self._rebootstraps = 0

    def _connection_failed(
        self, key: ConnectionKey, error: KafkaError, was_ready: bool, in_flight: int
    ) -> None:
        node_state = self._states.get(key)
        if node_state is not None:
            self._diagnosis.failed(node_state, self._bootstrap.nodes.values())
        if isinstance(error, AuthenticationError):
            self._credentials.refused()
            if not self._states.is_any_ready:
                self.refusal = error
        if not was_ready:
            self._fail(self._unsent.take(key), error)
        if key.node_id >= 0 and (in_flight or not was_ready):
            self._metadata.request_update()

    def _fail(self, requests: Iterable[UnsentRequest], error: KafkaError) -> None:
        self._pool.completed.extend(CompletedRequest(r, error=error) for r in requests)

    def close(self, timeout_ms: int) -> None:
        """Write what is queued for live connections, within the time, then close everything.

        Requests still unsent or in flight fail; an exception of a handler is only logged. Calling
        it again does nothing. Brokers read the last requests although this side does not wait for
        the responses: each stream is ended behind them, and what brokers still send is read and
        discarded as long as it keeps coming. A socket closed with unread bytes in it is reset,
        which makes a broker drop what it has not read yet; a request that waits behind a Fetch is
        read when that has been answered, also after this side has closed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        now_ms = self._clock.now_ms()
        deadline_ms = now_ms + timeout_ms
        error = DisconnectError("the client was closed")
        for key in self._unsent.waiting():
            while self._pool.is_ready(key) and (request := self._unsent.pop(key)) is not None:
                self._start_request(request, key, now_ms)
        self._pool.flush_joined(now_ms)
        while now_ms < deadline_ms and self._pool.has_data_to_send():
            events, _ = self._selector.select(deadline_ms - now_ms)
            now_ms = self._clock.now_ms()
            self._pool.process(events, now_ms)
        self._pool.end_output(error)
        scratch = memoryview(bytearray(DISCARDED_BYTES))
        while now_ms < deadline_ms and self._pool.open_keys():
            events, is_woken = self._selector.select(min(QUIET_MS, deadline_ms - now_ms))
            if not events and not is_woken:
                break
            self._pool.discard(events, scratch)
            now_ms = self._clock.now_ms()
        self._pool.close_all(error)
        self._fail(self._unsent.take_all(), error)
        with contextlib.suppress(KafkaError):  # logged already
            self._deliver(now_ms)
        self._selector.close()

    # --- nodes ------------------------------------------------------------------------------------

    def _node(self, node_id: int) -> Node | None:
        return self._node_map(node_id < 0).get(node_id)

    def _known_nodes(self) -> Mapping[int, Node]:
        return self._node_map(not self._metadata.cluster.brokers)

    def _node_map(self, is_bootstrap: bool) -> Mapping[int, Node]:
        return self._bootstrap.resolve() if is_bootstrap else self._metadata.cluster.brokers

    def __repr__(self) -> str:
        return f"<NetworkClient {self._states!r} {self._unsent!r}>"


class ThrottleLog:
    """Logs once when a broker begins to throttle the client of this id for a quota.

    A broker whose quota is used up throttles with every response: these are one state.
    """

    __slots__ = ("_client_id", "_last_ms")

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._last_ms: dict[int, int] = {}

    def note(self, node_id: int, api: str, throttle_ms: int, now_ms: int) -> None:
        """Note a response that says how long the broker throttles."""
        last_ms = self._last_ms.get(node_id)
        self._last_ms[node_id] = now_ms
        if last_ms is None or now_ms - last_ms >= THROTTLE_QUIET_MS:
            logger.warning(
                "Broker %d throttles %s for %d ms: a quota of the user or of client.id %s is used "
                "up; the metrics have fetch-throttle-time-avg and fetch-throttle-time-max",
                node_id,
                api,
                throttle_ms,
                self._client_id,
            )

    def __repr__(self) -> str:
        return f"<ThrottleLog {sorted(self._last_ms)}>"
