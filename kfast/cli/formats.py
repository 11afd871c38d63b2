"""Text formats of ``kfast read``: JSON lines, JSON, CSV, TSV, raw values.

Each turns a batch of records into bytes that end with a whole record; all are UTF-8. A value that
is not of its kind never comes here: deserializers have refused, nulled or skipped it. ``auto`` is
text where it is UTF-8, so that in JSON a string is always text and an object always binary.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import kfast
from kfast.errors import ConfigurationError
from kfast.records.table_text import UNSAFE, cell_text, shown, text_table

COLUMNS: Final = (
    *("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"),
)
DEFAULT_COLUMNS: Final = tuple(name for name in COLUMNS if name != "timestamp_type")

_TYPES: Final = {0: "CreateTime", 1: "LogAppendTime"}
_NO_TIME: Final = -1
_WHITE_SPACE: Final = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\n\r]+')


@dataclass(slots=True, frozen=True)
class TextOptions:
    """How records become text."""

    columns: tuple[str, ...] = DEFAULT_COLUMNS
    key: str = "auto"
    value: str = "auto"
    time: str = "iso"
    """``iso`` or ``ms``."""
    delimiter: bytes = b"\n"
    """Behind each value of ``raw``."""
    is_terminal: bool = False
    """Whether what a terminal would act on is escaped."""


class TextFormat(ABC):
    """The records of a read as text; ``begin``, ``batch`` and ``end`` give its parts in order."""

    def __init__(self, options: TextOptions) -> None:
        self._options = options

    def begin(self) -> bytes:
        """Return what comes before the records."""
        return b""

    @abstractmethod
    def batch(self, batch: kfast.PartitionRecords) -> bytes:
        """Return the text of some records."""

    def end(self) -> bytes:
        """Return what comes behind them, also when a read is interrupted."""
        return b""

    def _rows(self, batch: kfast.PartitionRecords, binary: _Binary) -> Iterator[tuple[Any, ...]]:
        columns = [_cells(batch, name, self._options, binary) for name in self._options.columns]
        return zip(*columns, strict=True) if columns else iter(())


class JsonLines(TextFormat):
    """One JSON object (RFC 8259) per record and line."""

    def batch(self, batch: kfast.PartitionRecords) -> bytes:
        """Return lines."""
        return "".join(f"{row}\n" for row in self._objects(batch)).encode()

    def _objects(self, batch: kfast.PartitionRecords) -> Iterator[str]:
        names = [f"{json.dumps(name)}:" for name in self._options.columns]
        raw = {
            name
            for name in ("key", "value")
            if getattr(self._options, name) == "json" and name in self._options.columns
        }
        is_json = [name in raw for name in self._options.columns]
        escape = _escaped_json if self._options.is_terminal else str
        for row in self._rows(batch, _binary_object):
            cells = (
                name + (cell if copied and cell is not None else _encode(cell))
                for name, cell, copied in zip(names, row, is_json, strict=True)
            )
            yield escape("{" + ",".join(cells) + "}")


class JsonArray(JsonLines):
    """One JSON array of all records; it is one also after an interrupt or an error."""

    def __init__(self, options: TextOptions) -> None:
        super().__init__(options)
        self._separator = "\n"

    def begin(self) -> bytes:
        """Return the opening bracket."""
        return b"["

    def batch(self, batch: kfast.PartitionRecords) -> bytes:
        """Return objects, each behind what separates it from the one before."""
        parts = []
        for row in self._objects(batch):
            parts += [self._separator, row]
            self._separator = ",\n"
        return "".join(parts).encode()

    def end(self) -> bytes:
        """Return the closing bracket."""
        return b"]\n" if self._separator == "\n" else b"\n]\n"


class Csv(TextFormat):
    """A heading, then RFC 4180 with ``\\n``: null is an empty field, an empty text is ``""``."""

    _separator = ","

    def begin(self) -> bytes:
        """Return the heading."""
        return (self._separator.join(self._options.columns) + "\n").encode()

    def batch(self, batch: kfast.PartitionRecords) -> bytes:
        """Return lines."""
        lines = (self._separator.join(map(self._field, row)) for row in self._rows(batch, _base64))
        return "".join(f"{self._shown(line)}\n" for line in lines).encode()

    def _field(self, cell: Any) -> str:
        if cell is None:
            return ""
        text = _cell_text(cell)
        if not text or any(mark in text for mark in ',"\r\n'):
            return '"' + text.replace('"', '""') + '"'
        return text

    def _shown(self, line: str) -> str:
        return shown(line, keep="\n\t") if self._options.is_terminal else line


class Tsv(Csv):
    """A heading, then the text of PostgreSQL's COPY: tabs, null is ``\\N``."""

    _separator = "\t"
    _ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})

    def _field(self, cell: Any) -> str:
        return "\\N" if cell is None else _cell_text(cell).translate(self._ESCAPES)


class Raw(TextFormat):
    """The bytes of each value and a delimiter; with ``--columns key,value`` a tab between."""

    def batch(self, batch: kfast.PartitionRecords) -> bytes:
        """Return values."""
        columns = [
            [value or b"" for value in getattr(batch, f"{name}s").to_list()]
            for name in ("key", "value")
            if name in self._options.columns
        ]
        delimiter = self._options.delimiter
        data = b"".join(b"\t".join(row) + delimiter for row in zip(*columns, strict=True))
        if not self._options.is_terminal:
            return data
        return shown(data.decode("utf-8", "backslashreplace"), keep="\n\t").encode()


