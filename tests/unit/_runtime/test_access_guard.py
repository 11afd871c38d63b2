"""AccessGuard: second threads, closed consumers and forked children are refused."""

from __future__ import annotations

import os
import threading

import pytest

from kfast._runtime.access_guard import AccessGuard
from kfast.errors import IllegalStateError


def test_second_thread_is_refused_while_one_is_inside() -> None:
    """L-05: a second thread gets IllegalStateError and nothing is corrupted."""
    guard = AccessGuard()
    inside, leave = threading.Event(), threading.Event()

    def occupy() -> None:
        with guard:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=occupy)
    thread.start()
    assert inside.wait(10)
    with pytest.raises(IllegalStateError, match="two threads at once") as caught, guard:
        pass
    assert caught.value.hint is not None
    assert "wakeup()" in caught.value.hint
    leave.set()
    thread.join(10)
    with guard:
        pass


def test_entering_twice_from_one_thread_is_fine() -> None:
    """L-05: user callbacks run inside a call and may call the consumer."""
    guard = AccessGuard()
    with guard, guard:
        pass
    with guard:
        pass


def test_closed_guard_refuses() -> None:
    """L-02: use after close raises, saying what to do."""
    guard = AccessGuard()
    guard.close()
    with pytest.raises(IllegalStateError, match="closed"), guard:
        pass


def test_forked_child_is_refused() -> None:
    """L-08: a consumer cannot be used in a forked child; the parent's goes on."""
    guard = AccessGuard()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with guard:
                answer = b"entered"
        except IllegalStateError as error:
            answer = str(error).encode()
        os.write(write_end, answer)
        os._exit(0)
    os.close(write_end)
    os.waitpid(pid, 0)
    with os.fdopen(read_end, "rb") as pipe:
        assert b"fork()" in pipe.read()
    with guard:
        pass
