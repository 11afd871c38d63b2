"""Log lines on standard error: the log of ``-v`` and ``-vv``, and warnings of some commands.

On a terminal a progress line may be drawn there: a log line takes its place, and the progress is
drawn again below it. Each is one write, so that no two are mixed.

A module of its own, since `logging` is imported only where it is asked for.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kfast.cli.exits import shown_lines
from kfast.cli.progress import CLEAR, can_draw


def start(verbosity: int) -> None:
    """Log what the commands do (1), or everything (2)."""
    logging.basicConfig(level=logging.INFO if verbosity == 1 else logging.DEBUG)
    for handler in logging.root.handlers:
        handler.setFormatter(_lines())


@contextmanager
def logged_warnings(name: str) -> Iterator[None]:
    """Log warnings of one logger meanwhile, and nothing else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_lines())
    handler.setLevel(logging.WARNING)
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _lines() -> _Lines:
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
