"""A call on a thread of its own: it ends as it ends, and says so."""

from __future__ import annotations

import threading

import pytest

from kfast._base.threads import BackgroundCall


def test_it_runs_beside_whoever_began_it() -> None:
    go = threading.Event()
    names: list[str] = []

    def work() -> None:
        assert go.wait(30)
        names.append(threading.current_thread().name)

    call = BackgroundCall("a-name", work)
    assert repr(call) == "<BackgroundCall a-name running>"
    go.set()
    call.end()
    assert names == ["a-name"]
    assert not call.is_running
    assert repr(call) == "<BackgroundCall a-name ended>"


def test_what_it_raises_is_raised_at_its_end_each_time() -> None:
    error = OSError("no")

    def fail() -> None:
        raise error

    call = BackgroundCall("a-name", fail)
    call.wait()
    for _ in range(2):
        with pytest.raises(OSError, match="no") as raised:
            call.end()
        assert raised.value is error


def test_a_call_that_exits_has_not_succeeded() -> None:
    """U-06: a thread that ends by SystemExit looks like one that has done its work."""

    def leave() -> None:
        raise SystemExit(3)

    call = BackgroundCall("a-name", leave)
    with pytest.raises(SystemExit):
        call.end()
