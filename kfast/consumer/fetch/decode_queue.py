"""DecodeQueue: the fetches that decode threads may claim, and the threads that wait for one.

Owns their order. It has no lock of its own: it is part of `FetchBuffer`, under whose lock every
method is called. Compiled, as that is.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfast._runtime.wakeup_event import WakeupEvent
    from kfast.consumer.fetch.completed_fetch import CompletedFetch


class DecodeQueue:
    """Fetches in RAW, the next one first; never others."""

    __slots__ = ("_fetches", "_idle")

    def __init__(self) -> None:
        self._fetches: OrderedDict[CompletedFetch, None] = OrderedDict()
        self._idle: deque[WakeupEvent] = deque()

    def __bool__(self) -> bool:
        return bool(self._fetches)

    @property
    def first(self) -> CompletedFetch | None:
        """The next one."""
        return next(iter(self._fetches), None)

    def append(self, fetch: CompletedFetch) -> None:
        """Add a fetch; `notify` follows."""
        self._fetches[fetch] = None

    def prepend(self, fetch: CompletedFetch) -> None:
        """Add a fetch that a thread goes on with before it takes another one."""
        self._fetches[fetch] = None
        self._fetches.move_to_end(fetch, last=False)
        self.notify(1)

    def remove(self, fetch: CompletedFetch) -> None:
        """Remove a fetch, if it is there."""
        self._fetches.pop(fetch, None)

    def clear(self) -> None:
        """Remove all fetches and end all waits."""
        self._fetches.clear()
        self.notify(len(self._idle))

    def notify(self, count: int) -> None:
        """End the waits of so many threads."""
        for _ in range(min(count, len(self._idle))):
            self._idle.popleft().set()

    def add_idle(self, arrived: WakeupEvent) -> None:
        """Have an event set by `notify`; the thread waits for it without the lock."""
        arrived.prepare()
        self._idle.append(arrived)

    def remove_idle(self, arrived: WakeupEvent) -> bool:
        """Note the end of a wait; return whether it was not by `notify`."""
        has_timed_out = arrived in self._idle
        if has_timed_out:
            self._idle.remove(arrived)
        return has_timed_out

    def __repr__(self) -> str:
        return f"<DecodeQueue {len(self._fetches)} fetches, {len(self._idle)} threads wait>"
