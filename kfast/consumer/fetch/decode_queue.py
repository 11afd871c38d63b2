"""DecodeQueue: the fetches that decode threads may claim, and the threads that wait for one.

Owns their order, and decides how many threads are woken. It has no lock of its own: every method is
called under that of `FetchBuffer`. Compiled, as that is.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfast._runtime.wakeup_event import WakeupEvent
    from kfast.consumer.application_wakeup import ApplicationWakeup
    from kfast.consumer.fetch.completed_fetch import CompletedFetch


class DecodeQueue:
    """Fetches in RAW, the next one first; never others.

    A waiting application thread decodes one fetch itself: waking a decode thread for it would put
    one more change of threads between the socket and the user.
    """

    __slots__ = ("_fetches", "_idle", "_wakeup")

    def __init__(self, wakeup: ApplicationWakeup) -> None:
        self._wakeup = wakeup
        self._fetches: OrderedDict[CompletedFetch, None] = OrderedDict()
        self._idle: deque[WakeupEvent] = deque()

    @property
    def first(self) -> CompletedFetch | None:
        """The next one."""
        return next(iter(self._fetches), None)

    def append(self, fetch: CompletedFetch) -> None:
        """Add a fetch; `data_arrived` follows."""
        self._fetches[fetch] = None

    def data_arrived(self, slices: int) -> None:
        """Wake threads for so many slices."""
        self._notify(slices - self._wakeup.has_waiter)

    def memory_released(self) -> None:
        """Wake a thread, which may have waited for memory."""
        if self._fetches and not self._wakeup.has_waiter:
            self._notify(1)

    def prepend(self, fetch: CompletedFetch) -> None:
        """Add a fetch that a thread goes on with before it takes another one."""
        self._fetches[fetch] = None
        self._fetches.move_to_end(fetch, last=False)
        self._notify(1)

    def remove(self, fetch: CompletedFetch) -> None:
        """Remove a fetch, if it is there."""
        self._fetches.pop(fetch, None)

    def clear(self) -> None:
        """Remove all fetches and end all waits."""
        self._fetches.clear()
        self._notify(len(self._idle))

    def _notify(self, count: int) -> None:
        for _ in range(min(count, len(self._idle))):
            self._idle.popleft().set()

    def add_idle(self, arrived: WakeupEvent) -> None:
        """Have an event set for the next fetch; the thread waits for it without the lock."""
        arrived.prepare()
        self._idle.append(arrived)

    def remove_idle(self, arrived: WakeupEvent) -> bool:
        """Note the end of a wait; return whether nothing has ended it."""
        has_timed_out = arrived in self._idle
        if has_timed_out:
            self._idle.remove(arrived)
        return has_timed_out

    def __repr__(self) -> str:
        return f"<DecodeQueue {len(self._fetches)} fetches, {len(self._idle)} threads wait>"
