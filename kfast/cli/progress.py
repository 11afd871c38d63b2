"""How far a read is, and what it was: lines on standard error.

On a terminal one line is drawn over and over, after half a second; elsewhere a plain line comes
every ten seconds, for the logs of containers. None is there once the command has ended.

The log of ``-v`` and ``-vv`` goes there too, and warnings of some commands. On a terminal a log
line takes the place of the progress line, which is drawn again below it. Each is one write, so that
no two are mixed.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kfast.cli.exits import shown_lines
from kfast.columns.table_text import cut, number_text, shown, size_text, terminal_width

if TYPE_CHECKING:
    from kfast.cli.reading import Reading

_FIRST_S: Final = 0.5
_DRAWN_S: Final = 0.1
_PLAIN_S: Final = 10.0
CLEAR: Final = "\r\x1b[K"
"""Begins a line in the place of the one that was drawn."""


def can_draw(fd: int) -> bool:
    """Return whether it is a terminal on which the cursor can be moved."""
    return os.isatty(fd) and os.environ.get("TERM") != "dumb"


@dataclass(slots=True)
class Counts:
    """What has been read so far."""

    records: int = 0
    nbytes: int = 0
    first_offset: int | None = None
    last_offset: int = -1
    partitions: int = 0
    nulled: int = 0
    skipped: int = 0


class Progress:
    """Reports a read. ``is_drawn``: on a terminal that the data does not go to."""

    def __init__(
        self,
        topics: str,
        reading: Reading,
        counts: Counts,
        *,
        is_drawn: bool,
        is_quiet: bool,
        is_verbose: bool,
        has_end: bool,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names = topics
        self._reading = reading
        self._counts = counts
        self._is_drawn = is_drawn
        self._is_quiet = is_quiet
        self._is_verbose = is_verbose
        self._has_end = has_end
        self._now = now
        self._begun = now()
        self._next = self._begun + (_FIRST_S if is_drawn else _PLAIN_S)
        self._is_shown = False
        self._last = (self._begun, 0)

    @property
    def _topics(self) -> str:
        return shown(self._names)

    def update(self) -> None:
        """Draw, if it is time."""
        now = self._now()
        if now < self._next or self._is_quiet:
            return
        text = self._line(now)
        if self._is_drawn:
            text = CLEAR + cut(text, terminal_width() - 1)
        else:
            text += "\n"
        sys.stderr.write(text)
        sys.stderr.flush()
        self._is_shown = True
        self._last = (now, self._counts.records)
        self._next = now + (_DRAWN_S if self._is_drawn else _PLAIN_S)

    def draw_soon(self) -> None:
        """Draw at the next update: the shell has written over the line meanwhile."""
        if self._is_drawn and self._is_shown:
            self._next = self._now()

    def clear(self) -> None:
        """Remove the line."""
        if self._is_shown and self._is_drawn:
            sys.stderr.write(CLEAR)
            sys.stderr.flush()

    def summary(self) -> str | None:
        """Return the last line of the command, if it is to have one."""
        was_long = self._is_shown and not self._is_drawn
        if self._is_quiet or not (self._is_verbose or was_long or sys.stderr.isatty()):
            return None
        counts = self._counts
        seconds = max(self._now() - self._begun, 1e-3)
        plural = "" if counts.records == 1 else "s"
        parts = [f"{number_text(counts.records)} record{plural}", size_text(counts.nbytes)]
        if counts.first_offset is not None:
            partitions = f"{counts.partitions} partition{'s' if counts.partitions != 1 else ''}"
            first, last = number_text(counts.first_offset), number_text(counts.last_offset)
            parts.append(f"offsets {first}\N{EN DASH}{last} ({partitions})")
        parts += [f"{seconds:.1f} s", f"{_amount(counts.records / seconds)}/s"]
        if counts.nulled:
            parts.append(f"{number_text(counts.nulled)} undecodable ones null")
        if counts.skipped:
            parts.append(f"{number_text(counts.skipped)} undecodable ones left out")
        return f"{self._topics}: {', '.join(parts)}"

    def _line(self, now: float) -> str:
        counts, reading = self._counts, self._reading
        seconds = max(now - self._begun, 1e-3)
        rate = counts.records / seconds
        if not self._has_end:
            since, before = self._last
            rate = (counts.records - before) / max(now - since, 1e-3)
            lag = "unknown" if reading.lag is None else number_text(reading.lag)
            state = f"lag {lag}" if reading.problem is None else shown(reading.problem)
            return (
                f"{self._topics}  {number_text(counts.records)} records  {_amount(rate)}/s  {state}"
            )
        done, total = reading.done, reading.total
        fraction = done / total if total else 1.0
        left = seconds * (1 - fraction) / fraction if fraction else 0.0
        return (
            f"{self._topics}  {100 * fraction:.0f} %  {_amount(done)} of {_amount(total)}  "
            f"{_amount(rate)}/s  {size_text(int(counts.nbytes / seconds))}/s  eta {left:.0f} s"
        )


def _amount(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f}"


# --- log lines ------------------------------------------------------------------------------------


def start_logging(verbosity: int) -> None:
    """Log what the commands do (1), or everything (2)."""
    logging.basicConfig(level=logging.INFO if verbosity == 1 else logging.DEBUG)
    for handler in logging.root.handlers:
        handler.setFormatter(_formatter())


@contextmanager
def logged_warnings(name: str) -> Iterator[None]:
    """Log warnings of one logger meanwhile, and nothing else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter())
    handler.setLevel(logging.WARNING)
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _formatter() -> _Lines:
    return _Lines(is_terminal=sys.stderr.isatty(), may_be_drawn=can_draw(2))


class _Lines(logging.Formatter):
    """Lines of the log; those on a terminal have escapes for what it acts on."""

    def __init__(self, *, is_terminal: bool, may_be_drawn: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._is_terminal = is_terminal
        self._before = CLEAR if is_terminal and may_be_drawn else ""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return self._before + shown_lines(text) if self._is_terminal else text
