"""Fetcher: sends Fetch requests and makes `CompletedFetch`es of their responses.

Owns the in-flight requests and the checks of every response. Sans-IO request manager on the network
thread; it decodes nothing, it only reads batch headers.

Prefetch: a response is scanned for the offset after its last complete batch, which is the
partition's next fetch offset; so the next request is sent before anything of this one is decoded,
as long as memory allows (`FetchPlanner`). One request is in flight per broker.

A partition of a response is used only if the partition is still assigned, has the version it had
when the request was made, and still has the fetch offset that was requested; otherwise it is
dropped without effect. Data that cannot be read stops the partition: nothing more is fetched until
the user seeks, and the error is raised after the records before it were handed out.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger
from kfast._native.fetch_response import scan_batches
from kfast._native.record_batch import SliceDecoder
from kfast.client.request import UnsentRequest
from kfast.client.request_manager import PollResult
from kfast.consumer.error_actions import ErrorAction
from kfast.consumer.fetch.completed_fetch import CompletedFetch
from kfast.consumer.fetch.errors import (
    FETCH_ACTIONS,
    batch_too_large,
    partition_error,
    refused_size,
    response_too_large,
    responses_unreadable,
    unreadable_response,
)
from kfast.consumer.fetch.node_fetches import InFlightFetch
from kfast.consumer.fetch.planner import FetchPlanner, note_log_offsets
from kfast.consumer.fetch.request import FetchSettings
from kfast.consumer.fetch.session import SessionRequest
from kfast.consumer.topic_partition_state import FetchState
from kfast.errors import (
    ErrorCode,
    KafkaError,
    ProtocolError,
    error_info,
    exception_for,
)
from kfast.protocol.api_keys import ApiKey
from kfast.protocol.messages.fetch import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    LAST_VERSION_WITH_TOPIC_NAMES,
)
from kfast.types import ZERO_UUID

if TYPE_CHECKING:
    from kfast._native.fetch_response import FetchedPartition, FetchResponseView
    from kfast.client.request import ClientResponse
    from kfast.consumer.fetch.buffer import FetchBuffer
    from kfast.consumer.fetch.node_fetches import NodeFetches
    from kfast.consumer.fetch.session import FetchTarget
    from kfast.consumer.manager_context import ManagerContext
    from kfast.consumer.topic_partition_state import TopicPartitionState
    from kfast.types import TopicPartition

logger = get_logger(__name__)

OVERDUE_GRACE_MS: Final = 1_000
"""How much longer than ``fetch_max_wait_ms`` a response may take before partitions move."""

CLOSE_TIMEOUT_MS: Final = 1_000
"""Timeout of the request that closes a session."""

SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Top-level errors after which a new session is requested at once (KIP-227)."""


