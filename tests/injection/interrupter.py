"""Interrupter: makes calls in which the handler of a signal raises, and judges what comes out.

Owns the handler, the choice of places and the findings of one test. Main thread only.

Places are chosen at random, with the seed in the report (``KFAST_INJECTION_SEED`` repeats it);
``KFAST_INJECTION=all`` takes all of them, ``make soak`` nearly all, and
``KFAST_INJECTION_AT=polling.py:93`` those whose text contains this.
"""

from __future__ import annotations

import dis
import gc
import os
import random
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import dropwhile
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import kfast
from tests.injection.building import injector_class
from tests.soaking import soaking

IS_COMPLETE: Final = os.environ.get("KFAST_INJECTION", "") == "all"
WANTED_TEXT: Final = os.environ.get("KFAST_INJECTION_AT", "")
SEED: Final = int(os.environ.get("KFAST_INJECTION_SEED") or random.randrange(1 << 32))

KFAST: Final = f"{Path(kfast.__file__).resolve().parent}{os.sep}"
TESTS: Final = f"{Path(__file__).resolve().parents[1]}{os.sep}"

MOST_PASSES: Final = 3
"""Of a loop: how often the same place is tried at most, at its first passes."""
MOST_FINDINGS: Final = 100 if IS_COMPLETE else 12
"""After so many a test ends."""

_CALLS: Final = {"CALL", "CALL_KW", "CALL_FUNCTION_EX"}
_JUMPS: Final = "JUMP_BACKWARD"

CTRL_C: Final = "KeyboardInterrupt"
KINDS: Final[dict[str, Callable[[], BaseException]]] = {
    "TimeoutError": lambda: TimeoutError("raised by the handler of the test"),
    "SystemExit": lambda: SystemExit(3),
    CTRL_C: KeyboardInterrupt,
}
"""What handlers raise: a time limit, ``sys.exit``, and Ctrl-C with Python's own handler."""
OWN_KINDS: Final = ("TimeoutError", "SystemExit")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a signal arrives, once the place was passed ``skipped`` times."""

    number: int
    label: str
    skipped: int

    def __str__(self) -> str:
        return f"{self.label} [pass {self.skipped + 1}]" if self.skipped else self.label


@dataclass(slots=True)
class Interruption:
    """The outcome of one call."""

    place: Place
    is_sent: bool
    error: BaseException | None
    is_in_callback: bool
    """Whether it was raised in a callback of the user's."""
    is_users_error: bool
    """Whether it cannot be told from an exception of the user's function that was called."""


@dataclass(slots=True)
class Findings:
    """What went wrong, by kind, with the places."""

    tried: int = 0
    found: list[tuple[str, Place, str]] = field(default_factory=list)

    def add(self, kind: str, place: Place, detail: str = "") -> None:
        """Note that something went wrong after an interruption at a place."""
        self.found.append((kind, place, detail))

    @property
    def is_enough(self) -> bool:
        """Whether more of them would only take time."""
        return len(self.found) >= MOST_FINDINGS

    def check(self) -> None:
        """Fail with all findings, those of one kind together."""
        assert not self.found, self._report()

    def _report(self) -> str:
        counts = Counter(kind for kind, _, _ in self.found)
        lines = [
            f"{len(self.found)} findings at {self.tried} places (KFAST_INJECTION_SEED={SEED}): "
            + ", ".join(f"{kind} {count}" for kind, count in counts.most_common())
        ]
        for kind, _ in counts.most_common():
            here = [(place, detail) for each, place, detail in self.found if each == kind]
            lines += [f"{kind}:"]
            lines += [f"  {place}: {detail}" for place, detail in here[:MOST_FINDINGS]]
        return "\n".join(lines)


