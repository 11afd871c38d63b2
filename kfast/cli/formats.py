r"""Text formats of ``kfast read``: each as operations of the text writer, compiled once.

All but ``raw`` and templates are UTF-8. ``auto`` is text where it is UTF-8, so that in JSON a
string is always text and an object always binary; in CSV and TSV a column has one encoding, text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kfast._base.spelling import did_you_mean
from kfast.cli.templates import Operation, literal, parse_template
from kfast.columns.table_text import cell_text, shown, terminal_width, text_table
from kfast.errors import ConfigurationError
from kfast.schemas.formats import TYPED_FORMATS

COLUMNS: Final = (
    *("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"),
    "leader_epoch",
)
DEFAULT_COLUMNS: Final = COLUMNS[:4] + COLUMNS[5:8]
KINDS: Final = (
    *("auto", "text", "bytes", "base64", "hex", "json"),
    *("int32", "int64", "float32", "float64", "uuid"),
)
"""Kinds of keys and values, as they are without a schema."""
ALL_KINDS: Final = (*KINDS, *(name for name in TYPED_FORMATS if name not in KINDS))
TABLE: Final = "table"

_RAW_COLUMNS: Final = frozenset({"key", "value"})
_NUMBERS: Final = frozenset({"partition", "offset", "leader_epoch"})
_JSON_FORMATS: Final = frozenset({"jsonl", "json"})
FLAT_FORMATS: Final = frozenset({*_JSON_FORMATS, "csv", "tsv", TABLE})
"""Formats in which the members of a struct may be columns of their own."""


@dataclass(slots=True, frozen=True)
class TypedColumn:
    """A key, a value or a member of one, of which the text writer is given the texts."""

    name: str
    is_number: bool = False


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
    typed: Mapping[str, Sequence[TypedColumn]] = field(default_factory=dict)
    """Of ``key`` and ``value`` those that have a schema: the columns in the place of each."""

    def typed_columns(self, name: str) -> list[tuple[int, TypedColumn]]:
        """Return the columns in the place of ``key`` or ``value``, with their numbers."""
        first = len(self.typed.get("key", ())) if name == "value" else 0
        return [*enumerate(self.typed[name], first)]


@dataclass(slots=True, frozen=True)
class TextFormat:
    """What is written for a record, before the first one and behind the last one."""

    operations: tuple[Operation, ...]
    begin: bytes = b""
    end: bytes = b""
    end_of_none: bytes = b""
    """In place of ``end`` where there was no record."""
    line_width: int = 0
    headings: tuple[TypedColumn, ...] = ()
    """Of a table."""

    @property
    def used(self) -> frozenset[int]:
        """The numbers of the typed columns that are written."""
        return frozenset(
            int(operation.text) for operation in self.operations if operation.field == "column"
        )


def has_json_texts(name: str) -> bool:
    """Return whether a format has typed values as JSON, rather than as cells."""
    return name in _JSON_FORMATS or "%" in name


def text_format(name: str, options: TextOptions) -> TextFormat:
    """Return a format by its name, or a template.

    Raises ConfigurationError for a template or columns that are not understood.
    """
    if "%" in name:
        typed = {name: options.typed_columns(name)[0][0] for name in options.typed}
        return TextFormat(
            (
                *parse_template(
                    name, key=options.key, value=options.value, null=options.null, typed=typed
                ),
            )
        )
    return _FORMATS[name](options)


def check_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of ``--columns``, all of which exist."""
    for name in names:
        if name not in COLUMNS:
            near = did_you_mean(name, COLUMNS)
            raise ConfigurationError(
                f'--columns: no column "{name}"',
                hint=f'did you mean "{near}"?' if near else f"columns are {', '.join(COLUMNS)}",
            )
    return tuple(names)


def _cell(name: str, options: TextOptions, style: str, null: bytes) -> Operation:
    """Return the operation that writes one column."""
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


def _cells_of(options: TextOptions, style: str, null: bytes) -> list[tuple[TypedColumn, Operation]]:
    """Return the columns with what writes each."""
    cells: list[tuple[TypedColumn, Operation]] = []
    for name in options.columns or DEFAULT_COLUMNS:
        if name in options.typed:
            cells += [
                (column, _typed_cell(number, style, null))
                for number, column in options.typed_columns(name)
            ]
        else:
            column = TypedColumn(name, name in _NUMBERS)
            cells.append((column, _cell(name, options, style, null)))
    return cells


