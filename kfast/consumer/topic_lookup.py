"""TopicLookupManager: Metadata requests of ``topics()`` and ``partitions_for_topic()``.

Owns these look-ups. Their responses go to the caller and not into ``Metadata``, so a look-up
neither adds to the topics refreshed from then on nor changes the assignment. No topic is created by
a look-up. It ends with a response, at the deadline, or when the caller cancels its result. If the
topics must exist one response without them is not enough: it takes ``UNKNOWN_RESPONSES`` over
``UNKNOWN_MS``, as in `UnknownTopicCheck`.

When topics that are subscribed to by name turn out to be missing, all topics are looked up once, so
that the error can name the nearest one without a wait. Network thread only; sans-IO.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from kfast._base.clock import ExponentialBackoff
from kfast.client.metadata_merge import merge_topics
from kfast.client.request import UnsentRequest
from kfast.client.request_manager import IDLE, PollResult
from kfast.consumer.pending_result import PendingResult
from kfast.consumer.subscription import SubscriptionType
from kfast.consumer.unknown_topic_check import UNKNOWN_MS, UNKNOWN_RESPONSES
from kfast.errors import ErrorCode, KafkaError, KafkaTimeoutError, exception_for
from kfast.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.client.cluster import TopicMetadata
    from kfast.client.request import ClientResponse
    from kfast.consumer.manager_context import ManagerContext

NAMES_MS: Final = 1_000
"""How long an error waits for the names among which the nearest is looked for."""

TopicsResult: TypeAlias = "PendingResult[Mapping[str, TopicMetadata]]"


@dataclass(slots=True, eq=False)
class _Lookup:
    """One look-up and when to retry."""

    topics: frozenset[str] | None
    deadline_ms: int
    must_exist: bool
    not_before_ms: int
    attempts: int = 0
    in_flight: bool = False
    last_error: KafkaError | None = None
    incomplete: Mapping[str, TopicMetadata] | None = None
    """What the last response had, some of ``topics`` missing."""
    incomplete_responses: int = 0
    incomplete_since_ms: int = 0
    result: TopicsResult = field(default_factory=PendingResult)


class TopicLookupManager:
    """Looks up topics for the application."""

    def __init__(self, context: ManagerContext) -> None:
        config = context.config
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._clock = context.clock
        self._metadata = context.metadata
        self._subscriptions = context.subscriptions
        self._lookups: list[_Lookup] = []
        self._seen_errors: Mapping[str, int] | None = None
        self._missing: frozenset[str] = frozenset()
        self.topics_beside_missing: Mapping[str, TopicMetadata] | None = None
        """All topics, looked up when one was missing; none if that failed, None while it is under
        way. An immutable value that any thread may read."""

    def look_up(
        self,
        topics: frozenset[str] | None,
        now_ms: int,
        deadline_ms: int,
        *,
        must_exist: bool = False,
    ) -> TopicsResult:
        """Look up some topics, all when None; the result has those that exist.

        With ``must_exist`` it comes as soon as all are found, or it is certain that one is not.
        Fails with ``KafkaTimeoutError`` at the deadline without a response, and with the broker's
        error for a topic that may not be described or has an illegal name.
        """
        lookup = _Lookup(topics, deadline_ms, must_exist, now_ms)
        self._lookups.append(lookup)
        lookup.result.add_callback(lambda _: self._lookups.remove(lookup))
        return lookup.result

    def poll(self, now_ms: int) -> PollResult:
        """Return the requests to send now."""
        if self._metadata.topic_errors is not self._seen_errors:
            self._follow_missing(now_ms)
        if not self._lookups:
            return IDLE
        requests = []
        next_poll_ms = 1 << 40
        for lookup in list(self._lookups):
            if now_ms >= lookup.deadline_ms:
                if lookup.incomplete is not None:
                    lookup.result.complete(lookup.incomplete)
                else:
                    lookup.result.fail(_timed_out(lookup))
                continue
            next_poll_ms = min(next_poll_ms, lookup.deadline_ms - now_ms)
            if lookup.in_flight:
                continue
            if now_ms < lookup.not_before_ms:
                next_poll_ms = min(next_poll_ms, lookup.not_before_ms - now_ms)
                continue
            lookup.in_flight = True
            requests.append(self._request(lookup))
        return PollResult(requests, next_poll_ms)

    def _follow_missing(self, now_ms: int) -> None:
        """Look up the names of all topics if others are missing than before."""
        self._seen_errors = errors = self._metadata.topic_errors
        if self._subscriptions.subscription_type is not SubscriptionType.AUTO_TOPICS:
            return
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        missing = frozenset(topic for topic, code in errors.items() if code == unknown)
        if missing == self._missing:
            return
        self._missing = missing
        self.topics_beside_missing = None
        if missing:
            lookup = self.look_up(None, now_ms, now_ms + NAMES_MS)
            lookup.add_callback(lambda ended: self._names_found(missing, ended))

    def _names_found(self, missing: frozenset[str], ended: TopicsResult) -> None:
        if missing is self._missing:
            self.topics_beside_missing = ended.value if ended.error is None else {}

    def _request(self, lookup: _Lookup) -> UnsentRequest:
        names = None if lookup.topics is None else sorted(lookup.topics)
        message = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        return UnsentRequest(message, self, context=lookup)

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Complete the look-up, or retry."""
        lookup = request.context
        assert isinstance(lookup, _Lookup)
        assert isinstance(response.message, MetadataResponse)
        if lookup.result.is_done:
            return
        merged = merge_topics(
            {},
            response.message,
            requested=lookup.topics,
            retained=None,
            history={},
            api_version=response.api_version,
        )
        lookup.in_flight = False
        errors = {
            name: code
            for name, code in merged.errors.items()
            if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        for name, code in errors.items():
            error = exception_for(code, topic=name, operation="describe")
            if not error.retriable and lookup.topics is not None:
                lookup.result.fail(error)
                return
            lookup.last_error = error
        if lookup.topics is not None and errors:
            self._retry_later(lookup, now_ms)
        elif lookup.must_exist and not merged.topics.keys() >= (lookup.topics or set()):
            self._incomplete(lookup, merged.topics, now_ms)
        else:
            lookup.result.complete(merged.topics)

    @staticmethod
    def _incomplete(lookup: _Lookup, topics: Mapping[str, TopicMetadata], now_ms: int) -> None:
        if not lookup.incomplete_responses:
            lookup.incomplete_since_ms = now_ms
        lookup.incomplete = topics
        lookup.incomplete_responses += 1
        is_long = now_ms - lookup.incomplete_since_ms >= UNKNOWN_MS
        if is_long and lookup.incomplete_responses >= UNKNOWN_RESPONSES:
            lookup.result.complete(topics)
        else:
            lookup.not_before_ms = now_ms + UNKNOWN_MS // (UNKNOWN_RESPONSES - 1)

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Retry after a back-off; an error that is not retriable ends the look-up."""
        lookup = request.context
        assert isinstance(lookup, _Lookup)
        lookup.in_flight = False
        lookup.last_error = error
        if error.retriable:
            self._retry_later(lookup, now_ms)
        else:
            lookup.result.fail(error)

    def _retry_later(self, lookup: _Lookup, now_ms: int) -> None:
        lookup.not_before_ms = now_ms + self._backoff.backoff_ms(lookup.attempts, self._clock)
        lookup.attempts += 1

    def __repr__(self) -> str:
        return f"<TopicLookupManager {len(self._lookups)} open>"


def _timed_out(lookup: _Lookup) -> KafkaError:
    names = "the topics" if lookup.topics is None else ", ".join(sorted(lookup.topics))
    return KafkaTimeoutError(
        f"no metadata of {names} within the timeout",
        cause=None if lookup.last_error is None else str(lookup.last_error).splitlines()[0],
        hint="check bootstrap_servers and the brokers",
    )