class Fetcher:
    """Fetches the assigned partitions."""

    def __init__(self, context: ManagerContext, fetch_buffer: FetchBuffer) -> None:
        config = context.config
        self._settings = FetchSettings.of(config)
        self._retry_backoff_ms = config.retry_backoff_ms
        self._preferred_replica_ms = config.metadata_max_age_ms
        self._subscriptions = context.subscriptions
        self._metadata = context.metadata
        self._connections = context.connections
        self._buffer = fetch_buffer
        self._errors = context.errors
        self._is_read_committed = config.isolation_level == "read_committed"
        self._decoder_of = partial(  # reads no record: it decodes on another thread
            SliceDecoder,
            read_committed=self._is_read_committed,
            check_crcs=config.check_crcs,
            max_decompressed_batch_bytes=config.max_decompressed_batch_bytes,
        )
        self._planner = FetchPlanner(context, self._settings, fetch_buffer)
        self._raised: dict[TopicPartition, object] = {}
        self._failed_followers: set[TopicPartition] = set()  # whose last answer was an error
        # Logged without the subscription lock: a log handler may want it, on another thread.
        self._messages: list[tuple[int, str, tuple[object, ...]]] = []
        self._is_closed = False

    # --- sending ----------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> PollResult:
        """Return a Fetch for every broker that has none in flight and is ready for one."""
        if self._is_closed:
            return PollResult()
        releases = self._buffer.memory.releases
        planner = self._planner
        planner.update(now_ms)
        requests: list[UnsentRequest] = []
        next_ms = planner.next_timer_ms(now_ms)
        needs_room = False
        for node in list(planner.nodes.values()):
            if node.in_flight is not None or not node.has_partitions:
                continue
            if now_ms < node.retry_ms:
                next_ms = min(next_ms, node.retry_ms - now_ms)
                continue
            expected_bytes = planner.select(node)
            needs_room = needs_room or expected_bytes is None or bool(node.deferred)
            if expected_bytes is None:
                continue
            if not self._is_ready(node, now_ms):
                delay = self._connections.connection_delay(node.node_id, now_ms)
                next_ms = min(next_ms, delay or self._retry_backoff_ms)
                continue
            request = self._request(node, expected_bytes, now_ms)
            if request is None:
                next_ms = min(next_ms, node.retry_ms - now_ms)
            else:
                requests.append(request)
        if needs_room and not self._buffer.memory.request_room(releases):
            next_ms = 0  # memory was released meanwhile
        return PollResult(requests, next_ms)

    def _is_ready(self, node: NodeFetches, now_ms: int) -> bool:
        if self._connections.ready(node.node_id, now_ms):
            node.reported_error = None
            return True
        error = self._connections.connection_failed(node.node_id)
        if error is None or isinstance(error, ProtocolError):
            return False  # `handle_failure` reports an unreadable response, if it is repeated
        if not error.retriable and error is not node.reported_error:
            node.reported_error = error
            self._errors.put(error, key=("node", node.node_id))
        return False

    def _request(self, node: NodeFetches, expected_bytes: int, now_ms: int) -> UnsentRequest | None:
        ceiling = None if node.session.has_all_topic_ids else LAST_VERSION_WITH_TOPIC_NAMES
        try:
            version = self._connections.api_version(node.node_id, ApiKey.FETCH, ceiling)
        except KafkaError as error:
            self._errors.put(error, key=("node", node.node_id))
            self._planner.node_failed(node, now_ms, may_retry_at_once=False)
            return None
        uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        session = node.session.build(uses_topic_ids=uses_topic_ids)
        overdue_ms = now_ms + self._settings.max_wait_ms + OVERDUE_GRACE_MS
        node.in_flight = InFlightFetch(
            node, self._buffer.memory.fetch_sent(expected_bytes), overdue_ms
        )
        self._planner.nodes[node.node_id] = self._planner.nodes.pop(node.node_id)
        return UnsentRequest(
            self._settings.request(session),
            self,
            node_id=node.node_id,
            context=node.in_flight,
            min_version=FIRST_VERSION_WITH_TOPIC_IDS if uses_topic_ids else None,
            max_version=version,
        )

    def close_sessions(self) -> list[UnsentRequest]:
        """Stop fetching; return the requests that close the fetch sessions (best effort)."""
        self._is_closed = True
        requests = []
        for node in self._planner.nodes.values():
            final = node.session.close()
            if final is not None:
                message = self._settings.request(SessionRequest(final, (), ()))
                message.max_wait_ms = 0
                requests.append(
                    UnsentRequest(message, self, node_id=node.node_id, timeout_ms=CLOSE_TIMEOUT_MS)
                )
        return requests

    # --- responses --------------------------------------------------------------------------------

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Restart the session: a full fetch follows."""
        in_flight = request.context
        if not isinstance(in_flight, InFlightFetch):
            return  # the request that closes a session
        node = in_flight.node
        logger.debug("Fetch from node %d failed: %s", node.node_id, error.message)
        node.session.handle_error()
        self._planner.request_ended(node)
        self._planner.node_failed(node, now_ms, may_retry_at_once=False)
        self._planner.leave_follower(node)
        self._buffer.memory.fetch_failed(in_flight.expected)
        self._metadata.request_update()
        size, fault = refused_size(error), unreadable_response(error)
        node.unreadable_responses = 0 if fault is None else node.unreadable_responses + 1
        if node.is_refused_again(size) and size is not None:
            error = response_too_large(size, error, node.node_id)
        elif fault is not None and node.unreadable_responses > 1:
            error = responses_unreadable(fault, node.node_id)
        elif fault is not None:
            logger.warning(
                "Broker %d sent a response that cannot be read (%s); retrying",
                node.node_id,
                fault.message,
            )
            return
        elif error.retriable or size is not None:
            return
        self._errors.put(error, key=("node", node.node_id))

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Apply a response to fetch offsets, buffer and plan.

        What only the next request needs comes after `FetchBuffer.fetch_answered`: by then the
        application thread has the records.
        """
        in_flight = request.context
        if self._is_closed or not isinstance(in_flight, InFlightFetch):
            return  # closed, or the request that closes a session
        node = in_flight.node
        view: FetchResponseView = response.message
        in_flight.frame = response.frame
        in_flight.received_ms = now_ms
        partitions = node.session.handle_response(view)
        if partitions is not None:
            with self._subscriptions.lock:
                for tp, (sent, fetched) in partitions.items():
                    if tp not in in_flight.abandoned:
                        self._take_partition(tp, sent, fetched, in_flight)
            if self._messages:
                self._log_messages()
        frame = response.frame
        self._buffer.fetch_answered(in_flight.expected, frame.size, in_flight.fetches, frame.nbytes)
        if partitions is not None:
            self._planner.touch(partitions)
            self._note_served(in_flight)
            if in_flight.leaders:  # continue at once at the new leader (KIP-951)
                self._metadata.update_leaders(in_flight.leaders, view.node_endpoints)
        elif view.error_code or view.throttle_time_ms <= 0:
            self._refused(node, view.error_code, now_ms)
        self._planner.request_ended(node)

    def _log_messages(self) -> None:
        messages, self._messages = self._messages, []
        for level, message, args in messages:
            logger.log(level, message, *args)

    def _note_served(self, in_flight: InFlightFetch) -> None:
        """Note how much data each partition had."""
        node, served, settings = in_flight.node, in_flight.served, self._settings
        node.failures = 0
        node.refused_size = None
        node.unreadable_responses = 0
        for tp, nbytes in served.items():
            if nbytes:
                node.served(tp, nbytes, settings.partition_max_bytes)
            else:
                node.failed(tp)
        total = sum(served.values())
        if not total or settings.max_bytes - total > settings.partition_max_bytes:
            node.mark_idle_except(served)  # no partition was left out because of the limits

    def _refused(self, node: NodeFetches, code: int, now_ms: int) -> None:
        """Handle a response that is dropped as a whole."""
        is_session_error = code in SESSION_ERRORS or not code
        self._planner.node_failed(node, now_ms, may_retry_at_once=is_session_error)
        if not code:
            return
        info = error_info(code)
        if info.refresh_metadata or code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
            self._metadata.request_update()
        if not info.retriable and FETCH_ACTIONS.of(code) is ErrorAction.REPORT:
            self._errors.put(exception_for(code, node=node.node_id))

    # --- one partition of a response, under the subscription lock ---------------------------------

    def _take_partition(
        self,
        tp: TopicPartition,
        sent: FetchTarget,
        fetched: FetchedPartition,
        in_flight: InFlightFetch,
    ) -> None:
        state = self._subscriptions.state(tp)
        if (
            state is None
            or state.version != sent.version
            or state.fetch_offset != sent.fetch_offset
            or state.fetch_state is not FetchState.FETCHING
            or state.is_stalled
        ):
            self._messages.append((logging.DEBUG, "Dropping a stale response for %s", (tp,)))
            if state is not None and (state.topic_id or ZERO_UUID) == sent.topic_id:
                note_log_offsets(state, fetched)  # the broker does not send them again (KIP-227)
            return
        note_log_offsets(state, fetched)
        if fetched.error_code:
            self._take_error(state, fetched, in_flight)
            return
        self._planner.backoffs.pop(tp, None)
        if self._failed_followers and in_flight.node.node_id == state.preferred_read_replica:
            self._failed_followers.discard(tp)
        if tp in self._raised:
            self._errors.clear(self._raised.pop(tp))
        if fetched.preferred_read_replica not in (-1, in_flight.node.node_id):
            self._redirect(state, fetched.preferred_read_replica, in_flight.received_ms)
        if fetched.records_end > fetched.records_start:
            self._take_records(state, sent, fetched, in_flight)
        elif sent.max_bytes < self._settings.partition_max_bytes:
            state.fetch_everything()

    def _redirect(self, state: TopicPartitionState, node_id: int, now_ms: int) -> None:
        """Fetch from the follower that the leader prefers (KIP-392), if it is known and online."""
        tp = state.topic_partition
        cluster = self._metadata.cluster
        if node_id in cluster.brokers and not cluster.is_offline(tp, node_id):
            self._planner.prefer(state, node_id, now_ms + self._preferred_replica_ms)
        else:  # the leader would name it again
            self._metadata.request_update()
            self._planner.back_off(tp, state.version, now_ms)

    def _take_records(
        self,
        state: TopicPartitionState,
        sent: FetchTarget,
        fetched: FetchedPartition,
        in_flight: InFlightFetch,
    ) -> None:
        tp = state.topic_partition
        offset = state.fetch_offset
        start, end = fetched.records_start, fetched.records_end
        scan = scan_batches(in_flight.frame, start, end)
        next_offset, is_corrupt = scan.next_offset, scan.is_corrupt
        error = None
        if next_offset <= offset and not is_corrupt:
            if scan.batches:
                self._only_earlier_records(state, next_offset, in_flight)
                return
            if sent.max_bytes < self._settings.partition_max_bytes:
                state.fetch_everything()
                in_flight.served[tp] = 0
                return
            limits = self._settings.limits
            error = batch_too_large(tp, offset, scan.needed_bytes, end - start, limits)
        state.is_stalled = is_corrupt or error is not None
        if next_offset > offset:
            state.note_fetched(next_offset, end - start)
        in_flight.served[tp] = end - start
        decoder = None
        if error is None:
            aborted = fetched.aborted_transactions if self._is_read_committed else ()
            decoder = self._decoder_of(
                in_flight.frame,
                start,
                end,
                topic=tp.topic,
                partition=tp.partition,
                position=offset,
                aborted_transactions=aborted,
            )
        in_flight.fetches.append(
            CompletedFetch(
                tp,
                version=state.version,
                fetch_offset=offset,
                next_fetch_offset=state.fetch_offset,
                raw_bytes=end - start,
                decoder=decoder,
                error=error,
                frame=in_flight.frame,
                high_watermark=fetched.high_watermark,
                log_start_offset=fetched.log_start_offset,
                topic_id=state.topic_id,
            )
        )

    def _only_earlier_records(
        self, state: TopicPartitionState, next_offset: int, in_flight: InFlightFetch
    ) -> None:
        """Back off: the broker sent whole batches, all of them before the fetch offset."""
        tp = state.topic_partition
        message = "Node %d answered offset %d of %s with records that end at %d"
        args = (in_flight.node.node_id, state.fetch_offset, tp, next_offset - 1)
        self._messages.append((logging.WARNING, message, args))
        in_flight.served[tp] = 0
        self._planner.back_off(tp, state.version, in_flight.received_ms)

    def _take_error(
        self, state: TopicPartitionState, fetched: FetchedPartition, in_flight: InFlightFetch
    ) -> None:
        tp, code, node_id = state.topic_partition, fetched.error_code, in_flight.node.node_id
        in_flight.served[tp] = 0
        self._messages.append(
            (logging.DEBUG, "Node %d answered %s with error %d", (node_id, tp, code))
        )
        action = FETCH_ACTIONS.of(code)
        if action is ErrorAction.NEW_LEADER and fetched.current_leader is not None:
            in_flight.leaders[tp] = fetched.current_leader
        leader = self._metadata.cluster.leader_for(tp)
        if leader is not None and leader.node_id != node_id:
            # Errors of a follower are ignored: the leader is requested at once, after another one
            # with a back-off, as it goes on to name that follower.
            state.clear_preferred_read_replica()
            if tp in self._failed_followers:
                self._planner.back_off(tp, state.version, in_flight.received_ms)
            self._failed_followers &= self._subscriptions.assigned_partitions()
            self._failed_followers.add(tp)
            return
        if action is ErrorAction.RESET_POSITION:
            self._out_of_range(state)
            return
        if action in (ErrorAction.NEW_LEADER, ErrorAction.REFRESH_METADATA):
            self._metadata.request_update()
        if code == ErrorCode.UNKNOWN_SERVER_ERROR:
            args = (node_id, tp, state.fetch_offset)
            self._messages.append((logging.WARNING, "Node %d failed to read %s at %d", args))
        if action is ErrorAction.REPORT:
            self._raise(state, code, node_id)
        self._planner.back_off(tp, state.version, in_flight.received_ms)

    def _out_of_range(self, state: TopicPartitionState) -> None:
        tp = state.topic_partition
        if self._buffer.has_data(tp):
            state.is_draining = True  # first hand out what is buffered, then fetch once more
        else:
            self._subscriptions.offset_out_of_range(tp, state.version, state.fetch_offset)

    def _raise(self, state: TopicPartitionState, code: int, node_id: int) -> None:
        tp = state.topic_partition
        error = partition_error(code, tp, state.fetch_offset, node_id)
        key = ("fetch", tp.topic if error.partition is None else tp)
        for gone in self._raised.keys() - self._subscriptions.assigned_partitions():
            del self._raised[gone]
        self._raised[tp] = key
        self._errors.put(error, key=key, partition=(tp, state.version), is_sticky=True)

    def __repr__(self) -> str:
        busy = sum(node.in_flight is not None for node in self._planner.nodes.values())
        return f"<Fetcher {busy} requests in flight, {self._planner!r}>"
