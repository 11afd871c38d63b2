"""The oracle of typed values as text: JSON, or the plain text of a cell.

Values are as ``tests.unit.records.typed_samples.typed`` takes them: times, timestamps, dates and
durations are numbers of their unit, decimals have the digits of their scale, maps are lists of
pairs.
"""

from __future__ import annotations

import base64
import json
import math
import uuid
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np

from kfast.schemas.types import DataType, Kind, SchemaField
from tests.reference.text_formats import compact_json

_DIGITS = {"": 0, "s": 0, "ms": 3, "us": 6, "ns": 9}
_TIMES = {Kind.TIMESTAMP, Kind.DATE32, Kind.TIME32, Kind.TIME64}
_EPOCH = datetime(1970, 1, 1)
_DAY_S = 86_400


def json_text(field: SchemaField, value: Any) -> str:
    """Return a value as JSON."""
    if value is None:
        return "null"
    made = field.type
    kind = made.kind
    if kind is Kind.STRUCT:
        members = (
            f"{_quoted(child.name)}:{json_text(child, value[child.name])}" for child in made.fields
        )
        return f"{{{','.join(members)}}}"
    if kind is Kind.LIST:
        return f"[{','.join(json_text(made.item, item) for item in value)}]"
    if kind is Kind.MAP:
        key, inner = made.fields
        pairs = (f"{_key(key, name)}:{json_text(inner, item)}" for name, item in value)
        return f"{{{','.join(pairs)}}}"
    text = cell_text(field, value)
    assert text is not None
    if kind is Kind.RAW and made.is_json:
        return text
    if kind in _TIMES:
        return text if text.lstrip("-").isdecimal() else _quoted(text)
    if kind in {Kind.FLOAT32, Kind.FLOAT64}:
        return text if math.isfinite(value) else _quoted(text)
    if kind in {Kind.STRING, Kind.DICTIONARY, Kind.UUID, Kind.BINARY, Kind.FIXED_BINARY, Kind.RAW}:
        return _quoted(text)
    return text


def cell_text(field: SchemaField, value: Any) -> str | None:
    """Return a value as a cell has it; None for null."""
    if value is None:
        return None
    made = field.type
    kind = made.kind
    if kind in {Kind.STRUCT, Kind.LIST, Kind.MAP}:
        return json_text(field, value)
    if kind is Kind.BOOL:
        return "true" if value else "false"
    if kind in {Kind.FLOAT32, Kind.FLOAT64}:
        return _float(value, is_wide=kind is Kind.FLOAT64)
    if kind in {Kind.DECIMAL128, Kind.DECIMAL256}:
        return f"{value:f}"
    if kind in {Kind.STRING, Kind.DICTIONARY}:
        return str(value)
    if kind is Kind.UUID:
        return str(uuid.UUID(bytes=value) if isinstance(value, bytes) else value)
    if kind is Kind.RAW and made.is_json:
        return compact_json(value.encode() if isinstance(value, str) else value)
    if kind in {Kind.BINARY, Kind.FIXED_BINARY, Kind.RAW}:
        return base64.b64encode(value).decode()
    if kind is Kind.DATE32:
        return _date(value)
    if kind in _TIMES:
        return _time(made, value)
    return str(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _key(field: SchemaField, value: Any) -> str:
    text = json_text(field, value)
    return text if text.startswith('"') else _quoted(text)


def _float(value: float, *, is_wide: bool) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return repr(float(value) if is_wide else float(str(np.float32(value))))


def _date(days: int) -> str:
    if not -719_528 <= days <= 2_932_896:
        return str(days)
    if days < -719_162:  # the year 0, a leap year as 2000 is, which Python does not have
        return f"0000{date.fromordinal(days + 719_163 + 730_485).isoformat()[4:]}"
    return date.fromordinal(days + 719_163).isoformat()


def _clock(made: DataType, units: int) -> str:
    digits = _DIGITS[made.unit]
    seconds, fraction = divmod(units, 10**digits)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%H:%M:%S")
    return f"{text}.{fraction:0{digits}}" if digits else text


def _time(made: DataType, value: int) -> str:
    day = _DAY_S * 10 ** _DIGITS[made.unit]
    if made.kind is not Kind.TIMESTAMP:
        return _clock(made, value) if 0 <= value < day else str(value)
    days, units = divmod(value, day)
    text = _date(days)
    if text.lstrip("-").isdecimal():
        return str(value)
    return f"{text}T{_clock(made, units)}{'Z' if made.is_utc else ''}"
