"""Subscribing: subscribe, unsubscribe and assign.

Owns the three kinds of subscription (topics, a pattern, partitions assigned by the user), the
listener that belongs to one, and what is done before it is replaced. Application thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._base.logs import get_logger
from kfast.application.arguments import (
    as_iterable,
    check_partition,
    check_reason,
    check_topics,
    compile_pattern,
)
from kfast.application.rebalance_listener import check_listener
from kfast.errors import ConfigurationError, IllegalStateError
from kfast.types import SubscriptionPattern

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from kfast.application.shared_parts import SharedParts
    from kfast.types import TopicPartition

logger = get_logger(__name__)


class Subscribing:
    """Changes the subscription of one consumer."""

    def __init__(self, shared: SharedParts) -> None:
        config = shared.config
        self._is_kip848 = config.group_id is not None and config.group_protocol == "consumer"
        self._timeout_ms = config.default_api_timeout_ms
        self._runtime = shared.runtime
        self._subscriptions = shared.runtime.subscriptions
        self._commits = shared.commits
        self._leave_group = shared.leave_group

    def subscribe(
        self,
        topics: Iterable[str],
        pattern: str | re.Pattern[str] | SubscriptionPattern | None,
        listener: object,
    ) -> None:
        """Replace the subscription by these topics or this pattern."""
        names = check_topics(topics, pattern)
        callbacks = check_listener(listener)
        self._leave_group.finish()
        if isinstance(pattern, SubscriptionPattern):
            if not self._is_kip848:
                raise ConfigurationError(
                    f"subscribe({pattern!r}) needs brokers that match it",
                    cause="the classic protocol and consumers without a group match patterns "
                    "themselves",
                    hint='set group_id and group_protocol="consumer", or pass a str',
                )
            self._subscriptions.subscribe_broker_pattern(pattern, callbacks)
        elif pattern is not None:
            self._subscriptions.subscribe_pattern(compile_pattern(pattern), callbacks)
        elif names:
            self._subscriptions.subscribe(names, callbacks)
        else:
            self.unsubscribe()
            return
        if callbacks is not None and self._runtime.group is None:
            logger.warning("without group_id the rebalance listener is never called")
        self._runtime.changed()

    def unsubscribe(self) -> None:
        """Commit, revoke all partitions, leave the group and drop the subscription."""
        self._leave_group.unsubscribe(self._runtime.clock.now_ms() + self._timeout_ms)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions."""
        topic_partitions = [check_partition(tp) for tp in as_iterable(partitions)]
        if not topic_partitions:
            self.unsubscribe()
            return
        self._leave_group.finish()
        if not self._subscriptions.is_automatic:
            self._commits.auto_commit_async()
        self._subscriptions.assign_from_user(topic_partitions)
        self._runtime.changed()

    def enforce_rebalance(self, reason: str | None) -> None:
        """Have the group rebalance at the next poll."""
        why = check_reason(reason) or "enforce_rebalance() was called"
        group = self._runtime.group
        if group is None or not self._subscriptions.is_automatic:
            raise IllegalStateError(
                "enforce_rebalance() without being in a group",
                hint="set group_id, and subscribe() to topics",
            )
        self._runtime.submit("a rebalance", lambda _: group.membership.request_rejoin(why))

    def __repr__(self) -> str:
        return f"<Subscribing {self._subscriptions!r}>"
