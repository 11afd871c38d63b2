"""ConsumerRuntime: the request managers, network client and threads of one consumer, wired up.

Owns the construction of metadata, subscription state, fetch buffer, request managers, network
client and threads from one configuration, their start on first use and their end. Subscription
state, fetch buffer, steps and request metrics are shared with the application thread. It holds no
Kafka semantics of its own: those live in the objects it connects. It keeps no reference to the
``KafkaConsumer``, so that a forgotten consumer can be collected and finalized.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from kfast._base.logs import get_logger
from kfast._runtime.one_time_call import CallDepth
from kfast._runtime.wakeup_event import WakeupEvent
from kfast.client.metadata import Metadata
from kfast.client.refusals import again
from kfast.client.request_metrics import RequestMetrics
from kfast.consumer.error_mailbox import ErrorMailbox
from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.consumer.fetch.collector import FetchCollector
from kfast.consumer.manager_context import ManagerContext
from kfast.consumer.pending_result import all_of
from kfast.consumer.request_managers import RequestManagers
from kfast.consumer.subscription import SubscriptionType
from kfast.consumer.subscription_state import SubscriptionState
from kfast.errors import (
    AuthorizationError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    WakeupError,
)
from kfast.network.network_client import NetworkClient
from kfast.network.network_io import NetworkIO
from kfast.network.resolver import SystemResolver
from kfast.settings.offset_reset import OffsetResetStrategy
from kfast.threads.application_event import ApplicationEvent
from kfast.threads.application_steps import ApplicationSteps
from kfast.threads.decode_pool import DecodePool
from kfast.threads.name_resolver import NameResolver
from kfast.threads.network_thread import NetworkThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kfast._base.clock import Clock
    from kfast._native.record_batch import RecordIndex
    from kfast.client.cluster import TopicMetadata
    from kfast.config import ConsumerConfig
    from kfast.consumer.admin.admin_requests import Answers
    from kfast.consumer.admin.questions import Key, Question
    from kfast.consumer.application_wakeup import ApplicationWakeup
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.consumer.pending_result import PendingResult
    from kfast.records.building import BuildResult
    from kfast.records.partition_records import PartitionRecords
    from kfast.security.login_worker import LoginPause, LoginWorker
    from kfast.security.sasl import TokenRequest
    from kfast.security.sasl.login import SaslLogins
    from kfast.security.sasl.oidc import ClientCredentials, Endpoint
    from kfast.types import OAuthToken, OffsetAndTimestamp, TopicPartition

T = TypeVar("T")

logger = get_logger(__name__)

ANSWER_SLACK_MS: Final = 500
"""How much longer than a look-up its caller waits, so that the look-up's own error is raised."""

POSITION_CHECK_MS: Final = 5
"""How often a call that waits for a position checks it."""

BOOTSTRAP_GRACE_MS: Final = 1_000
"""How long a call tries to reach a first broker although every server refuses it."""

BOOTSTRAP_CHECK_MS: Final = 50
"""How often other calls check whether they have tried for long enough."""

OBSTRUCTED_MS: Final = 100
"""How long a call waits before Fetch responses without room are received: its own may be behind."""


