r"""Text formats of ``kfast read``: each as operations of the text writer, compiled once.

All but ``raw`` and templates are UTF-8. ``auto`` is text where it is UTF-8, so that in JSON a
string is always text and an object always binary; in CSV and TSV a column has one encoding, text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kfast._spelling import did_you_mean
from kfast._values import dataclass
from kfast.cli.templates import Operation, literal, parse_template
from kfast.errors import ConfigurationError
from kfast.records.table_text import cell_text, terminal_width, text_table

COLUMNS: Final = (
    *("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"),
    "leader_epoch",
)
DEFAULT_COLUMNS: Final = COLUMNS[:4] + COLUMNS[5:8]
KINDS: Final = (
    *("auto", "text", "bytes", "base64", "hex", "json"),
    *("int32", "int64", "float32", "float64", "uuid"),
)
"""Kinds of keys and values."""
TABLE: Final = "table"

_RAW_COLUMNS: Final = frozenset({"key", "value"})


@dataclass(slots=True, frozen=True)
class TextOptions:
    """How records become text."""

    columns: tuple[str, ...] | None = None
    """None: those of the format."""
    key: str = "auto"
    value: str = "auto"
    time: str = "iso"
    """``iso`` or ``ms``."""
    delimiter: bytes = b"\n"
    """Behind each value of ``raw``."""
    null: str = ""
    """For a null in templates."""
    is_terminal: bool = False
    """Whether lines are cut to its width."""


@dataclass(slots=True, frozen=True)
class TextFormat:
    """What is written for a record, before the first one and behind the last one."""

    operations: tuple[Operation, ...]
    begin: bytes = b""
    end: bytes = b""
    end_of_none: bytes = b""
    """In place of ``end`` where there was no record."""
    line_width: int = 0


def text_format(name: str, options: TextOptions) -> TextFormat:
    """Return a format by its name, or a template.

    Raises ConfigurationError for a template or columns that are not understood.
    """
    if "%" in name:
        return TextFormat(
            (*parse_template(name, key=options.key, value=options.value, null=options.null),)
        )
    return _FORMATS[name](options)


def check_columns(wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of ``--columns``, all of which exist."""
    for name in wanted:
        if name not in COLUMNS:
            near = did_you_mean(name, COLUMNS)
            raise ConfigurationError(
                f'--columns: no column "{name}"',
                hint=f'did you mean "{near}"?' if near else f"columns are {', '.join(COLUMNS)}",
            )
    return tuple(wanted)


def _cell(name: str, options: TextOptions, style: str, null: bytes) -> Operation:
    """Return what writes one column."""
    if name == "topic":
        return Operation("topic", style=style)
    if name == "timestamp":
        return Operation("time", options.time, style, null=null)
    if name == "timestamp_type":
        return Operation("time_type", style=style, null=null)
    if name == "headers":
        return Operation("headers", style=style)
    if name in {"key", "value"}:
        kind = getattr(options, name)
        if kind == "auto" and style in {"csv", "tsv"}:
            kind = "text"
        return Operation(name, kind, style, null=null)
    return Operation(name, null=null)


def _joined(
    cells: Sequence[Operation], begin: bytes, between: bytes, end: bytes
) -> list[Operation]:
    parts = [literal(begin)] if begin else []
    for number, cell in enumerate(cells):
        parts += [literal(between), cell] if number else [cell]
    return [*parts, literal(end)]


