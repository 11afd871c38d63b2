"""A schema of JSON documents from a sample of them: a tool for people, never used while reading.

What each path has had is collected first, and becomes a type afterwards:

=========================================  =====================================================
values                                     type
=========================================  =====================================================
integers                                   int64; past it ``decimal128(38, 0)`` up to 38 digits
numbers, or integers past 38 digits        float64
strings                                    string; with ``timestamps``, if all are RFC 3339,
                                           timestamp[us], or [ns] for finer digits
objects                                    struct; past ``max_fields`` keys ``map<string, T>``
arrays                                     list of the merged item
only nulls, no items, no keys, or kinds    raw
that do not go together
=========================================  =====================================================

All is nullable. Documents that are no JSON, or repeat a key, are counted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kfast.errors import DeserializationError
from kfast.schemas.names import NAMES, list_type, map_type, struct_type
from kfast.schemas.refusals import MAX_NESTING
from kfast.schemas.types import DataType, Kind, SchemaField

MAX_FIELDS: Final = 512
_RAW: Final = NAMES["raw"]
_INT64: Final = range(-(2**63), 2**63)
_DECIMAL: Final = DataType(Kind.DECIMAL128, precision=38)
_RFC_3339: Final = re.compile(
    r"\d{4}-(?:0\d|1[0-2])-[0-3]\d[Tt ][0-2]\d:[0-5]\d:[0-5]\d"
    r"(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class PathReport:
    """What a sample has at one path.

    ``kinds`` counts the values by kind; ``first_other_row`` is the first document with another
    kind than the first one, -1 if there is none.
    """

    path: str
    type: str
    seen: int
    null: int
    kinds: dict[str, int]
    first_other_row: int


@dataclass(frozen=True, slots=True)
class InferenceReport:
    """What was found in a sample: a row per path, and the documents that could not be read.

    ``str`` is a table of the paths.
    """

    documents: int
    bad: int
    first_bad_row: int
    paths: tuple[PathReport, ...]

    def __str__(self) -> str:
        lines = [f"{self.documents} documents, {self.bad} of them cannot be read"]
        rows = [("path", "type", "seen", "null", "kinds", "first other row")]
        for report in self.paths:
            kinds = ", ".join(f"{name} {count}" for name, count in report.kinds.items())
            other = "" if report.first_other_row < 0 else str(report.first_other_row)
            shown = report.type if len(report.type) <= 40 else f"{report.type[:37]}..."
            rows.append(
                (report.path or "$", shown, str(report.seen), str(report.null), kinds, other)
            )
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)


@dataclass(slots=True)
class _Seen:
    """The values at one path."""

    seen: int = 0
    null: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    first_other_row: int = -1
    is_past_int64: bool = False
    digits: int = 0
    is_timestamp: bool = True
    zones: set[bool] = field(default_factory=set)
    fraction_digits: int = 0
    item: _Seen | None = None
    members: dict[str, _Seen] = field(default_factory=dict)
    any_member: _Seen | None = None
    """All members as one, once there are more than `MAX_FIELDS`."""

    def add(self, value: Any, row: int, depth: int, max_fields: int) -> None:
        """Take one value of a document; None is null."""
        self.seen += 1
        kind = _kind(value, depth)
        if kind == "null":
            self.null += 1
            return
        if self.kinds and kind not in self.kinds and self.first_other_row < 0:
            self.first_other_row = row
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if kind == "integer":
            self.is_past_int64 |= value not in _INT64
            self.digits = max(self.digits, len(str(abs(value))) if value not in _INT64 else 0)
        elif kind == "string":
            self._add_text(value)
        elif kind == "array":
            self.item = self.item or _Seen()
            for item in value:
                self.item.add(item, row, depth + 1, max_fields)
        elif kind == "object":
            for name, member in value.items():
                self._member(name, max_fields).add(member, row, depth + 1, max_fields)

    def _add_text(self, text: str) -> None:
        match = _RFC_3339.fullmatch(text) if self.is_timestamp else None
        if match is None:
            self.is_timestamp = False
            return
        self.zones.add(match[2] is not None)
        self.fraction_digits = max(self.fraction_digits, len(match[1] or ""))

    def _member(self, name: str, max_fields: int) -> _Seen:
        if self.any_member is not None:
            return self.any_member
        if name not in self.members and len(self.members) >= max_fields:
            self.any_member = _Seen()
            for member in self.members.values():
                self.any_member.merge(member, max_fields)
            self.members = {}
            return self.any_member
        return self.members.setdefault(name, _Seen())

    def merge(self, other: _Seen, max_fields: int) -> None:
        """Take what another path has had."""
        if self.kinds and set(other.kinds) - set(self.kinds) and self.first_other_row < 0:
            self.first_other_row = other.first_other_row
        self.seen += other.seen
        self.null += other.null
        for kind, count in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count
        self.is_past_int64 |= other.is_past_int64
        self.digits = max(self.digits, other.digits)
        self.is_timestamp &= other.is_timestamp
        self.zones |= other.zones
        self.fraction_digits = max(self.fraction_digits, other.fraction_digits)
        if other.item is not None:
            self.item = self.item or _Seen()
            self.item.merge(other.item, max_fields)
        for name, member in other.members.items():
            self._member(name, max_fields).merge(member, max_fields)
        if other.any_member is not None:
            if self.any_member is None:
                self.any_member = _Seen()
                for member in self.members.values():
                    self.any_member.merge(member, max_fields)
                self.members = {}
            self.any_member.merge(other.any_member, max_fields)

    def type(self, timestamps: bool) -> DataType:
        """Return the type that all values have."""
        kinds = set(self.kinds)
        if kinds == {"boolean"}:
            return NAMES["bool"]
        if kinds == {"integer"} and not self.is_past_int64:
            return NAMES["int64"]
        if kinds == {"integer"} and self.digits <= _DECIMAL.precision:
            return _DECIMAL
        if kinds and kinds <= {"integer", "number"}:
            return NAMES["float64"]
        if kinds == {"string"}:
            if timestamps and self.is_timestamp and len(self.zones) == 1:
                unit = "us" if self.fraction_digits <= 6 else "ns"
                return DataType(Kind.TIMESTAMP, unit=unit, is_utc=True in self.zones)
            return NAMES["string"]
        if kinds == {"array"}:
            item = self.item.type(timestamps) if self.item is not None else _RAW
            return list_type(SchemaField("item", item))
        if kinds == {"object"}:
            if self.any_member is not None:
                value = SchemaField("value", self.any_member.type(timestamps))
                return map_type(NAMES["string"], value, "")
            if self.members:
                fields = [SchemaField(n, m.type(timestamps)) for n, m in self.members.items()]
                return struct_type(fields, "")
        return _RAW

    def reports(self, path: str, timestamps: bool) -> Iterator[PathReport]:
        """Yield the report of this path and of those below, in the order of the columns."""
        yield PathReport(
            path,
            str(self.type(timestamps)),
            self.seen,
            self.null,
            dict(self.kinds),
            self.first_other_row,
        )
        if self.item is not None and self.item.seen:
            yield from self.item.reports(f"{path}[]", timestamps)
        if self.any_member is not None:
            yield from self.any_member.reports(f"{path}{{value}}", timestamps)
        for name, member in self.members.items():
            yield from member.reports(f"{path}.{name}" if path else name, timestamps)


def infer(
    sample: Iterable[bytes | str | None], *, timestamps: bool = False, max_fields: int = MAX_FIELDS
) -> tuple[SchemaField, InferenceReport]:
    """Return the schema that fits the documents of a sample, and what they have.

    Raises
    ------
    DeserializationError
        No document can be read.
    """
    root = _Seen()
    bad, first_bad, count = 0, -1, 0
    cause = "there are none"
    for row, document in enumerate(sample):
        count += 1
        if document is None:
            root.add(None, row, 0, max_fields)
            continue
        try:
            value = _parsed(document)
        except (ValueError, RecursionError) as error:
            bad += 1
            if first_bad < 0:
                first_bad, cause = row, str(error) or "more levels than can be read"
            continue
        root.add(value, row, 0, max_fields)
    if not root.seen:
        raise DeserializationError(
            f"no schema: none of {count} documents can be read as JSON",
            cause=f"document {first_bad}: {cause}" if first_bad >= 0 else cause,
            hint="give JSON documents; values in another format need their own deserializer",
        )
    report = InferenceReport(count, bad, first_bad, tuple(root.reports("", timestamps)))
    return SchemaField("", root.type(timestamps)), report


def _parsed(document: bytes | str) -> Any:
    text = document if isinstance(document, str) else bytes(document).decode("utf-8")
    text.encode("utf-8")  # a lone surrogate
    value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
    if "\\u" in text:  # which may be an escape of one
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        [(again, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f'the key "{again}" stands twice in one object')
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _kind(value: Any, depth: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    if depth >= MAX_NESTING - 1:
        return "more levels than a schema has"
    return "array" if isinstance(value, list) else "object"