class ConsumerRuntime:
    """Threads, connections and state of one consumer.

    ``convert`` makes rows of a decoded chunk, on the application thread, and ``convert_ahead`` on a
    decode thread, if it may. With ``for_admin`` it can `ask` about groups.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        clock: Clock,
        convert: Callable[[CompletedFetch, RecordIndex], BuildResult | None],
        wakeup: ApplicationWakeup,
        *,
        convert_ahead: Callable[[CompletedFetch, RecordIndex, int], Any] | None = None,
        for_admin: bool = False,
    ) -> None:
        self.config = config
        self.clock = clock
        self.metadata = Metadata(config, clock)
        """``metadata.cluster`` may be read from any thread."""
        self.subscriptions = SubscriptionState(
            OffsetResetStrategy.parse(config.auto_offset_reset),
            is_read_committed=config.isolation_level == "read_committed",
        )
        io = NetworkIO.of(config, clock)
        wake_network = io.selector.wakeup
        self.wakeup_event = wakeup
        """What the application thread waits for."""
        self.fetch_buffer = FetchBuffer(
            config.buffer_memory_bytes, wakeup, on_room=wake_network, convert_ahead=convert_ahead
        )
        self._resolver = NameResolver(
            f"kfast-resolver-{config.client_id}", SystemResolver(), clock, wake_network
        )
        self._login_worker, logins = make_login_parts(config, clock, wake_network)
        self.requests = RequestMetrics(config.metrics_num_samples, config.metrics_sample_window_ms)
        self._client_name = getattr(io.transport_factory, "client_name", None)
        self._login_user = None if logins is None else logins.user
        self._errors = ErrorMailbox(wakeup, self.word_error)
        self._client = NetworkClient(
            config,
            self.metadata,
            clock,
            replace(
                io,
                resolver=self._resolver,
                receive_gate=self.fetch_buffer.memory.may_receive,
                logins=logins,
            ),
            self.requests if config.metrics_enabled else None,
        )
        self.collector: FetchCollector[PartitionRecords] = FetchCollector(
            self.subscriptions, self.fetch_buffer, self._errors, convert
        )
        """Application thread only."""
        self.steps = ApplicationSteps(clock.now_ms(), wakeup.signal)
        context = ManagerContext(
            config,
            clock,
            self.metadata,
            self._client,
            self.subscriptions,
            self._errors,
            wakeup,
        )
        self.retries = context.retries
        """What keeps this consumer from reading and is tried again; may be read by any thread."""
        self._managers = RequestManagers.of(
            context, self.fetch_buffer, self.steps, for_admin=for_admin
        )
        self.group = self._managers.group
        """Membership, commits and coordinator; None without a ``group_id``."""
        self._network = NetworkThread(
            f"kfast-network-{config.client_id}",
            self._client,
            self._managers.in_order,
            clock,
            on_failure=self._on_thread_failure,
            last_requests=self._managers.fetcher.close_sessions,
            on_end=self._on_network_end,
        )
        self._decoders = DecodePool(
            f"kfast-decode-{config.client_id}",
            self.fetch_buffer.decoding,
            config.decode_threads,
            on_failure=self._on_thread_failure,
        )
        self._started_ms: int | None = None
        self._has_started = False
        self._is_closed = False
        self._announced = 0
        self.wakeup_requested = False
        """Whether `raise_wakeup` may have something to raise."""
        self._is_ending = False
        self.uninterrupted = CallDepth()
        """Around what defers ``wakeup``: listeners, and closing (L-03)."""
        self._pause = WakeupEvent()
        self._blocked_on: ApplicationEvent[object] | None = None

    @property
    def is_started(self) -> bool:
        """Whether the threads were started."""
        return self._started_ms is not None

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    @property
    def failure(self) -> KafkaError | None:
        """The error that ended the network thread, None if none did. Any thread."""
        return self._network.failure

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads unless they run; raise the error that ended the network thread."""
        if not self._has_started:
            if self._is_closed:
                raise IllegalStateError("this KafkaConsumer is closed")
            if self._started_ms is None:
                self._started_ms = self.clock.now_ms()
            self._network.start()
            self._decoders.start()
            self._has_started = True  # last: an interrupted start begins again
        self._network.raise_failure()

    def close(self, timeout_ms: int) -> None:
        """End threads and connections within the time. Idempotent; interrupted, it can be repeated.

        The network thread closes its connections itself.
        """
        self._is_closed = True
        if self._login_worker is not None:
            self._login_worker.end()
        deadline_ms = self.clock.now_ms() + timeout_ms
        self.fetch_buffer.close()
        self._resolver.close()
        if not self._network.close(timeout_ms):
            logger.warning("the network thread did not end within %d ms", timeout_ms)
        self._decoders.close(max(0, deadline_ms - self.clock.now_ms()) / 1000)

    def abandon(self) -> None:
        """End threads and connections of a consumer that is collected; idempotent.

        Any thread, at any place: garbage is collected wherever something is allocated, so on these
        threads too, and under their locks. No lock is waited for, and no thread waits for itself.
        """
        if self._started_ms is None:
            self.close(0)
            return
        self._is_closed = True  # perhaps before, by a `close` that was interrupted
        self._decoders.end()
        if self._login_worker is not None:
            self._login_worker.end()
        self._network.close(0)

    def _on_network_end(self) -> None:
        if self._is_closed:
            self.fetch_buffer.close()  # ends the decode threads
            self._resolver.close()

    def changed(self) -> None:
        """Wake the network thread after a change made by the application."""
        if self._started_ms is not None:
            self._client.wakeup()

    def announce_changes(self) -> None:
        """Wake the network thread if partitions have changed since the last call.

        A signal handler may have raised between a change and `changed`.
        """
        changes = self.subscriptions.changes
        if changes != self._announced:
            self.changed()
            self._announced = changes

    def _on_thread_failure(self, error: BaseException) -> None:
        failure = error if isinstance(error, KafkaError) else KafkaError(f"internal error: {error}")
        self._errors.put(failure, key="thread failure", is_sticky=True)

    def submit(
        self,
        name: str,
        action: Callable[[int], PendingResult[T]] | Callable[[int], T],
    ) -> ApplicationEvent[T]:
        """Run an action on the network thread, without waiting for it."""
        self.start()
        event: ApplicationEvent[T] = ApplicationEvent(name, action)
        self._network.submit(event)
        return event

    # --- blocking calls ---------------------------------------------------------------------------

    @overload
    def call(self, name: str, action: Callable[[int], PendingResult[T]], timeout_ms: int) -> T: ...
    @overload
    def call(self, name: str, action: Callable[[int], T], timeout_ms: int) -> T: ...
    def call(
        self,
        name: str,
        action: Callable[[int], PendingResult[T] | T],
        timeout_ms: int,
    ) -> T:
        """Run an action on the network thread and return its outcome, or raise its error.

        `KafkaTimeoutError` if there is no outcome in time, `WakeupError` if ``wakeup`` is called.
        """
        self.start()
        self.raise_wakeup()
        event: ApplicationEvent[T] = ApplicationEvent(name, action)
        begun_ms = self.clock.now_ms()
        self._blocked_on = event  # type: ignore[assignment]
        is_obstructed = False
        try:
            self._network.submit(event)
            while not event.is_done:
                waited_ms = self.clock.now_ms() - begun_ms
                remaining_ms = timeout_ms - waited_ms
                if waited_ms >= OBSTRUCTED_MS and not is_obstructed:
                    is_obstructed = True
                    self.fetch_buffer.memory.note_caller(is_waiting=True)
                if not self._client.has_reached_broker:
                    remaining_ms = min(remaining_ms, BOOTSTRAP_CHECK_MS)
                elif not is_obstructed:
                    remaining_ms = min(remaining_ms, OBSTRUCTED_MS)
                if remaining_ms <= 0 or event.wait(remaining_ms / 1000):
                    break
                self.raise_wakeup()
                unreachable = self.unreachable_since(begun_ms)
                if unreachable is not None:
                    raise unreachable
        finally:
            self._blocked_on = None
            if is_obstructed:
                self.fetch_buffer.memory.note_caller(is_waiting=False)
            has_outcome = event.is_done
            if not has_outcome:
                self._network.abandon(event)
        if not has_outcome:
            raise self.why_unreachable() or KafkaTimeoutError(
                f"{name} was not answered within {timeout_ms} ms",
                hint="check the brokers, or raise default_api_timeout_ms",
            )
        try:
            return event.result()
        except KafkaTimeoutError as error:
            raise self.why_unreachable() or error from None
        except AuthorizationError as error:
            raise self.word_error(error) from None

    def word_error(self, error: KafkaError) -> KafkaError:
        """Return an error about permissions with the user that it is about. Any thread."""
        if not isinstance(error, AuthorizationError):
            return error
        from kfast.security.authentication_errors import denied  # noqa: PLC0415 - for errors

        if self._login_user is not None:
            user = self._login_user.name
        else:
            user = None if self._client_name is None else self._client_name()
        return denied(error, user, self.config.group_id)

    def list_offsets(
        self,
        timestamps: Sequence[dict[TopicPartition, int]],
        timeout_ms: int,
        isolation_level: int | None = None,
    ) -> list[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Look offsets up by time, -2 for the earliest and -1 for the latest, all at once.

        The isolation level is that of the configuration if None.
        """
        deadline_ms = self.clock.deadline_ms(timeout_ms)
        return self.call(
            "the look-up of offsets",
            lambda _: all_of(
                [
                    self._managers.offsets.list_offsets(of_partitions, deadline_ms, isolation_level)
                    for of_partitions in timestamps
                ]
            ),
            timeout_ms + ANSWER_SLACK_MS,
        )

    def look_up_topics(
        self, topics: frozenset[str] | None, timeout_ms: int, *, must_exist: bool = False
    ) -> Mapping[str, TopicMetadata]:
        """Return those of these topics, or of all when None, that exist.

        Without ``must_exist`` one broker's answer is enough for a topic to be left out.
        """
        deadline_ms = self.clock.deadline_ms(timeout_ms)
        return self.call(
            "the look-up of topics",
            lambda now_ms: self._managers.lookups.look_up(
                topics, now_ms, deadline_ms, must_exist=must_exist
            ),
            timeout_ms + ANSWER_SLACK_MS,
        )

    @property
    def topics_beside_missing(self) -> Mapping[str, TopicMetadata] | None:
        """All topics, once one that is subscribed to is missing; see `TopicLookupManager`."""
        return self._managers.lookups.topics_beside_missing

    def ask(self, question: Question, keys: Iterable[Key] | None, timeout_ms: int) -> Answers:
        """Ask brokers about groups or about themselves, all brokers if ``keys`` is None."""
        admin = self._managers.admin
        if admin is None:
            raise IllegalStateError("this runtime is not for administrative look-ups")
        deadline_ms = self.clock.deadline_ms(timeout_ms)
        return self.call(
            question.name,
            lambda now_ms: admin.ask(question, keys, now_ms, deadline_ms),
            timeout_ms + ANSWER_SLACK_MS,
        )

    @property
    def needs_poll_to_join(self) -> bool:
        """Whether the network thread must be woken by a poll: the group is not joined yet."""
        return (
            self.group is not None
            and self.group.membership.identity is None
            and self.subscriptions.subscription_type is not SubscriptionType.USER_ASSIGNED
        )

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return self._client.connection_count

    def wait_for_position(self, timeout_ms: int) -> None:
        """Wait for a short time for the network thread to find positions."""
        self.announce_changes()
        self._pause.prepare()
        self._pause.wait(0 if self.has_wakeup else min(timeout_ms, POSITION_CHECK_MS) / 1000)

    def wakeup(self) -> None:
        """Make the blocked or the next blocking call raise ``WakeupError`` once. Any thread.

        It waits for no lock: a signal handler runs on a thread that may hold it.
        """
        self.wakeup_requested = True
        self._pause.set()
        self.wakeup_event.signal()
        blocked_on = self._blocked_on
        if blocked_on is not None:
            blocked_on.interrupt()

    def end_calls(self) -> None:
        """End the running blocking call, and any later one: the consumer is being closed.

        Any thread, also from a signal handler, as `wakeup`.
        """
        self._is_ending = True
        self.wakeup()

    @property
    def has_wakeup(self) -> bool:
        """Whether the next `raise_wakeup` raises."""
        return self.wakeup_requested and not self.uninterrupted.depth

    def raise_wakeup(self) -> None:
        """Raise ``WakeupError`` if ``wakeup`` was called since the last one was raised.

        `IllegalStateError` after `end_calls`.
        """
        if self.wakeup_requested and not self.uninterrupted.depth:
            if self._is_ending:
                raise IllegalStateError(
                    "this KafkaConsumer is closed",
                    cause="close() was called inside this call, by a callback or a signal "
                    "handler, or it was interrupted before",
                    hint="make a new KafkaConsumer to read on; after an interrupted close() call "
                    "it again",
                )
            self.wakeup_requested = False
            raise WakeupError("wakeup() was called")

    def bootstrap_error(self) -> KafkaError | None:
        """Return why no broker can be used, as soon as that is certain; see `unreachable_since`.

        For polls, which are made again: they have tried since the first call.
        """
        return None if self._started_ms is None else self.unreachable_since(self._started_ms)

    def _refusal(self) -> KafkaError | None:
        """Return the refusal of a log-in, which ends a call at once, if no broker can be used."""
        refusal = self._client.refusal
        return None if refusal is None else again(refusal)

    def unreachable_since(self, begun_ms: int) -> KafkaError | None:
        """Return why no broker can be used, for a call that has tried since then; None to wait on.

        A refused log-in is final at once. Else it waits for `BOOTSTRAP_GRACE_MS` if all servers
        have failed for certain, or for ``bootstrap_timeout_ms``, and for that in any case if it was
        given. Once a broker was reached nothing is certain: it may restart.
        """
        client = self._client
        refusal = self._refusal()
        if refusal is not None:
            return refusal
        if client.has_reached_broker:
            return None
        tried_ms = self.clock.now_ms() - begun_ms
        if tried_ms < self.config.bootstrap_timeout_ms and (
            tried_ms < BOOTSTRAP_GRACE_MS
            or self.config.was_given("bootstrap_timeout_ms")
            or not client.all_servers_failed
        ):
            return None
        return client.bootstrap_error()

    def why_unreachable(self) -> KafkaError | None:
        """Return why no broker could be used so far, for a call whose time is up."""
        return None if self._client.has_reached_broker else self._client.bootstrap_error()

    @staticmethod
    def finalize(runtime: ConsumerRuntime, pid: int) -> None:
        """End the threads without waiting: interpreter exit, or a consumer not closed.

        Does nothing in a forked child: threads and sockets are the parent's.
        """
        if os.getpid() == pid:
            with contextlib.suppress(Exception):
                runtime.abandon()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<ConsumerRuntime {self.config.client_id} {state}>"


def make_login_parts(
    config: ConsumerConfig, clock: Clock, on_done: Callable[[], None]
) -> tuple[LoginWorker | None, SaslLogins | None]:
    """Return the worker and the log-ins of connections, None for a security protocol without SASL.

    ``on_done`` wakes the thread that drives the connections. What this needs is imported only where
    it is used: it loads OpenSSL, and for a token endpoint HTTP and TLS.
    """
    if not config.security_protocol.startswith("SASL_"):
        return None, None
    from kfast.security.login_worker import LoginPause, LoginWorker  # noqa: PLC0415
    from kfast.security.sasl import make_logins, make_tokens  # noqa: PLC0415
    from kfast.security.sasl.sasl_settings import SaslSettings  # noqa: PLC0415

    settings = SaslSettings.of(config)
    pause = LoginPause()
    tokens = make_tokens(config, settings, _token_request(config, pause, clock), clock)
    worker = LoginWorker(f"kfast-login-{config.client_id}", clock, pause, tokens, on_done)
    return worker, make_logins(settings, worker, tokens, clock)


def _token_request(config: ConsumerConfig, pause: LoginPause, clock: Clock) -> TokenRequest:
    if config.sasl_oauthbearer_token_endpoint_url is None:
        return _no_token
    from kfast.security.token_endpoint import TokenEndpoint  # noqa: PLC0415

    return TokenEndpoint(config, pause.wait, clock).request


def _no_token(endpoint: Endpoint, credentials: ClientCredentials) -> OAuthToken:
    raise IllegalStateError(f"there is no token endpoint but {endpoint} of {credentials}")
