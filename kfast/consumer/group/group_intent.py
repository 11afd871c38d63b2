"""GroupIntent: whether the application wants its consumer to be a member of its group.

Owns what the application has said so far (a subscription, leaving, closing), and what speaks
against trying again: a failure that only another subscription can mend, or being fenced, which
nothing can. It decides nothing else; the membership does. Network thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfast.consumer.subscription_state import SubscriptionState


class GroupIntent:
    """What one consumer is to do about its group.

    Parameters
    ----------
    subscriptions : SubscriptionState
        The subscription, with a version that every change of it moves.

    Attributes
    ----------
    is_fenced : bool
        Another consumer has taken over the ``group_instance_id``: for good.
    """

    def __init__(self, subscriptions: SubscriptionState) -> None:
        self._subscriptions = subscriptions
        self._left_version: int | None = None
        self._failed_version: int | None = None
        self._is_closed = False
        self.is_fenced = False

    @property
    def is_wanted(self) -> bool:
        """Whether the application wants to be in the group, as far as it has said."""
        subscriptions = self._subscriptions
        return (
            not self._is_closed
            and subscriptions.is_automatic
            and subscriptions.subscription_version != self._left_version
        )

    @property
    def has_changed_since_failure(self) -> bool:
        """Whether joining can be tried again: something else is subscribed to."""
        has_changed = self._subscriptions.subscription_version != self._failed_version
        return has_changed and not self.is_fenced

    def left(self, *, is_closing: bool) -> None:
        """Note that the consumer leaves until it subscribes again, or for good."""
        self._is_closed = self._is_closed or is_closing
        self._left_version = self._subscriptions.subscription_version

    def failed(self, *, is_fenced: bool) -> None:
        """Note that there is no way on under the present subscription, or under any."""
        self._failed_version = self._subscriptions.subscription_version
        self.is_fenced = self.is_fenced or is_fenced

    def __repr__(self) -> str:
        return f"<GroupIntent wanted={self.is_wanted} fenced={self.is_fenced}>"
