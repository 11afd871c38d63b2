"""Real signals from outside, for handlers on the main thread.

SIGUSR1, sent by a thread: the timer of SIGALRM belongs to what ends a test that hangs.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

NUMBER: Final = signal.SIGUSR1


@contextmanager
def signalled(
    handler: Callable[[int, FrameType | None], object], pauses_s: Iterable[float]
) -> Iterator[None]:
    """Have a handler called after each of these pauses, as long as the block is not left."""
    main_thread = threading.get_ident()
    is_over = threading.Event()

    def send() -> None:
        for pause in pauses_s:
            if is_over.wait(pause):
                return
            signal.pthread_kill(main_thread, NUMBER)

    previous = signal.signal(NUMBER, handler)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        is_over.set()
        sender.join()
        signal.signal(NUMBER, previous)
