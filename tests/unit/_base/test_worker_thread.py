"""WorkerThread: one run, whatever becomes of its starts."""

from __future__ import annotations

import _thread
import threading
from typing import Any

import pytest

from kfast._base.threads import OwnThread, WorkerThread


def test_a_thread_runs_once_under_its_name() -> None:
    """I-09: starting again starts nothing."""
    runs: list[str] = []
    end = threading.Event()

    def run() -> None:
        runs.append(threading.current_thread().name)
        assert worker.is_current
        end.wait(10)

    worker = WorkerThread("kfast-test", run)
    states = [worker.is_alive]
    worker.start()
    worker.start()
    assert [*states, worker.is_alive] == [False, True]
    assert not worker.is_current
    assert not worker.cancel()
    end.set()
    assert worker.join(10)
    worker.start()
    assert runs == ["kfast-test"]
    assert repr(worker) == "<WorkerThread kfast-test not running>"


def test_a_start_that_was_interrupted_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """I-09: whether the thread was started or not, one of them does the work."""
    start = _thread.start_new_thread
    runs: list[int] = []
    done = threading.Event()

    def interrupted(*arguments: Any) -> None:
        if len(starts) % 2:
            start(*arguments)
        starts.append(1)
        raise TimeoutError("mine")

    def run() -> None:
        runs.append(1)
        done.set()

    starts: list[int] = []
    worker = WorkerThread("kfast-test", run)
    monkeypatch.setattr(_thread, "start_new_thread", interrupted)
    for _ in range(2):
        with pytest.raises(TimeoutError, match="mine"):
            worker.start()
    monkeypatch.undo()
    worker.start()
    assert done.wait(10)
    assert worker.join(10)
    assert runs == [1]


def test_a_thread_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """L-09: and not a wait without an end."""

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(OwnThread, "start", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        WorkerThread("kfast-test", lambda: None).start()


def test_a_cancelled_thread_never_runs() -> None:
    """L-01: a consumer may be closed before its threads were started."""
    worker = WorkerThread("kfast-test", lambda: None)
    assert worker.cancel()
    assert worker.cancel()
    assert worker.join(0)
