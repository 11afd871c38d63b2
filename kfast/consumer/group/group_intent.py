"""GroupIntent: whether the consumer is to be a member of its group.

Owns the effects of subscribing, leaving and closing, and whether joining may be retried: not before
another subscription after a failure, never after the member was fenced. Network thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfast.consumer.subscription_state import SubscriptionState


class GroupIntent:
    """Intent of one consumer. ``is_fenced``: another one has its ``group_instance_id`` now."""

    def __init__(self, subscriptions: SubscriptionState) -> None:
        self._subscriptions = subscriptions
        self._left_version: int | None = None
        self._failed_version: int | None = None
        self._is_closed = False
        self.is_fenced = False

    @property
    def is_wanted(self) -> bool:
        """Whether the consumer is subscribed and has neither left nor closed since."""
        subscriptions = self._subscriptions
        return (
            not self._is_closed
            and subscriptions.is_automatic
            and subscriptions.subscription_version != self._left_version
        )

    @property
    def has_changed_since_failure(self) -> bool:
        """Whether joining may be retried: the subscription has changed."""
        has_changed = self._subscriptions.subscription_version != self._failed_version
        return has_changed and not self.is_fenced

    def left(self, *, is_closing: bool) -> None:
        """Note that the consumer leaves until it subscribes again, or for good."""
        self._is_closed = self._is_closed or is_closing
        self._left_version = self._subscriptions.subscription_version

    def failed(self, *, is_fenced: bool) -> None:
        """Note that joining has failed for this subscription, or if fenced for any."""
        self._failed_version = self._subscriptions.subscription_version
        self.is_fenced = self.is_fenced or is_fenced

    def __repr__(self) -> str:
        return f"<GroupIntent wanted={self.is_wanted} fenced={self.is_fenced}>"
