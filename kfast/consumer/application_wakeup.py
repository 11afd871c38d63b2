"""ApplicationWakeup: what the application thread waits for, and how it is woken.

Owns a count of events (data, a decoded chunk, an error, a position, ``wakeup``) and the two wakeup
events by which the network thread hands the interpreter over. No lock: `signal` is also called by a
signal handler, which may run on a thread that has any lock. Compiled, so that no other thread runs
between two instructions of one call.

| thread | calls |
|---|---|
| application | `look`, then, if there is nothing to do, `wait` |
| network | `data_arrived`, `hand_over` |
| any, also in a signal handler | `signal` |
"""

from __future__ import annotations

from typing import Final

from kfast._runtime.wakeup_event import WakeupEvent

HAND_OVER_S: Final = 0.0005
"""Longest wait of a `hand_over`."""


class ApplicationWakeup:
    """Wakes the application thread of one consumer up."""

    __slots__ = ("_arrived", "_events", "_is_ended", "_seen_events", "_waits_again")

    def __init__(self) -> None:
        self._arrived = WakeupEvent()
        self._waits_again = WakeupEvent()
        self._events = 0
        self._seen_events = 0
        self._is_ended = False

    @property
    def has_waiter(self) -> bool:
        """Whether the application thread waits."""
        return self._arrived.has_waiter

    def signal(self) -> None:
        """End the current or next `wait`."""
        self._events += 1
        self._arrived.set()

    def data_arrived(self, *, may_hand_over: bool) -> bool:
        """Signal that data has arrived; True instead if `hand_over` has to follow at once."""
        self._events += 1
        if may_hand_over and self._arrived.claim_waiter():
            self._waits_again.prepare()
            return True
        self._arrived.set()
        return False

    def hand_over(self) -> None:
        """Let the waiting application thread run, until it waits again or for a moment."""
        self._arrived.release_and_wait(self._waits_again, HAND_OVER_S)

    def look(self) -> None:
        """Note that the application thread looks for data: later events end the next `wait`."""
        self._seen_events = self._events

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for an event since the last `look`; False: timed out."""
        self._waits_again.set()
        # Before the check, because `signal` takes no lock: a later one ends the wait.
        self._arrived.prepare()
        is_due = self._events != self._seen_events or self._is_ended
        self._arrived.wait(0 if is_due else timeout_s)
        return self._events != self._seen_events

    def end(self) -> None:
        """End the current wait, and let no later one wait: the consumer is closed."""
        self._is_ended = True
        self.signal()

    def __repr__(self) -> str:
        return f"<ApplicationWakeup {'awaited' if self.has_waiter else 'idle'}>"
