"""ManagerContext: what every request manager of a consumer is made with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfast.consumer.retried_errors import RetriedErrors

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast.client.metadata import Metadata
    from kfast.client.request import NodeConnections
    from kfast.config import ConsumerConfig
    from kfast.consumer.application_wakeup import ApplicationWakeup
    from kfast.consumer.error_mailbox import ErrorMailbox
    from kfast.consumer.subscription_state import SubscriptionState


@dataclass(frozen=True, slots=True, eq=False)
class ManagerContext:
    """Settings, time and the state that request managers share.

    ``subscriptions``, ``errors`` and ``wakeup`` are shared with the application thread and
    thread-safe; the rest belongs to the network thread. ``clock`` gives wall time and jitter: the
    time of a poll is an argument.
    """

    config: ConsumerConfig
    clock: Clock
    metadata: Metadata
    connections: NodeConnections
    subscriptions: SubscriptionState
    errors: ErrorMailbox
    wakeup: ApplicationWakeup
    retries: RetriedErrors = field(init=False)
    """Errors that keep the consumer from reading while they are retried; written by managers."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "retries", RetriedErrors(self.config))
