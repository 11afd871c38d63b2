"""Records as a small table: of text for ``repr`` and terminals, of HTML for notebooks.

What comes out of a topic may be hostile: control characters and those that reorder text are shown
as escapes, cells are cut, HTML is escaped. Widths are those of a terminal, where East Asian
characters take two columns. Any thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

CELL_WIDTH: Final = 32
"""Most columns that one cell takes."""
ELLIPSIS: Final = "…"
_GAP: Final = "  "
_VALUES: Final = 5
_VALUE_WIDTH: Final = 16
_LEAST_WIDTH: Final = 6
"""To which a column of text is cut before the table becomes wider than the terminal."""
_TIMES: Final = frozenset({"timestamp", "newest"})
"""Headings of columns that are cut when no other can be: a part of a time is of no use."""

UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What a terminal acts on, what reorders text, and surrogates, which no encoding takes."""

Rows = Sequence[Sequence[str]]


def shown(text: str, keep: str = "") -> str:
    """Return text with escapes for what a terminal acts on, but for some characters to keep."""

    def escape(match: re.Match[str]) -> str:
        code = ord(match[0])
        if match[0] in keep:
            return match[0]
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return UNSAFE.sub(escape, text)


def cell_text(value: Any, width: int = CELL_WIDTH) -> str:
    """Return a key, a value or a number as the text of a cell."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return _bytes_text(value, width)
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception as error:
        text = f"<{type(value).__name__}: {type(error).__name__}>"
    return cut(shown(text[: 4 * width]), width)


def _bytes_text(value: bytes, width: int) -> str:
    """Return UTF-8 as text, anything else as a bytes literal."""
    start = value[: 4 * width]
    for end in range(len(start), max(len(start) - 4, -1), -1):  # a character may be cut
        try:
            text = start[:end].decode()
        except UnicodeDecodeError:
            if len(start) == len(value):
                break
            continue
        if "\x00" in text:
            break
        return cut(shown(text), width)
    return cut('b"' + repr(start)[2:-1].replace('"', '\\"') + '"', width)


def terminal_width() -> int:
    """Return the columns of the terminal, 80 if there is none."""
    import shutil  # noqa: PLC0415 - imports what compresses archives

    return shutil.get_terminal_size((80, 24)).columns


def width_of(text: str) -> int:
    """Return the columns of a terminal that text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # noqa: PLC0415 - few texts need it

    return sum(
        0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1
        for character in text
    )


def cut(text: str, width: int) -> str:
    """Return text in at most so many columns, with an ellipsis if something is left out."""
    if width_of(text) <= width:
        return text
    used = 0
    for end, character in enumerate(text):
        used += width_of(character)
        if used > width - 1:
            return text[:end] + ELLIPSIS
    return text


def text_table(
    headings: Sequence[str], rows: Rows, *, right: Sequence[bool], width: int | None = None
) -> str:
    """Return lines: headings, then rows; columns with ``right`` are aligned there.

    The widest columns that are not, times last, are cut until a line has at most ``width`` columns;
    None is the width of the terminal, 80 if there is none.
    """
    most = terminal_width() if width is None else width
    table = [[*headings], *([*row] for row in rows)]
    widths = [max(width_of(row[i]) for row in table) for i in range(len(headings))]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > most:
        text = [i for i, is_right in enumerate(right) if not is_right and widths[i] > _LEAST_WIDTH]
        text = [i for i in text if headings[i] not in _TIMES] or text
        if not text:
            break
        widths[max(text, key=widths.__getitem__)] -= 1
    lines = []
    for row in table:
        cells = []
        for text_of, is_right, wide in zip(row, right, widths, strict=True):
            cell = cut(text_of, wide)
            fill = " " * (wide - width_of(cell))
            cells.append(fill + cell if is_right else cell + fill)
        lines.append(_GAP.join(cells).rstrip())
    return "\n".join(lines)


def html_table(caption: str, headings: Sequence[str], rows: Rows) -> str:
    """Return a ``<table>`` without style or script; all text is escaped."""
    import html  # noqa: PLC0415 - has a large table

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    parts = [f"<caption>{html.escape(caption)}</caption>"] if caption else []
    parts += [line("th", headings), *(line("td", row) for row in rows)]
    return "<table>" + "".join(parts) + "</table>"


def values_text(values: Iterable[Any]) -> str:
    """Return the first values of a column in one line."""
    first = [cell_text(value, _VALUE_WIDTH) for value in islice(values, _VALUES + 1)]
    return ", ".join([*first[:_VALUES], *([ELLIPSIS] if len(first) > _VALUES else [])])


def number_text(number: int) -> str:
    """Return a whole number in groups of three digits: ``1 665 415``."""
    return f"{number:,}".replace(",", " ")


def size_text(nbytes: int) -> str:
    """Return a size with its unit: ``182 MB``."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= size:
            amount = nbytes / size
            return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"
    return f"{nbytes} B"
