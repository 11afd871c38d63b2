"""Subscription: what the user asked to read, before it becomes partitions.

Owns the way the assignment comes about and the topics or the pattern. It has no lock of its own:
every change happens under the lock of the `SubscriptionState` it is part of.

Subscribing to topics, subscribing to a pattern and assigning partitions by hand exclude one another
until everything is dropped.
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
    """How the assignment comes about; the value is the call that chose it."""

    NONE = "nothing"
    AUTO_TOPICS = "subscribe(topics)"
    AUTO_PATTERN = "subscribe(pattern)"
    BROKER_PATTERN = "subscribe(SubscriptionPattern)"
    USER_ASSIGNED = "assign(partitions)"


class Subscription:
    """The user's wish.

    Attributes
    ----------
    type : SubscriptionType
        How the assignment comes about.
    topics : frozenset of str
        As given, or as matched by the pattern so far.
    pattern : re.Pattern or None
        The pattern subscribed to, if topics are matched against it here.
    broker_pattern : SubscriptionPattern or None
        The pattern subscribed to, if the brokers match it; ``topics`` is empty then.
    group_topics : frozenset of str
        What the other members of a group subscribe to, while this one leads it.
    version : int
        Goes up by one with every change by the user.
    """

    __slots__ = ("broker_pattern", "group_topics", "pattern", "topics", "type", "version")

    def __init__(self) -> None:
        self.type = SubscriptionType.NONE
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.broker_pattern: SubscriptionPattern | None = None
        self.group_topics: frozenset[str] = frozenset()
        self.version = 0

    @property
    def is_automatic(self) -> bool:
        """Whether the partitions follow from topics or a pattern."""
        return self.type not in (SubscriptionType.NONE, SubscriptionType.USER_ASSIGNED)

    def choose(
        self,
        wanted: SubscriptionType,
        topics: Collection[str] = (),
        pattern: re.Pattern[str] | SubscriptionPattern | None = None,
    ) -> None:
        """Replace the wish.

        Raises
        ------
        IllegalStateError
            There is one of another type.
        """
        if self.type not in (SubscriptionType.NONE, wanted):
            raise IllegalStateError(
                f"{wanted.value} after {self.type.value}",
                cause="subscribing to topics, to a pattern and assigning partitions exclude "
                "one another",
                hint="call unsubscribe() first",
            )
        self.type = wanted
        self.topics = frozenset(topics)
        self.broker_pattern = pattern if isinstance(pattern, SubscriptionPattern) else None
        self.pattern = None if isinstance(pattern, SubscriptionPattern) else pattern
        self.version += 1

    def clear(self) -> None:
        """Wish for nothing."""
        self.type = SubscriptionType.NONE
        self.topics = frozenset()
        self.pattern = self.broker_pattern = None
        self.group_topics = frozenset()
        self.version += 1

    def __repr__(self) -> str:
        pattern = self.pattern or self.broker_pattern
        what = pattern.pattern if pattern is not None else sorted(self.topics)
        return f"<Subscription {self.type.name} {what}>"
