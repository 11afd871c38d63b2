"""ConsumerSubscription: what a KIP-848 member tells of its subscription, and when it may.

Owns the time the subscription was last seen to change; it changes nothing. Topics subscribed to by
name, or matched here by a Python pattern, go out as names; a `SubscriptionPattern` goes out as it
is, the brokers match it. Network thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.consumer.group.kip848.heartbeat_request import MemberFields
from kfast.consumer.subscription import SubscriptionType

if TYPE_CHECKING:
    from kfast.client.metadata import Metadata
    from kfast.consumer.group.kip848.reconciliation import TopicIdPartition
    from kfast.consumer.subscription_state import SubscriptionState


class ConsumerSubscription:
    """The subscription as one member sees it.

    Parameters
    ----------
    subscriptions : SubscriptionState
        The subscription.
    metadata : Metadata
        Says whether all topics are known that a pattern may match.
    """

    __slots__ = ("_metadata", "_seen_ms", "_subscriptions", "_version")

    def __init__(self, subscriptions: SubscriptionState, metadata: Metadata) -> None:
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._version = -1
        self._seen_ms = 0

    def look(self, now_ms: int) -> None:
        """Note the time if there is another subscription than at the last look."""
        version = self._subscriptions.subscription_version
        if version != self._version:
            self._version = version
            self._seen_ms = now_ms

    @property
    def are_topics_known(self) -> bool:
        """Whether a Python pattern has been matched against the topics the cluster has now."""
        if self._subscriptions.subscription_type is not SubscriptionType.AUTO_PATTERN:
            return True
        refreshed_ms = self._metadata.last_success_ms
        return not self._metadata.is_update_needed or (
            refreshed_ms is not None and refreshed_ms >= self._seen_ms
        )

    @property
    def regex(self) -> str | None:
        """The pattern that the brokers match, if that is what is subscribed to."""
        pattern = self._subscriptions.broker_pattern
        return None if pattern is None else pattern.pattern

    def fields(self, owned: frozenset[TopicIdPartition]) -> MemberFields:
        """Return what a heartbeat has to tell."""
        return MemberFields(self._subscriptions.subscription(), self.regex, owned)

    def __repr__(self) -> str:
        return f"<ConsumerSubscription {self._subscriptions!r}>"
