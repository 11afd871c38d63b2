"""JoinGroup and SyncGroup of a classic group member: back-off, subscription, requests in flight.

`JoinBackoff` owns the time of the next JoinGroup, `JoinedSubscription` the topics it was sent with,
`JoinRequests` the JoinGroup and SyncGroup in flight. They decide nothing; `ClassicMembership` does.
Network thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast._base.clock import ExponentialBackoff
from kfast._base.logs import get_logger
from kfast.client.request import Channel, UnsentRequest
from kfast.client.request_manager import NEVER_MS
from kfast.consumer.group.classic.errors import Exchange
from kfast.consumer.retried_errors import Stage
from kfast.consumer.subscription import SubscriptionType
from kfast.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfast._base.clock import Clock
    from kfast.client.metadata import Metadata
    from kfast.client.request import ResponseHandler
    from kfast.config import ConsumerConfig
    from kfast.consumer.group.classic.messages import GroupRequests, JoinedGroup
    from kfast.consumer.retried_errors import RetriedErrors
    from kfast.consumer.subscription_state import SubscriptionState
    from kfast.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from kfast.protocol.messages.sync_group import SyncGroupRequest

logger = get_logger(__name__)

SLOW_JOIN_MS: Final = 3_500
"""A JoinGroup in flight for so long is logged. The first join of an empty group takes 3 s by itself
(group.initial.rebalance.delay.ms)."""

_SHOWN: Final = 5


class JoinBackoff:
    """JoinGroup back-off: grows while joining leads to no generation."""

    def __init__(self, config: ConsumerConfig, clock: Clock, retries: RetriedErrors) -> None:
        self._retries = retries
        self._group_id = config.group_id
        self._session_timeout_ms = config.session_timeout_ms
        self._max_poll_interval_ms = config.max_poll_interval_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._clock = clock
        self._failures = 0
        self._has_had_free_retry = False
        self._not_before_ms = 0
        self._sent_ms: int | None = None

    def ms_to_next(self, now_ms: int) -> int:
        """Return the milliseconds until JoinGroup may be sent; 0 means now."""
        return max(0, self._not_before_ms - now_ms)

    def sent(self, now_ms: int) -> None:
        """Note that JoinGroup is sent."""
        self._sent_ms = now_ms

    def ms_to_notice(self, now_ms: int) -> int:
        """Return the milliseconds until a slow JoinGroup is logged; log it once they are over."""
        if self._sent_ms is None:
            return NEVER_MS
        left_ms = self._sent_ms + SLOW_JOIN_MS - now_ms
        if left_ms > 0:
            return left_ms
        waiting = KafkaError(
            "JoinGroup is not answered", cause="another member of the group has not joined again"
        )
        self._retries.failed(
            Stage.MEMBERSHIP, waiting, now_ms, begun_ms=self._sent_ms, is_rebalance=True
        )
        self._sent_ms = None
        logger.info(
            'waiting for group "%s": another member has not joined again; up to its '
            "session.timeout.ms (here %g s) if it died, up to its max.poll.interval.ms (here %g s) "
            "if it is processing records",
            self._group_id,
            self._session_timeout_ms / 1000,
            self._max_poll_interval_ms / 1000,
        )
        return NEVER_MS

    def failed(self, now_ms: int, *, is_first_free: bool = False) -> None:
        """Note an attempt that led to no generation: the next one comes after a growing back-off.

        With ``is_first_free`` the first retry comes at once: the group only wants all members to
        join again. A coordinator that repeats it is given time.
        """
        self._not_before_ms = now_ms
        if is_first_free and not self._has_had_free_retry:
            self._has_had_free_retry = True
            return
        self._not_before_ms += self._backoff.backoff_ms(self._failures, self._clock)
        self._failures += 1

    def reset(self) -> None:
        """Note that a generation was joined, or that joining begins anew."""
        self._failures = 0
        self._has_had_free_retry = False
        self._not_before_ms = 0

    def __repr__(self) -> str:
        return f"<JoinBackoff failed={self._failures} not_before={self._not_before_ms}>"


class JoinRequests:
    """JoinGroup and SyncGroup in flight, and the content of the last JoinGroup response.

    Responses are matched by the identity of the request; after `clear` all are ignored.
    """

    def __init__(self, requests: GroupRequests, handler: ResponseHandler) -> None:
        self._requests = requests
        self._handler = handler
        self.join: UnsentRequest | None = None
        self.sync: UnsentRequest | None = None
        self.joined: JoinedGroup | None = None

    def send_join(self, message: JoinGroupRequest, node_id: int) -> UnsentRequest:
        """Begin a rebalance; the response may take until all other members have joined."""
        requests = self._requests
        self.sync = self.joined = None
        self.join = UnsentRequest(
            message,
            self._handler,
            node_id=node_id,
            timeout_ms=requests.join_timeout_ms,
            channel=Channel.COORDINATOR,
            min_version=requests.join_version,
        )
        return self.join

    def send_sync(self, message: SyncGroupRequest, node_id: int) -> UnsentRequest:
        """Request the assignment, or submit it as the leader."""
        self.sync = UnsentRequest(
            message,
            self._handler,
            node_id=node_id,
            channel=Channel.COORDINATOR,
            min_version=self._requests.member_version,
        )
        return self.sync

    def answered(self, request: UnsentRequest) -> Exchange | None:
        """Return the exchange of a request that ended; None if it is not in flight any more."""
        if request is self.join:
            self.join = None
            return Exchange.JOIN
        if request is self.sync:
            self.sync = None
            return Exchange.SYNC
        return None

    def joined_by(self, response: JoinGroupResponse) -> JoinedGroup:
        """Return, and keep, the content of a JoinGroup response without error.

        Raises
        ------
        KafkaError
            As `GroupRequests.joined`.
        """
        self.joined = self._requests.joined(response)
        return self.joined

    def clear(self) -> None:
        """Ignore the responses in flight."""
        self.join = self.sync = None
        self.joined = None

    def __repr__(self) -> str:
        kind = "join" if self.join is not None else "sync" if self.sync is not None else "nothing"
        return f"<JoinRequests in_flight={kind} joined={self.joined is not None}>"


class JoinedSubscription:
    """Topics of the last JoinGroup, compared with the current subscription."""

    def __init__(self, subscriptions: SubscriptionState, metadata: Metadata) -> None:
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._joined_topics: frozenset[str] = frozenset()
        self._requested: tuple[int, int] | None = None
        """Versions of subscription and metadata when the metadata was requested."""

    def has_fresh_topics(self) -> bool:
        """Return whether the topics to join with are known as of this rebalance.

        Those of a pattern are not, until metadata of all topics has come since the first call for
        this subscription, or since `joined`.
        """
        if self._subscriptions.subscription_type is not SubscriptionType.AUTO_PATTERN:
            return True
        subscription_version = self._subscriptions.subscription_version
        if self._requested is None or self._requested[0] != subscription_version:
            self._requested = (subscription_version, self._metadata.version)
            self._metadata.request_update()
        return self._requested[1] != self._metadata.version and self._metadata.topics is None

    def joining(self) -> frozenset[str]:
        """Return the topics to join with, and keep them."""
        self._joined_topics = self._subscriptions.subscription()
        return self._joined_topics

    def joined(self) -> None:
        """Note that the rebalance is over."""
        self._requested = None

    def reason_to_rejoin(self) -> str | None:
        """Return how the subscription differs from the one joined with, None if it does not."""
        topics = self._subscriptions.subscription()
        if topics == self._joined_topics:
            return None
        return f"subscription changed from {names(self._joined_topics)} to {names(topics)}"

    def accept(self, topics: set[str]) -> bool:
        """Return whether an assignment of these topics is one for the subscription.

        The group leader may know topics that match the pattern and that are not in this client's
        metadata yet: they become part of the subscription.
        """
        subscriptions = self._subscriptions
        with subscriptions.lock:
            foreign = topics - subscriptions.subscription()
            pattern = subscriptions.pattern
            if not foreign:
                return True
            if pattern is None or not all(pattern.match(topic) for topic in foreign):
                return False
            subscriptions.set_pattern_topics(subscriptions.subscription() | foreign)
            self._joined_topics |= foreign
        self._metadata.request_update()
        return True

    def __repr__(self) -> str:
        return f"<JoinedSubscription {names(self._joined_topics)}>"


def names(topics: Iterable[str]) -> str:
    """Return topics for a message, the first few of many."""
    shown = sorted(topics)
    return f"[{', '.join(shown[:_SHOWN])}{', ...' if len(shown) > _SHOWN else ''}]"