def _merged(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return the operations with literals that follow each other as one."""
    merged: list[Operation] = []
    for each in operations:
        if each.field == "literal" and merged and merged[-1].field == "literal":
            merged[-1] = literal(merged[-1].text + each.text)
        else:
            merged.append(each)
    return tuple(merged)


# --- the formats ----------------------------------------------------------------------------------


def _object(options: TextOptions) -> list[Operation]:
    parts = []
    for number, name in enumerate(options.columns or DEFAULT_COLUMNS):
        parts.append(literal(f'{"," if number else "{"}"{name}":'))
        parts.append(_cell(name, options, "json", b"null"))
    return [*parts, literal("}")]


def _json_lines(options: TextOptions) -> TextFormat:
    """One JSON object (RFC 8259) per record and line."""
    return TextFormat(_merged([*_object(options), literal("\n")]))


def _json(options: TextOptions) -> TextFormat:
    """One JSON array of all records; it is one also after an interrupt or an error."""
    separator = Operation("separator", text=b",\n", null=b"\n")
    return TextFormat((separator, *_object(options)), b"[", b"\n]\n", b"]\n")


def _csv(options: TextOptions) -> TextFormat:
    """A heading, then RFC 4180 with ``\\n``: null is an empty field, an empty text is ``""``."""
    columns = options.columns or DEFAULT_COLUMNS
    cells = [_cell(name, options, "csv", b"") for name in columns]
    return TextFormat((*_joined(cells, b"", b",", b"\n"),), ",".join(columns).encode() + b"\n")


def _tsv(options: TextOptions) -> TextFormat:
    """A heading, then the text of PostgreSQL's COPY: tabs, null is ``\\N``."""
    columns = options.columns or DEFAULT_COLUMNS
    cells = [_cell(name, options, "tsv", b"\\N") for name in columns]
    return TextFormat((*_joined(cells, b"", b"\t", b"\n"),), "\t".join(columns).encode() + b"\n")


def _raw(options: TextOptions) -> TextFormat:
    """The bytes of each value and a delimiter; with ``--columns key,value`` a tab between."""
    columns = options.columns or ("value",)
    if not _RAW_COLUMNS.issuperset(columns):
        raise ConfigurationError(
            "raw has only key and value", hint="-c key,value, or another format"
        )
    cells = [Operation(name, "raw") for name in columns]
    return TextFormat((*_joined(cells, b"", b"\t", options.delimiter),))


def _line(options: TextOptions) -> TextFormat:
    """Time of day, partition, offset, key and value in one line, which a terminal shows whole."""
    parts = [
        Operation("time", "day", null=b"--:--:--.---"),
        literal(" "),
        Operation("partition"),
        literal(":"),
        Operation("offset"),
        *(
            each
            for name in ("key", "value")
            for each in (
                literal(" "),
                Operation(name, getattr(options, name), "line", null=b"null"),
            )
        ),
        Operation("end", text=b"\n"),
    ]
    width = terminal_width() if options.is_terminal else 0
    return TextFormat(tuple(parts), line_width=width)


def _cells(options: TextOptions) -> TextFormat:
    """The cells of a table, which `table` lays out: one JSON array per record and line."""
    cells = [_cell(name, options, "json", b"null") for name in options.columns or DEFAULT_COLUMNS]
    cells = [each._replace(form="json_text") if each.form == "json" else each for each in cells]
    return TextFormat((*_joined(cells, b"[", b",", b"]\n"),))


_FORMATS: Final[Mapping[str, Callable[[TextOptions], TextFormat]]] = {
    "jsonl": _json_lines,
    "json": _json,
    "csv": _csv,
    "tsv": _tsv,
    "raw": _raw,
    TABLE: _cells,
    "line": _line,
}
TEXT_FORMATS: Final = tuple(_FORMATS)


def table(lines: bytes, options: TextOptions) -> bytes:
    """Return the table of all records whose cells have been written."""
    import json  # noqa: PLC0415 - for tables only

    columns = options.columns or DEFAULT_COLUMNS
    rows = [
        [_table_cell(cell) for cell in json.loads(line, parse_float=str, parse_int=str)]
        for line in lines.splitlines()
    ]
    right = [name in {"partition", "offset", "leader_epoch"} for name in columns]
    width = None if options.is_terminal else sys.maxsize
    return (text_table(columns, rows, right=right, width=width) + "\n").encode()


def _table_cell(cell: Any) -> str:
    if isinstance(cell, dict):
        import base64  # noqa: PLC0415 - seldom needed

        return cell_text(base64.b64decode(cell["base64"]))
    if isinstance(cell, list):
        import json  # noqa: PLC0415 - for tables only

        return cell_text(json.dumps(cell, ensure_ascii=False, separators=(",", ":")))
    return cell_text(cell)
