"""ErrorMailbox: errors of the network thread, to be raised on the application thread.

Owns the errors that have no offset (those with one are in the `CompletedFetch`), and their lock,
which may be taken under that of `SubscriptionState`; nothing is called under it. Compiled, so that
no signal handler runs between two changes of one call.

Each error has a key, and a later one replaces an earlier one of the same key, so that a condition
met a thousand times is one entry. An error is raised once. A sticky one (no permission, no offset)
is raised at every call until the request manager that put it clears it. One that belongs to a
position is dropped as soon as the partition has another version.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfast.consumer.application_wakeup import ApplicationWakeup
    from kfast.errors import KafkaError
    from kfast.types import TopicPartition


@dataclass(frozen=True, slots=True, eq=False)
class PendingError:
    """One error to be raised; see `ErrorMailbox.put`."""

    key: object
    error: KafkaError
    partition: tuple[TopicPartition, int] | None
    is_sticky: bool


class ErrorMailbox:
    """Errors by key, in the order in which they are to be raised. Thread-safe.

    ``word_error`` completes the text of an error, on the thread that puts it.
    """

    __slots__ = ("_lock", "_pending", "_wakeup", "_word_error", "has_errors")

    def __init__(
        self,
        wakeup: ApplicationWakeup,
        word_error: Callable[[KafkaError], KafkaError] | None = None,
    ) -> None:
        self.has_errors = False
        """Whether there is an error; may be read without the lock."""
        self._wakeup = wakeup
        self._word_error = word_error
        self._lock = threading.Lock()
        self._pending: dict[object, PendingError] = {}

    # --- network thread ---------------------------------------------------------------------------

    def put(
        self,
        error: KafkaError,
        *,
        key: object = None,
        partition: tuple[TopicPartition, int] | None = None,
        is_sticky: bool = False,
    ) -> None:
        """Have an error raised by the application's next call, replacing the one of the same key.

        The default key is the class of the error with its topic, partition and node. The error is
        dropped when ``partition`` has another version than the one given. A sticky one is raised
        until `clear`.
        """
        if self._word_error is not None:
            error = self._word_error(error)
        if key is None:
            key = (type(error), error.topic, error.partition, error.node)
        pending = PendingError(key, error, partition, is_sticky)
        with self._lock:
            self._pending[key] = pending
            self.has_errors = True
        self._wakeup.signal()

    def clear(self, key: object) -> None:
        """Drop the error of a key, if there is one."""
        with self._lock:
            self._pending.pop(key, None)
            self.has_errors = bool(self._pending)

    # --- application thread -----------------------------------------------------------------------

    def take(self, is_current: Callable[[TopicPartition, int], bool]) -> KafkaError | None:
        """Return the error to raise next, None if there is none.

        ``is_current`` returns whether a partition still has a version; errors about others are
        dropped. It is called without the lock.
        """
        with self._lock:
            entries = list(self._pending.values())
        for entry in entries:
            is_void = entry.partition is not None and not is_current(*entry.partition)
            with self._lock:
                if self._pending.get(entry.key) is entry:  # none has replaced it meanwhile
                    del self._pending[entry.key]
                    if entry.is_sticky and not is_void:
                        self._pending[entry.key] = entry  # behind the others
                self.has_errors = bool(self._pending)
            if not is_void:
                return entry.error
        return None

    def __repr__(self) -> str:
        names = [type(entry.error).__name__ for entry in list(self._pending.values())]
        return f"<ErrorMailbox {names}>"
