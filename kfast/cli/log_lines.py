"""The log of ``-v`` and ``-vv``: lines on standard error.

A module of its own, since `logging` is imported only where it is asked for.
"""

from __future__ import annotations

import logging
import sys

from kfast.cli.exits import shown_lines


def start(verbosity: int) -> None:
    """Log what the commands do (1), or everything (2)."""
    logging.basicConfig(level=logging.INFO if verbosity == 1 else logging.DEBUG)
    for handler in logging.root.handlers:
        handler.setFormatter(_Lines(is_terminal=sys.stderr.isatty()))


class _Lines(logging.Formatter):
    """Lines of the log; those on a terminal have escapes for what it acts on."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._is_terminal = is_terminal

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return shown_lines(text) if self._is_terminal else text
