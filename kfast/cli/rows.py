"""The results of administrative commands: rows under names, as a table or as data.

One list of names is the heading of a table, of CSV and TSV, and the keys in JSON. On a terminal a
table fits its width and what a terminal acts on is shown as escapes, in every format; elsewhere
nothing is cut and bytes are as they are. In a table null is ``null`` and what is empty ``-``; CSV
has an empty field for null and ``""`` for the empty text, TSV has ``\\N`` for null.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from kfast.cli.options import Common, ResultFormat, Words
from kfast.cli.output import Output
from kfast.columns.table_text import UNSAFE, shown, text_table

FORMATS: Final = ("table", "json", "jsonl", "csv", "tsv")
JSON_FORMATS: Final = frozenset({"json", "jsonl"})

Cell = str | int | float | bool | None | Sequence[str | int]
Row = Sequence[Cell]

_STDOUT: Final = 1
_UNCUT: Final = 1 << 30
_QUOTED: Final = re.compile('[,"\r\n]')
_TSV: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_BOLD: Final = "\x1b[1m{}\x1b[0m"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Format(ResultFormat):
    json_formats = JSON_FORMATS


def format_option() -> click.Option:
    """Make the option of all administrative commands."""
    return _Format(
        ["format", "-f", "--format"],
        type=Words(FORMATS),
        default="table",
        help="how the result is printed (default table)",
    )


def write_rows(names: Sequence[str], rows: Iterable[Row], form: str) -> None:
    """Write rows to standard output; see the module."""
    write_text(rows_text(names, [*rows], form, is_terminal=os.isatty(_STDOUT)))


def write_object(value: Mapping[str, Any], form: str = "json") -> None:
    """Write one JSON object; ``jsonl`` in one line."""
    text = _json(value, 2 if form == "json" else None)
    write_text((_escaped(text) if os.isatty(_STDOUT) else text) + "\n")


def write_text(text: str) -> None:
    """Write text to standard output, as UTF-8 whatever the locale."""
    sys.stdout.flush()
    Output(_STDOUT, "standard output").write(text.encode(errors="backslashreplace"))


def write_lines(text: str, *, is_json: bool = False) -> None:
    """Write lines to standard output, on a terminal with escapes for what it acts on."""
    if os.isatty(_STDOUT):
        text = _escaped(text) if is_json else shown(text, keep="\t\n")
    write_text(f"{text}\n")


def write_note(text: str) -> None:
    """Write lines to standard error, on a terminal with escapes for what it acts on."""
    click.echo(shown(text, keep="\t\n") if sys.stderr.isatty() else text, err=True)


def rows_text(
    names: Sequence[str],
    rows: Sequence[Row],
    form: str,
    *,
    is_terminal: bool,
    width: int | None = None,
) -> str:
    """Return rows as text that ends with a newline; ``width`` is the terminal's if None."""
    if form == "table":
        return _table(names, rows, is_terminal, width)
    if form in JSON_FORMATS:
        objects = [_json(dict(zip(names, row, strict=True))) for row in rows]
        if is_terminal:
            objects = [_escaped(text) for text in objects]
        if form == "jsonl":
            return "".join(f"{text}\n" for text in objects)
        return "[" + ",\n".join(objects) + "]\n"
    field, separator = (csv_field, ",") if form == "csv" else (tsv_field, "\t")
    lines = [separator.join(names)]
    lines += [separator.join(field(_text(cell)) for cell in row) for row in rows]
    text = "".join(f"{line}\n" for line in lines)
    return shown(text, keep="\t\n") if is_terminal else text


def iso(ms: int | None) -> str | int | None:
    """Return a timestamp in ms since 1970 as text; one outside of the calendar stays a number."""
    if ms is None or ms < 0:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return ms
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"


def _table(names: Sequence[str], rows: Sequence[Row], is_terminal: bool, width: int | None) -> str:
    cells = [["null" if cell is None else _text(cell) or "-" for cell in row] for row in rows]
    if is_terminal:
        cells = [[shown(cell) for cell in row] for row in cells]
    right = [
        all(
            isinstance(row[i], int | float) and not isinstance(row[i], bool)
            for row in rows
            if row[i] is not None
        )
        for i in range(len(names))
    ]
    most = width if is_terminal else _UNCUT
    text = text_table(names, cells, right=right, width=most)
    if is_coloured(is_terminal):
        heading, newline, rest = text.partition("\n")
        text = _BOLD.format(heading) + newline + rest
    return text + "\n"


def is_coloured(is_terminal: bool) -> bool:
    """Return whether text has colours: as ``--color`` says, else on a terminal that has it."""
    ctx = click.get_current_context(silent=True)
    common = None if ctx is None else ctx.find_object(Common)
    if common is not None and common.color != "auto":
        return common.color == "always"
    environ = os.environ
    return (
        is_terminal
        and not environ.get("NO_COLOR")
        and environ.get("CLICOLOR") != "0"
        and environ.get("TERM") != "dumb"
    )


def _text(cell: Cell) -> str | None:
    if cell is None:
        return None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int | float):
        return str(cell)
    return ",".join(map(str, cell))


def _json(value: object, indent: int | None = None) -> str:
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(value, ensure_ascii=False, separators=separators, indent=indent)


def _escaped(text: str) -> str:
    """Return JSON without what a terminal acts on: the same JSON."""
    return UNSAFE.sub(
        lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text
    )


def escaped_json(text: str, *, is_terminal: bool) -> str:
    """Return a text as a JSON string, on a terminal without what it acts on."""
    quoted = _json(text)
    return _escaped(quoted) if is_terminal else quoted


def csv_field(cell: str | None) -> str:
    """Return a field of CSV: empty for null, in quotes where that is needed."""
    if cell is None:
        return ""
    if cell and not _QUOTED.search(cell):
        return cell
    return '"' + cell.replace('"', '""') + '"'


def tsv_field(cell: str | None) -> str:
    """Return a field of PostgreSQL's COPY text."""
    if cell is None:
        return "\\N"
    return "".join(_TSV.get(letter, letter) for letter in cell)
