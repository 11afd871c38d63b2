"""AccessGuard: one consumer, one calling thread, one process.

Owns the rule that a ``KafkaConsumer`` is used by one thread at a time, not after ``close`` and not
in a forked child. Entering costs one uncontended lock operation. The guard protects the caller
from itself; it is not the lock of any state (``SubscriptionState`` and ``FetchBuffer`` have
their own).
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from kfast.errors import IllegalStateError

if TYPE_CHECKING:
    from types import TracebackType


class AccessGuard:
    """Context manager around every public call but ``wakeup``.

    Re-entrant for the thread that is inside, so that user callbacks may call the consumer.

    Raises
    ------
    IllegalStateError
        On entering from a second thread, in a forked child, or after ``close``.
    """

    __slots__ = ("_depth", "_is_closed", "_lock", "_owner", "_pid")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._depth = 0
        self._pid = os.getpid()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the consumer was closed."""
        return self._is_closed

    @property
    def is_forked(self) -> bool:
        """Whether this process is a forked child of the one that made the consumer."""
        return os.getpid() != self._pid

    def close(self) -> None:
        """Refuse every later entry."""
        self._is_closed = True

    def check_open(self) -> None:
        """Raise ``IllegalStateError`` after `close`: for a call that was inside meanwhile."""
        if self._is_closed:
            raise IllegalStateError(
                "this KafkaConsumer is closed", hint="make a new KafkaConsumer to read on"
            )

    def __enter__(self) -> AccessGuard:
        if self.is_forked:
            raise IllegalStateError(
                "this KafkaConsumer was made before fork() and cannot be used in the child",
                cause="its sockets and threads belong to the parent process",
                hint="make a new KafkaConsumer in the child",
            )
        self.check_open()
        me = threading.get_ident()
        if self._owner != me:
            if not self._lock.acquire(blocking=False):
                raise IllegalStateError(
                    "KafkaConsumer is used by two threads at once",
                    cause="another thread is inside a call of this consumer",
                    hint="give each thread its own consumer; only wakeup() may be called from "
                    "another thread",
                )
            self._owner = me
        self._depth += 1
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = 0
            self._lock.release()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"depth={self._depth}"
        return f"<AccessGuard {state}>"
