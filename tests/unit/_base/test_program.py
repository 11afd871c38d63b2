"""Ends of a program: a signal that came is not forgotten, wherever its exception got lost."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from kfast._base.program import run_program
from kfast.errors import KafkaError

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture(autouse=True)
def everything_is_as_before() -> Iterator[None]:
    """Handlers and hooks are the interpreter's own again; a Spark session may have left others."""

    def state() -> tuple[object, ...]:
        return (*map(signal.getsignal, SIGNALS), sys.unraisablehook)

    others = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = state()
    yield
    assert state() == before
    signal.signal(signal.SIGINT, others)


class Raising:
    """Raises when it is made."""

    def __init__(self, error: BaseException) -> None:
        raise error


class Finalized:
    """Calls something when it is collected."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action

    def __del__(self) -> None:
        self._action()


FINALIZING = """
import signal, sys, time
from kfast._base.program import run_program

class Finalized:
    def __del__(self):
        signal.raise_signal(int(sys.argv[1]))

def body():
    Finalized()
    time.sleep(30)

sys.exit(run_program(body))
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_a_finalizer_is_raised_a_moment_later(number: signal.Signals) -> None:
    """Python drops what a finalizer raises."""
    command = [sys.executable, "-c", FINALIZING, str(int(number))]
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (SIGNALS[number], "", "")
    assert time.monotonic() - begun < 25, "it went on"


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_was_swallowed_decides_the_status(number: signal.Signals) -> None:
    def body() -> None:
        with contextlib.suppress(BaseException):
            signal.raise_signal(number)

    assert run_program(body) == SIGNALS[number]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_a_deallocator_in_c(number: signal.Signals) -> None:
    """As while confluent-kafka's producer goes: the next call seems to have failed with it."""

    def body() -> None:
        try:
            signal.raise_signal(number)
        except BaseException as error:
            raise SystemError("<function f> returned a result with an exception set") from error

    assert run_program(body) == SIGNALS[number]
    with pytest.raises(SystemError, match="something else"):
        run_program(lambda: Raising(SystemError("something else")))


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_class_is_made(number: signal.Signals) -> None:
    """As while modules are imported: Python 3.11 gives the exception another class."""

    class Member:
        def __set_name__(self, owner: type, name: str) -> None:
            signal.raise_signal(number)

    def body() -> None:
        type("Owner", (), {"member": Member()})

    assert run_program(body) == SIGNALS[number]
    with pytest.raises(RuntimeError, match="something else"):
        run_program(lambda: Raising(RuntimeError("something else")))


def test_an_error_that_ctrl_c_became(capsys: pytest.CaptureFixture[str]) -> None:
    def body() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise KafkaError("it was interrupted") from error

    assert run_program(body) == 130
    assert capsys.readouterr().err == "it was interrupted\n"


def test_other_exceptions_of_finalizers_are_reported_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: reported.append(what.exc_value))
    assert run_program(lambda: Finalized(lambda: int("x"))) == 0
    (error,) = reported
    assert isinstance(error, ValueError)


def test_who_ignores_ctrl_c_goes_on() -> None:
    """As shells have it for programs in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run_program(lambda: signal.raise_signal(signal.SIGINT)) == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