class Interrupter:
    """Interrupts calls by one kind of exception.

    Parameters
    ----------
    kind : str
        One of ``KINDS``.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._is_ctrl_c = kind == CTRL_C
        self._number = signal.SIGINT if self._is_ctrl_c else signal.SIGUSR1
        self._injector = injector_class()(self._number, looks_for_signals, label_of)
        self._error: BaseException | None = None
        self._is_in_callback = self._is_by_callback = self._is_in_finalizer = False
        self._random = random.Random(SEED)
        self.callback_codes: set[CodeType] = set()
        """Of the functions that call the user's."""
        self.findings = Findings()

    @contextmanager
    def installed(self) -> Iterator[Interrupter]:
        """Have the handler of this kind installed."""
        handler = signal.default_int_handler if self._is_ctrl_c else self._handle
        previous = signal.signal(self._number, handler)
        try:
            yield self
        finally:
            signal.signal(self._number, previous)

    def note_callback(self) -> None:
        """Note which function of kfast has called the callback that calls this."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.startswith(KFAST):
            frame = frame.f_back
        if frame is not None:
            self.callback_codes.add(frame.f_code)

    def forget(self) -> None:
        """Forget the last exception, and so the objects of its frames."""
        self._error = None

    def record(self, call: Callable[[], object]) -> Counter[int]:
        """Make a call without a signal; return how often it passed which places."""
        self._injector.run(call)
        return Counter(self._injector.passes)

    def places(self, passes: Counter[int], suite: int, soak: int | None = None) -> list[Place]:
        """Return places to try among those that were passed.

        ``suite`` of them in the suite, ``soak`` under ``make soak``; None is all.
        """
        labels = self._injector.labels
        every = [
            Place(number, labels[number], skipped)
            for number, count in passes.items()
            for skipped in range(min(count, MOST_PASSES))
            if WANTED_TEXT in labels[number]
        ]
        if IS_COMPLETE or WANTED_TEXT:
            return every
        most = len(every) if soak is None else min(soak, len(every))
        count = min(soaking(suite, most), len(every))
        chosen = self._random.sample(range(len(every)), count)
        return [every[i] for i in sorted(chosen)]

    def interrupt(self, call: Callable[[], object], place: Place) -> Interruption:
        """Make a call with a signal at a place; what comes out is checked and returned."""
        self._error = None if self._is_ctrl_c else KINDS[self._kind]()
        self._is_in_callback = self._is_by_callback = self._is_in_finalizer = False
        error: BaseException | None = None
        gc.disable()  # what a handler raises in a callback of the collector is lost
        hook, sys.unraisablehook = sys.unraisablehook, self._note_unraisable
        try:
            self._injector.run(call, place.number, place.skipped)
            self._injector.flush()
        except BaseException as raised:
            error = raised
        finally:
            gc.enable()
            sys.unraisablehook = hook
        if self._is_ctrl_c and error is not None:
            frames = traceback.walk_tb(error.__traceback__)
            self._is_in_callback = is_in_callback([each.f_code.co_filename for each, _ in frames])
        is_users_error = self._is_by_callback and isinstance(self._error, Exception)
        outcome = Interruption(
            place, self._injector.is_sent, error, self._is_in_callback, is_users_error
        )
        if outcome.is_sent:
            self.findings.tried += 1
            self._judge(outcome)
        elif error is not None:
            self.findings.add("an error without a signal", place, repr(error))
        return outcome

    def _judge(self, outcome: Interruption) -> None:
        """Note it if anything else than the handler's exception has come out."""
        error = outcome.error
        if error is not None and error is self._error:
            return
        if self._is_ctrl_c and type(error) is KeyboardInterrupt:
            return
        if outcome.is_users_error or (error is None and self._is_in_finalizer):
            return
        if error is None:
            self.findings.add("the exception was swallowed", outcome.place)
        else:
            text = str(error).splitlines()[0] if str(error) else ""
            detail = f"{type(error).__name__}: {text}"
            self.findings.add("another exception came out", outcome.place, detail)

    def _note_unraisable(self, unraisable: object) -> None:
        """Note that the handler raised in a finalizer, where Python loses what is raised."""
        error = getattr(unraisable, "exc_value", None)
        self._is_in_finalizer |= error is self._error or isinstance(error, KeyboardInterrupt)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        assert frame is not None
        files: list[str] = []
        each: FrameType | None = frame
        while each is not None:
            files.insert(0, each.f_code.co_filename)
            each = each.f_back
        self._is_in_callback = is_in_callback(files)
        self._is_by_callback = self._is_in_callback or frame.f_code in self.callback_codes
        assert self._error is not None
        raise self._error


def is_in_callback(files: list[str]) -> bool:
    """Return whether, of the files of frames from the outermost on, a test's is behind kfast's."""
    after_kfast = dropwhile(lambda file: not file.startswith(KFAST), files)
    return any(file.startswith(TESTS) for file in after_kfast)


def looks_for_signals(code: CodeType) -> bytes:
    """Return 2 for each instruction that calls and 1 for each that jumps back, 0 otherwise."""
    table = bytearray(len(code.co_code))
    for instruction in dis.get_instructions(code):
        if instruction.opname in _CALLS:
            table[instruction.offset] = 2
        elif _JUMPS in instruction.opname:
            table[instruction.offset] = 1
    return bytes(table)


def label_of(frame: FrameType) -> str:
    """Return file, line and function of a place, and of the functions of kfast that led to it."""
    parts: list[str] = []
    each: FrameType | None = frame
    while each is not None and len(parts) < 4:
        code = each.f_code
        if not parts or code.co_filename.startswith(KFAST):
            name = code.co_filename.rpartition("/")[2]
            parts.append(f"{name}:{each.f_lineno or code.co_firstlineno} {code.co_name}")
        each = each.f_back
    return " < ".join(parts)