def _typed_cell(number: int, style: str, null: bytes) -> Operation:
    form = "json" if style == "json" else "text"
    return Operation("column", form, style, b"%d" % number, null)


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
    for operation in operations:
        if operation.field == "literal" and merged and merged[-1].field == "literal":
            merged[-1] = literal(merged[-1].text + operation.text)
        else:
            merged.append(operation)
    return tuple(merged)


# --- the formats ----------------------------------------------------------------------------------


def _object(options: TextOptions) -> list[Operation]:
    parts = []
    for number, (column, cell) in enumerate(_cells_of(options, "json", b"null")):
        name = _spelled(column.name, "json", is_terminal=options.is_terminal)
        before = f"{',' if number else '{'}{name}:"
        parts += [literal(before.encode(errors="backslashreplace")), cell]
    return [*parts, literal("}")]


def _spelled(name: str, style: str, *, is_terminal: bool) -> str:
    """Return the name of a column; that of a member may have any characters."""
    if name in COLUMNS:
        return f'"{name}"' if style == "json" else name
    from kfast.cli.rows import csv_field, escaped_json, tsv_field  # noqa: PLC0415 - for members

    if style == "json":
        return escaped_json(name, is_terminal=is_terminal)
    field = csv_field(name) if style == "csv" else tsv_field(name)
    return shown(field) if is_terminal else field


def _json_lines(options: TextOptions) -> TextFormat:
    """One JSON object (RFC 8259) per record and line."""
    return TextFormat(_merged([*_object(options), literal("\n")]))


def _json(options: TextOptions) -> TextFormat:
    """One JSON array of all records; it is one also after an interrupt or an error."""
    separator = Operation("separator", text=b",\n", null=b"\n")
    return TextFormat((separator, *_object(options)), b"[", b"\n]\n", b"]\n")


def _csv(options: TextOptions) -> TextFormat:
    """A heading, then RFC 4180 with ``\\n``: null is an empty field, an empty text is ``""``."""
    return _with_heading(options, "csv", ",", b"")


def _with_heading(options: TextOptions, style: str, separator: str, null: bytes) -> TextFormat:
    columns = _cells_of(options, style, null)
    names = [_spelled(column.name, style, is_terminal=options.is_terminal) for column, _ in columns]
    return TextFormat(
        (*_joined([cell for _, cell in columns], b"", separator.encode(), b"\n"),),
        (separator.join(names) + "\n").encode(errors="backslashreplace"),
    )


def _tsv(options: TextOptions) -> TextFormat:
    """A heading, then the text of PostgreSQL's COPY: tabs, null is ``\\N``."""
    return _with_heading(options, "tsv", "\t", b"\\N")


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
            operation
            for name in ("key", "value")
            for operation in (
                literal(" "),
                _typed_cell(options.typed_columns(name)[0][0], "line", b"null")
                if name in options.typed
                else Operation(name, getattr(options, name), "line", null=b"null"),
            )
        ),
        Operation("end", text=b"\n"),
    ]
    width = terminal_width() if options.is_terminal else 0
    return TextFormat(tuple(parts), line_width=width)


def _cells(options: TextOptions) -> TextFormat:
    """The cells of a table, which `table` lays out: one JSON array per record and line."""
    columns = _cells_of(options, "json", b"null")
    cells = [_as_text(cell) for _, cell in columns]
    headings = tuple(column for column, _ in columns)
    return TextFormat((*_joined(cells, b"[", b",", b"]\n"),), headings=headings)


def _as_text(cell: Operation) -> Operation:
    """Return the operation that writes the JSON of a cell as a string."""
    if cell.form != "json":
        return cell
    return cell._replace(form="text" if cell.field == "column" else "json_text")


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


def table(lines: bytes, headings: Sequence[TypedColumn], *, is_terminal: bool) -> bytes:
    """Return the table of all records whose cells have been written."""
    import json  # noqa: PLC0415 - for tables only

    names = [shown(heading.name) if is_terminal else heading.name for heading in headings]
    rows = [
        [_table_cell(cell) for cell in json.loads(line, parse_float=str, parse_int=str)]
        for line in lines.splitlines()
    ]
    right = [heading.is_number for heading in headings]
    width = None if is_terminal else sys.maxsize
    return (text_table(names, rows, right=right, width=width) + "\n").encode()


def _table_cell(cell: Any) -> str:
    if isinstance(cell, dict):
        import base64  # noqa: PLC0415 - seldom needed

        return cell_text(base64.b64decode(cell["base64"]))
    if isinstance(cell, list):
        import json  # noqa: PLC0415 - for tables only

        return cell_text(json.dumps(cell, ensure_ascii=False, separators=(",", ":")))
    return cell_text(cell)