class Table(TextFormat):
    """Columns beside each other; rows are kept until the end, when their widths are known."""

    def __init__(self, options: TextOptions) -> None:
        super().__init__(options)
        self._table: list[list[str]] = []

    def batch(self, batch: kfast.PartitionRecords) -> bytes:
        """Return nothing."""
        self._table += (
            [self._cell(each) for each in row] for row in self._rows(batch, lambda value: value)
        )
        return b""

    def end(self) -> bytes:
        """Return the table."""
        columns = self._options.columns
        right = [name in {"partition", "offset"} for name in columns]
        width = None if self._options.is_terminal else sys.maxsize
        return (text_table(columns, self._table, right=right, width=width) + "\n").encode()

    @staticmethod
    def _cell(cell: Any) -> str:
        return cell_text(_encode(cell) if isinstance(cell, list) else cell)


TEXT_FORMATS: Final[Mapping[str, Callable[[TextOptions], TextFormat]]] = {
    "jsonl": JsonLines,
    "json": JsonArray,
    "csv": Csv,
    "tsv": Tsv,
    "raw": Raw,
    "table": Table,
}

# --- keys and values ------------------------------------------------------------------------------


def compact_json(raw: bytes) -> str:
    """Return JSON (RFC 8259) as it came, without white space between its parts.

    Numbers keep their digits, objects the order of their keys and duplicates, strings their
    escapes. Raises ValueError for anything else, such as NaN, a byte order mark or text behind it.
    """
    text = raw.decode()
    try:
        json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return _WHITE_SPACE.sub(lambda found: found[1] or "", text)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


KINDS: Final[Mapping[str, Any]] = {
    "auto": None,
    "text": kfast.Utf8(),
    "bytes": None,
    "base64": None,
    "hex": None,
    "json": compact_json,
    "int32": kfast.Int32(),
    "int64": kfast.Int64(),
    "float32": kfast.Float32(),
    "float64": kfast.Float64(),
    "uuid": kfast.Uuid(),
}
"""Kinds of keys and values, and what deserializes them."""


def deserializer(kind: str, chosen: str) -> Any:
    """Return what makes a column of a kind for a format: ``auto`` is text in CSV and TSV."""
    if chosen == "raw":
        return None
    return KINDS["text" if kind == "auto" and chosen in {"csv", "tsv"} else kind]


# --- cells ----------------------------------------------------------------------------------------

_Binary = Callable[[bytes], Any]


def _cells(
    batch: kfast.PartitionRecords, name: str, options: TextOptions, binary: _Binary
) -> Iterable[Any]:
    if name in {"topic", "partition"}:
        return itertools.repeat(getattr(batch, name), len(batch))
    if name == "offset":
        return list(batch.offsets.tolist())
    if name == "timestamp":
        return _times(batch, options.time)
    if name == "timestamp_type":
        return [_TYPES.get(kind) for kind in batch.timestamp_types.tolist()]
    if name == "headers":
        return [
            [[key, _auto(value, _binary_object)] for key, value in headers]
            for headers in batch.headers
        ]
    column = batch.keys if name == "key" else batch.values
    return _values(column, getattr(options, name), binary)


def _times(batch: kfast.PartitionRecords, form: str) -> list[Any]:
    numbers = batch.timestamps.tolist()
    if form == "ms":
        return [None if number == _NO_TIME else number for number in numbers]
    texts = np.datetime_as_string(batch.datetimes, unit="ms", timezone="UTC").tolist()
    return [
        None if number == _NO_TIME else text for number, text in zip(numbers, texts, strict=True)
    ]


def _values(column: Any, kind: str, binary: _Binary) -> list[Any]:
    values = column.tolist() if isinstance(column, np.ndarray) else column.to_list()
    converters: dict[str, Callable[[Any], Any]] = {
        "auto": lambda value: _auto(value, binary),
        "bytes": binary,
        "base64": _base64,
        "hex": bytes.hex,
        "float32": _float32,
        "float64": _float64,
        "uuid": str,
    }
    if kind not in converters:
        return list(values)
    convert = converters[kind]
    return [None if value is None else convert(value) for value in values]


def _auto(value: Any, binary: _Binary) -> Any:
    if not isinstance(value, bytes):  # deserialized as text, or null
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return binary(value)


def _float64(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class _Digits(float):
    """A float that is written with the digits of its own width."""

    def __repr__(self) -> str:
        return str(np.float32(self))

    __str__ = __repr__


def _float32(value: float) -> Any:
    return _Digits(value) if math.isfinite(value) else _float64(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _binary_object(value: bytes) -> dict[str, str]:
    return {"base64": _base64(value)}


def _cell_text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    return _encode(cell) if isinstance(cell, list) else str(cell)


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _encode(cell: Any) -> str:
    return str(cell) if isinstance(cell, _Digits) else _encoder.encode(cell)


# --- terminals ------------------------------------------------------------------------------------


def _escaped_json(text: str) -> str:
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def check_columns(wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of ``--columns``, all of which exist."""
    for name in wanted:
        if name not in COLUMNS:
            near = kfast.errors.did_you_mean(name, COLUMNS)
            raise ConfigurationError(
                f'--columns: no column "{name}"',
                hint=f'did you mean "{near}"?' if near else f"columns are {', '.join(COLUMNS)}",
            )
    return tuple(wanted)
