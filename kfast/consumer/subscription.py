"""Subscription: topics or pattern subscribed to, or partitions assigned by hand.

Owns the kind of subscription and its topics or pattern. It has no lock of its own:
every change happens under the lock of the `SubscriptionState` it is part of.

Subscribing to topics, subscribing to a pattern and assigning partitions by hand exclude one another
until `clear`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from kfast.errors import IllegalStateError
from kfast.types import SubscriptionPattern

if TYPE_CHECKING:
    import re
    from collections.abc import Collection


class SubscriptionType(Enum):
    """What the assignment follows from; the value is the call that chose it."""

    NONE = "nothing"
    AUTO_TOPICS = "subscribe(topics)"
    AUTO_PATTERN = "subscribe(pattern)"
    BROKER_PATTERN = "subscribe(SubscriptionPattern)"
    USER_ASSIGNED = "assign(partitions)"


class Subscription:
    """The subscription of one consumer. Not locked."""

    __slots__ = (
        "broker_pattern",
        "group_topics",
        "listener",
        "pattern",
        "topics",
        "type",
        "version",
    )

    def __init__(self) -> None:
        self.type = SubscriptionType.NONE
        self.topics: frozenset[str] = frozenset()  # as given, or as matched by ``pattern`` so far
        self.pattern: re.Pattern[str] | None = None  # matched by the consumer
        self.broker_pattern: SubscriptionPattern | None = None  # matched by the brokers; no topics
        self.group_topics: frozenset[str] = frozenset()  # of all members, if this one is the leader
        self.listener: object = None  # of the application, for rebalances
        self.version = 0  # grows with every change by the user

    @property
    def is_automatic(self) -> bool:
        """Whether the partitions follow from topics or a pattern."""
        return self.type not in (SubscriptionType.NONE, SubscriptionType.USER_ASSIGNED)

    def choose(
        self,
        subscription_type: SubscriptionType,
        topics: Collection[str] = (),
        pattern: re.Pattern[str] | SubscriptionPattern | None = None,
        listener: object = None,
    ) -> None:
        """Replace the subscription.

        Raises
        ------
        IllegalStateError
            There is one of another type.
        """
        if self.type not in (SubscriptionType.NONE, subscription_type):
            raise IllegalStateError(
                f"{subscription_type.value} after {self.type.value}",
                cause="subscribing to topics, to a pattern and assigning partitions exclude "
                "one another",
                hint="call unsubscribe() first",
            )
        names = frozenset(topics)
        self.type = subscription_type
        self.topics = names
        self.broker_pattern = pattern if isinstance(pattern, SubscriptionPattern) else None
        self.pattern = None if isinstance(pattern, SubscriptionPattern) else pattern
        self.listener = listener
        self.version += 1

    def clear(self) -> None:
        """Drop the subscription."""
        self.type = SubscriptionType.NONE
        self.topics = frozenset()
        self.pattern = self.broker_pattern = None
        self.group_topics = frozenset()
        self.listener = None
        self.version += 1

    def excludes(self, topic: str) -> bool:
        """Return whether a topic is certainly not subscribed to: its partitions are to be revoked.

        A pattern that the brokers match may match any.
        """
        if self.type is SubscriptionType.AUTO_TOPICS:
            return topic not in self.topics
        if self.type is SubscriptionType.AUTO_PATTERN and self.pattern is not None:
            return self.pattern.match(topic) is None
        return False

    def __repr__(self) -> str:
        pattern = self.pattern or self.broker_pattern
        topics = pattern.pattern if pattern is not None else sorted(self.topics)
        return f"<Subscription {self.type.name} {topics}>"
