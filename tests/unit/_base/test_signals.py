"""Exceptions of signal handlers are told apart from those of other code."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

import pytest

from kfast._base.signals import is_of_signal_handler


def handle(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("the handler's")


def handle_with(text: str, number: int, frame: FrameType | None) -> None:
    raise TimeoutError(text)


class Handler:
    def method(self, number: int, frame: FrameType | None) -> None:
        raise TimeoutError("the method's")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise TimeoutError("the object's")


@contextmanager
def installed(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    previous = signal.signal(signal.SIGUSR2, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR2, previous)


def users_code() -> None:
    signal.raise_signal(signal.SIGUSR2)


@pytest.mark.parametrize(
    "handler",
    [
        handle,
        partial(partial(handle_with, "x")),
        Handler().method,
        Handler(),
    ],
)
def test_what_a_handler_raises_is_recognized(
    handler: Callable[[int, FrameType | None], object],
) -> None:
    """I-01: whatever kind of callable it is, and whatever code it came out of."""
    with installed(handler):
        with pytest.raises(TimeoutError) as caught:
            users_code()
        assert is_of_signal_handler(caught.value)


def test_what_other_code_raises_is_not_a_handlers() -> None:
    """I-01: also where one is installed."""
    with installed(handle):
        with pytest.raises(ValueError, match="not a number") as caught:
            int("not a number")
        assert not is_of_signal_handler(caught.value)
    assert not is_of_signal_handler(ValueError("never raised"))
