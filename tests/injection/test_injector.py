"""The injector itself: its places are all there are, and none is behind a result."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from tests.injection.building import SignalInjector, injector_class
from tests.injection.interrupter import label_of, looks_for_signals


class Interrupted(Exception):
    """Raised by the handler."""


def raising(number: int, frame: FrameType | None) -> None:
    raise Interrupted


@pytest.fixture
def injector() -> Iterator[SignalInjector]:
    """Give an injector whose signal has a handler that raises."""
    previous = signal.signal(signal.SIGUSR1, raising)
    yield injector_class()(signal.SIGUSR1, looks_for_signals, label_of)
    signal.signal(signal.SIGUSR1, previous)


class Box:
    """Has what Python code calls without a call instruction."""

    def __init__(self) -> None:
        self.taken = False
        self.value: object = None

    @property
    def doubled(self) -> int:
        """Add twice."""
        return sum(number for number in (1, 2)) * 2

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *_: object) -> None:
        self.value = None

    def __eq__(self, other: object) -> bool:
        return id(self) == id(other)

    __hash__ = None  # type: ignore[assignment]

    def take(self) -> list[int]:
        """Return something in a step that nothing comes after."""
        numbers = list(range(3))
        self.taken = True
        return numbers


def numbers() -> Iterator[int]:
    try:
        yield 1
        yield len("ab")
    finally:
        str(3)


def everything() -> None:
    """Have each kind of place."""
    box = Box()
    with box:
        for number in numbers():
            if number == box.doubled:
                break
    sorted([2, 1], key=lambda each: -each)
    try:
        int("x")
    except ValueError as error:
        str(error)
    finally:
        repr(box == box)  # noqa: PLR0124 - calls __eq__
    at = 3
    while at:
        at -= 1
    [str(each) for each in (1, 2)]
    dict(**{"a": max(1, 2)})


def ways_out(run: Callable[[int], Any], count: int) -> set[tuple[str, ...]]:
    """Return where exceptions came from, for signals at so many moments."""
    ways = set()
    for moment in range(1, count + 1):
        try:
            run(moment)
        except Interrupted as error:
            frames = traceback.extract_tb(error.__traceback__)
            inner = [f"{each.name}:{each.lineno}:{each.colno}" for each in frames]
            if "everything" in "".join(inner):
                ways.add(tuple(inner[inner.index(next(i for i in inner if "everything" in i)) :]))
    return ways


def test_places_are_all_there_are(injector: SignalInjector) -> None:
    """I-14: a signal before any instruction is handled at one of the places."""
    injector.run(everything)
    places = [(place, skipped) for place, n in injector.passes.items() for skipped in range(n)]
    at_places = ways_out(lambda moment: injector.run(everything, *places[moment - 1]), len(places))
    at_instructions = ways_out(lambda moment: injector.run(everything, None, 0, moment), 1_000)
    assert not injector.is_sent, "there are more instructions"
    assert at_instructions == at_places
    assert len(at_places) > 25


def test_what_a_function_returns_is_assigned(injector: SignalInjector) -> None:
    """I-14: between the last call of a function and the assignment of its value is no place."""
    outcomes = set()
    for moment in range(1, 200):
        box = Box()

        def step() -> None:
            box.value = box.take()  # noqa: B023 - called at once

        try:
            injector.run(step, None, 0, moment)
            injector.flush()
        except Interrupted:
            pass
        outcomes.add((box.taken, box.value is not None))
    assert outcomes == {(False, False), (True, True)}
