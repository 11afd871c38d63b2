"""PendingErrors: errors of the network thread, to be raised on the application thread.

Owns the errors that have no offset (those with one are in the `CompletedFetch`). It has no lock of
its own: it is part of `FetchBuffer`, under whose lock every method is called.

Each error has a key, and a later one replaces an earlier one of the same key, so that a condition
met a thousand times is one entry. An error is raised once. A sticky one (no permission, no offset)
is raised at every call until the request manager that put it clears it. One that belongs to a
position is dropped as soon as the partition has another version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kfast.errors import KafkaError
    from kfast.types import TopicPartition


class ErrorPort(Protocol):
    """Where a request manager puts errors for the application thread: the `FetchBuffer`."""

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
        """Drop the error of a key."""
        ...

    def wakeup(self) -> None:
        """Wake up a waiting application thread."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PendingError:
    """One error to be raised; see `PendingErrors.put`."""

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

        The default key is the class of the error with its topic, partition and node. The error is
        dropped when ``partition`` has another version than the one given. A sticky one is raised
        until `clear`.
        """
        if key is None:
            key = (type(error), error.topic, error.partition, error.node)
        self._entries[key] = PendingError(key, error, partition, is_sticky)

    def clear(self, key: object) -> None:
        """Drop the error of a key."""
        self._entries.pop(key, None)

    def entries(self) -> list[PendingError]:
        """Return the errors, the next one to raise first."""
        return list(self._entries.values())

    def drop(self, entry: PendingError) -> None:
        """Drop this error, unless another one has its key by now."""
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
