"""ConsumerRebalanceListener: call-backs for revoked, lost and assigned partitions."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Protocol

from kfast.errors import ConfigurationError

if TYPE_CHECKING:
    from kfast.types import TopicPartition


class RebalanceCallbacks(Protocol):
    """The methods a listener must have, whatever its class."""

    def on_partitions_revoked(self, revoked: list[TopicPartition], /) -> object:
        """Partitions are about to be revoked."""
        ...

    def on_partitions_assigned(self, assigned: list[TopicPartition], /) -> object:
        """Partitions were assigned."""
        ...


class ConsumerRebalanceListener:
    """Called when a group member's partitions are revoked, assigned or lost.

    Subclass it and override what is of interest. All methods run on the application's own thread,
    inside ``poll``, ``unsubscribe`` or ``close``, and may call the consumer: ``position``,
    ``seek``, ``commit``, ``pause``, ... What one raises is raised by that call once the change is
    complete. Objects that have ``on_partitions_revoked`` and ``on_partitions_assigned`` are
    accepted whatever their class.

    Examples
    --------
    >>> class Log(kfast.ConsumerRebalanceListener):
    ...     def on_partitions_assigned(self, assigned):
    ...         print("assigned", sorted(assigned))
    >>> consumer = kfast.KafkaConsumer(bootstrap_servers="localhost:9092", group_id="billing")
    >>> consumer.subscribe(["orders"], listener=Log())
    """

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Partitions are about to be revoked, for other members; not called for none.

        No record of them is delivered from now on. They are still assigned: this is the place to
        finish and ``commit`` what was read.
        """

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Partitions were assigned; called after every rebalance, with the added ones or none.

        No record of them was delivered yet: this is the place to ``seek``.
        """

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        """Partitions are lost: other members may be reading them already (KIP-429).

        Nothing can be committed for them any more. By default the same as
        `on_partitions_revoked`.
        """
        self.on_partitions_revoked(lost)


def check_listener(listener: object) -> RebalanceCallbacks | None:
    """Return the listener, or raise what is missing in it."""
    if listener is None:
        return None
    for name in ("on_partitions_revoked", "on_partitions_assigned"):
        if not callable(getattr(listener, name, None)) or isinstance(listener, type):
            raise ConfigurationError(
                f"listener = {listener!r}: not a rebalance listener",
                cause="it is a class" if isinstance(listener, type) else f"it has no {name}()",
                hint="pass an object of a subclass of kfast.ConsumerRebalanceListener",
            )
    for name in ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"):
        if inspect.iscoroutinefunction(getattr(listener, name, None)):
            raise ConfigurationError(
                f"listener = {listener!r}: {name}() is a coroutine",
                cause="listeners are called on the application's thread, which does not await",
                hint="make it a plain method",
            )
    return listener  # type: ignore[return-value]
