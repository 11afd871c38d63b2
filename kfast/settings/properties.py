"""The text of Java ``.properties`` files, which files of librdkafka and kcat are too.

Pure. A line is ``key=value``, ``key: value`` or ``key value``; ``#`` and ``!`` begin a comment; a
backslash at the end continues a line, without the blanks that begin the next one; elsewhere it
stands before one of ``t n r f``, ``uXXXX`` or a character that has no meaning then. Blanks behind a
value are dropped, as Kafka's own clients do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_LINE_ENDS: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_KEY: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield key, value and line number (from 1) of every entry.

    Raises ``ValueError`` with the line number for an escape that is none; it shows no value.
    """
    for line, number in _logical_lines(text):
        match = _KEY.fullmatch(line)
        assert match is not None  # the pattern takes any line
        yield _unescaped(match[1], number), _unescaped(_trimmed(match[2]), number), number


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    begun: str | None = None
    first = 0
    for number, natural in enumerate(_LINE_ENDS.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if begun is None:
            if not line or line[0] in "#!":
                continue
            begun, first = "", number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            begun += line[:-1]
        else:
            yield begun + line, first
            begun = None
    if begun:
        yield begun, first


def _trimmed(value: str) -> str:
    """Return a value without the blanks at its end, but for one behind a backslash."""
    rest = value.rstrip(_BLANKS)
    is_escaped = (len(rest) - len(rest.rstrip("\\"))) % 2
    return value[: len(rest) + is_escaped]


def _unescaped(text: str, number: int) -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] == "u":
            if len(escape) == 1:
                raise ValueError(number, "\\u without four hexadecimal digits")
            return chr(int(escape[1:], 16))
        return _CONTROLS.get(escape, escape)

    made = _ESCAPE.sub(character, text)
    try:  # what is beyond U+FFFF is written as two halves
        return made.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError(number, "half of a character beyond U+FFFF") from None
