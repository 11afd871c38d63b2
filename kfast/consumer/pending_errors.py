"""PendingErrors: errors found on the network thread that the application has to be told.

Owns the errors that do not belong to a place in the records (those travel in the
`CompletedFetch`). It has no lock of its own: it is part of `FetchBuffer`, under whose lock every
method is called.

Each error has a key, and a later one replaces an earlier one of the same key, so that a condition
met a thousand times is one entry. A plain error is raised once. A sticky one (no permission, no
offset) is raised again and again until whoever put it clears it. One that belongs to a position is
void as soon as the partition has another version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kfast.errors import KafkaError
    from kfast.types import TopicPartition


class ErrorPort(Protocol):
    """Where a request manager leaves errors for the application thread: the `FetchBuffer`."""

    def put_error(
        self,
        error: KafkaError,
        *,
        key: object = None,
        partition: tuple[TopicPartition, int] | None = None,
        is_sticky: bool = False,
    ) -> None:
        """Have an error raised by the application's next call; see `PendingErrors.put`."""
        ...

    def clear_error(self, key: object) -> None:
        """Forget the error of a key."""
        ...

    def wakeup(self) -> None:
        """Have a waiting application thread look at the state of the consumer again."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PendingError:
    """One error waiting to be raised.

    Parameters
    ----------
    key : object
        What it is about.
    error : KafkaError
        The error.
    partition : tuple of TopicPartition and int, or None
        The partition and the version of it that the error is about.
    is_sticky : bool
        Whether it stays after being raised.
    """

    key: object
    error: KafkaError
    partition: tuple[TopicPartition, int] | None
    is_sticky: bool


class PendingErrors:
    """Errors by key, in the order in which they are to be raised."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[object, PendingError] = {}

    def put(
        self,
        error: KafkaError,
        *,
        key: object = None,
        partition: tuple[TopicPartition, int] | None = None,
        is_sticky: bool = False,
    ) -> None:
        """Add an error, replacing the one of the same key.

        Parameters
        ----------
        error : KafkaError
            What to raise.
        key : object
            What it is about; by default its class and the topic, partition and node it names.
        partition : tuple of TopicPartition and int, or None
            Drop it when this partition does not have this version any more.
        is_sticky : bool
            Raise it until `clear`.
        """
        if key is None:
            key = (type(error), error.topic, error.partition, error.node)
        self._entries[key] = PendingError(key, error, partition, is_sticky)

    def clear(self, key: object) -> None:
        """Forget the error of a key."""
        self._entries.pop(key, None)

    def entries(self) -> list[PendingError]:
        """Return the errors, the next one to raise first."""
        return list(self._entries.values())

    def drop(self, entry: PendingError) -> None:
        """Forget this error, unless another one has taken its key meanwhile."""
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]

    def raised(self, entry: PendingError) -> None:
        """Note that an error is being raised: a sticky one goes to the end, others are gone."""
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
            if entry.is_sticky:
                self._entries[entry.key] = entry

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __repr__(self) -> str:
        return f"<PendingErrors {[type(entry.error).__name__ for entry in self.entries()]}>"
