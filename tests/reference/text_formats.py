"""The oracle of the text formats: records as text, slowly and in plain sight.

Written from what the formats are, with Python's own ``json``, ``base64`` and ``datetime``. A key
or value that is not of its kind raises `UndecodableError`.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from tests.reference.decoder import DecodedRecord

_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
_WHITE_SPACE = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\n\r]+')
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS = {
    "int32": ">i",
    "int64": ">q",
    "float32": ">f",
    "float64": ">d",
    "int32le": "<i",
    "int64le": "<q",
    "float32le": "<f",
    "float64le": "<d",
}


class UndecodableError(Exception):
    """A key or value is not of its kind."""


@dataclass(slots=True, frozen=True)
class Slice:
    """Records of one partition, and how they are to be written."""

    records: Sequence[DecodedRecord]
    topic: str = "t"
    partition: int = 3
    leader_epoch: int = -1
    columns: Sequence[str] = ()
    key: str = "auto"
    value: str = "auto"
    time: str = "iso"
    is_terminal: bool = False
    on_error: str = "fail"


class _Json(str):
    """A text that is JSON already."""

    __slots__ = ()


# --- cells ----------------------------------------------------------------------------------------


def compact_json(raw: bytes) -> str:
    """Return JSON as it came, without white space between its parts; ValueError for no JSON."""
    text = raw.decode()
    json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str)
    return _WHITE_SPACE.sub(lambda found: found[1] or "", text)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _number(kind: str, raw: bytes) -> Any:
    number = struct.unpack(_NUMBERS[kind], raw)[0]
    if isinstance(number, int):
        return _Json(number)
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    return _Json(repr(float(str(np.float32(number))) if kind.startswith("float32") else number))


def _value(kind: str, raw: bytes | None) -> Any:
    """Return a text, bytes, a `_Json` or None."""
    if raw is None:
        return None
    try:
        if kind in _NUMBERS:
            return _number(kind, raw)
        if kind == "uuid":
            return str(uuid.UUID(bytes=raw) if len(raw) == 16 else _uuid_of(raw.decode("ascii")))
        if kind == "json":
            return _Json(compact_json(raw))
        if kind == "text":
            return raw.decode()
    except (ValueError, struct.error) as error:
        raise UndecodableError(raw) from error
    if kind == "auto":
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw
    if kind == "base64":
        return base64.b64encode(raw).decode()
    return raw.hex() if kind == "hex" else raw


def _uuid_of(text: str) -> uuid.UUID:
    if [len(group) for group in text.split("-")] != [8, 4, 4, 4, 12]:
        raise ValueError(text)
    return uuid.UUID(text)


def time_text(ms: int) -> str:
    """Return ISO 8601 with milliseconds; years are those that ``datetime`` has."""
    moment = _EPOCH + timedelta(milliseconds=ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z".rjust(24, "0")


def _headers(record: DecodedRecord) -> list[Any]:
    return [
        [name.decode("utf-8", "replace"), _binary(_value("auto", value))]
        for name, value in record.headers
    ]


def _binary(cell: Any) -> Any:
    return {"base64": base64.b64encode(cell).decode()} if isinstance(cell, bytes) else cell


def _cells(text: Slice, record: DecodedRecord, default_kind: str = "auto") -> Iterable[Any]:
    for name in text.columns:
        if name in {"key", "value"}:
            kind = getattr(text, name)
            try:
                yield _value(default_kind if kind == "auto" else kind, getattr(record, name))
            except UndecodableError:
                if text.on_error != "null":
                    raise
                yield None
        elif name == "topic":
            yield text.topic
        elif name == "partition":
            yield _Json(text.partition)
        elif name == "offset":
            yield _Json(record.offset)
        elif name == "leader_epoch":
            yield None if text.leader_epoch < 0 else _Json(text.leader_epoch)
        elif name == "timestamp_type":
            yield _TYPES.get(record.timestamp_type)
        elif name == "headers":
            yield _headers(record)
        elif record.timestamp == -1:
            yield None
        else:
            yield _Json(record.timestamp) if text.time == "ms" else time_text(record.timestamp)


# --- formats --------------------------------------------------------------------------------------


def _encoded(cell: Any) -> str:
    if isinstance(cell, _Json):
        return cell
    return json.dumps(_binary(cell), ensure_ascii=False, separators=(",", ":"))


def _objects(text: Slice) -> Iterable[str]:
    for record in _kept(text):
        cells = zip(text.columns, _cells(text, record), strict=True)
        line = "{" + ",".join(f'"{name}":{_encoded(cell)}' for name, cell in cells) + "}"
        if text.is_terminal:
            line = _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
        yield line


def _kept(text: Slice, default_kind: str = "auto") -> Iterable[DecodedRecord]:
    for record in text.records:
        if text.on_error == "skip":
            try:
                [*_cells(text, record, default_kind)]
            except UndecodableError:
                continue
        yield record


def json_lines(text: Slice) -> bytes:
    """Return the text of ``jsonl``."""
    return "".join(f"{line}\n" for line in _objects(text)).encode()


def json_array(text: Slice) -> bytes:
    """Return the text of ``json``."""
    lines = [*_objects(text)]
    return ("[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n").encode()


def _plain(cell: Any) -> str:
    if isinstance(cell, bytes):
        return base64.b64encode(cell).decode()
    if isinstance(cell, list):
        # What a terminal acts on is escaped as in JSON before it is a cell.
        return json.dumps(cell, ensure_ascii=False, separators=(",", ":"))
    return str(cell)


def _shown(line: str, keep: str) -> str:
    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        if found[0] in keep:
            return found[0]
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _UNSAFE.sub(escape, line)


def _lines(text: Slice, separator: str, field: Callable[[Any], str]) -> bytes:
    lines = [separator.join(text.columns)]
    for record in _kept(text, "text"):
        cells = [
            _json_shown(cell) if text.is_terminal and isinstance(cell, list) else cell
            for cell in _cells(text, record, "text")
        ]
        line = separator.join(map(field, cells))
        lines.append(_shown(line, "\n\t") if text.is_terminal else line)
    return "".join(f"{line}\n" for line in lines).encode()


def _json_shown(cell: Any) -> str:
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", _plain(cell))


def csv(text: Slice) -> bytes:
    """Return the text of ``csv``."""

    def field(cell: Any) -> str:
        if cell is None:
            return ""
        plain = _plain(cell)
        if not plain or any(mark in plain for mark in ',"\r\n'):
            return '"' + plain.replace('"', '""') + '"'
        return plain

    return _lines(text, ",", field)


def tsv(text: Slice) -> bytes:
    """Return the text of ``tsv``."""
    escapes = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
    return _lines(
        text, "\t", lambda cell: "\\N" if cell is None else _plain(cell).translate(escapes)
    )


def raw(text: Slice, delimiter: bytes = b"\n") -> bytes:
    """Return the text of ``raw``."""
    data = b"".join(
        b"\t".join(getattr(record, name) or b"" for name in text.columns) + delimiter
        for record in text.records
    )
    if not text.is_terminal:
        return data
    return _shown(data.decode("utf-8", "backslashreplace"), "\n\t").encode()
