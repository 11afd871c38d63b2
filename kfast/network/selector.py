"""Selector: waits for sockets, with a wakeup from any thread.

One selector serves all connections of a consumer. Everything belongs to the network thread except
``wakeup``, which any thread may call at any time, also after ``close``.

A wakeup makes a `Waker` readable, which ``select`` drains: one that comes at that moment is not
lost, because the thread is awake and looks at its inputs before it waits again.
"""

from __future__ import annotations

import selectors
from typing import TYPE_CHECKING, Final, Protocol

from kfast.network.receive import receive_frames
from kfast.network.waker import Waker

if TYPE_CHECKING:
    from kfast._native.frame import FrameReceiver

MAX_WAIT_MS: Final = 3_600_000
"""Longest single wait; epoll takes its timeout as a 32-bit number of milliseconds."""

MAX_UNASKED_BYTES: Final = 65_535
"""Frames up to this size are received without the gate: heartbeats and commits continue."""


class HasFileno(Protocol):
    """Anything with a descriptor to wait for."""

    def fileno(self) -> int:
        """Return the descriptor."""
        ...


Selected = tuple[list[tuple[object, int]], bool]
"""Pairs of key and events, and whether a wakeup ended the wait."""


class SelectorLike(Protocol):
    """What the network client needs of a selector; see ``Selector``."""

    def set_interest(self, transport: HasFileno, events: int, previous: int, key: object) -> None:
        """Change what to wait for on a transport from ``previous`` to ``events``."""
        ...

    def select(self, timeout_ms: int) -> Selected:
        """Wait for at most ``timeout_ms``."""
        ...

    def receive(self, receivers: dict[int, FrameReceiver], timeout_ms: int) -> tuple[int, bool]:
        """Wait, and receive until a frame is complete or anything else happens."""
        ...

    def wakeup(self) -> None:
        """Make the current or the next ``select`` return at once. Thread-safe."""
        ...

    def close(self) -> None:
        """Release everything; may be called again."""
        ...


class Selector:
    """An epoll (or kqueue, or poll) set with a wakeup.

    Keys are arbitrary objects that ``select`` gives back.
    """

    def __init__(self) -> None:
        self._waker = Waker()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._waker, selectors.EVENT_READ, None)
        self.wakeup = self._waker.wakeup
        """Make the current or the next ``select`` return at once. Thread-safe."""
        is_epoll = isinstance(self._selector, getattr(selectors, "EpollSelector", ()))
        self._epoll_fd = self._selector.fileno() if is_epoll else None

    def set_interest(self, transport: HasFileno, events: int, previous: int, key: object) -> None:
        """Change what to wait for on a transport; 0 means nothing.

        A descriptor without interest is taken out altogether: epoll would report a hang-up on it
        again and again.
        """
        if events == previous:
            return
        if previous == 0:
            self._selector.register(transport, events, key)
        elif events == 0:
            self._selector.unregister(transport)
        else:
            self._selector.modify(transport, events, key)

    def select(self, timeout_ms: int) -> Selected:
        """Wait for at most ``timeout_ms``; 0 only looks."""
        ready = self._selector.select(min(timeout_ms, MAX_WAIT_MS) / 1000)
        events: list[tuple[object, int]] = []
        is_woken = False
        for registered, mask in ready:
            if registered.data is None:
                self._waker.drain()
                is_woken = True
            else:
                events.append((registered.data, mask))
        return events, is_woken

    def receive(self, receivers: dict[int, FrameReceiver], timeout_ms: int) -> tuple[int, bool]:
        """Wait, and receive without the GIL until a frame is complete or anything else happens.

        ``receivers`` are by descriptor, registered here for reading only. Returns the bytes
        received, and whether ``select`` has events; 0 and True at once where there is no epoll.
        """
        if self._epoll_fd is None:
            return 0, True
        return receive_frames(
            self._epoll_fd, receivers, MAX_UNASKED_BYTES, min(timeout_ms, MAX_WAIT_MS)
        )

    def close(self) -> None:
        """Release the descriptors; may be called again."""
        self._selector.close()
        self._waker.close()
