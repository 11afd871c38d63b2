"""SubscriptionWatch: whether what a classic group member joined with is still what is wanted.

Owns the topics of the last JoinGroup and, for patterns, the freshness of what they match. It only
looks; joining again is `ClassicMembership`'s decision. Network thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.consumer.subscription import SubscriptionType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfast.client.metadata import Metadata
    from kfast.consumer.subscription_state import SubscriptionState

_SHOWN: int = 5


class SubscriptionWatch:
    """Compares the subscription with the one joined with.

    Parameters
    ----------
    subscriptions : SubscriptionState
        The subscription.
    metadata : Metadata
        Asked for a refresh before a pattern is joined with.
    """

    def __init__(self, subscriptions: SubscriptionState, metadata: Metadata) -> None:
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._joined_topics: frozenset[str] = frozenset()
        self._asked: tuple[int, int] | None = None

    def has_fresh_topics(self) -> bool:
        """Return whether the topics to join with are known as of this rebalance.

        Those of a pattern are not, until metadata of all topics has come since the first call for
        this subscription, or since `joined`.
        """
        if self._subscriptions.subscription_type is not SubscriptionType.AUTO_PATTERN:
            return True
        subscription_version = self._subscriptions.subscription_version
        if self._asked is None or self._asked[0] != subscription_version:
            self._asked = (subscription_version, self._metadata.version)
            self._metadata.request_update()
        return self._asked[1] != self._metadata.version and self._metadata.topics is None

    def joining(self) -> frozenset[str]:
        """Return the topics to join with, and remember them."""
        self._joined_topics = self._subscriptions.subscription()
        return self._joined_topics

    def joined(self) -> None:
        """Note that the rebalance is over."""
        self._asked = None

    def reason_to_rejoin(self) -> str | None:
        """Return what is different from what was joined with, None if nothing is."""
        topics = self._subscriptions.subscription()
        if topics == self._joined_topics:
            return None
        return f"subscription changed from {names(self._joined_topics)} to {names(topics)}"

    def accept(self, topics: set[str]) -> bool:
        """Return whether an assignment of these topics is one for the subscription.

        The group's leader may know of topics that match the pattern and that are news to us: they
        become part of the subscription.
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
        return f"<SubscriptionWatch joined={names(self._joined_topics)}>"


def names(topics: Iterable[str]) -> str:
    """Return topics for a message, not all of many."""
    shown = sorted(topics)
    return f"[{', '.join(shown[:_SHOWN])}{', ...' if len(shown) > _SHOWN else ''}]"
