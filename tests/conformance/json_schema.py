"""Kafka's message schemas, as they are in the Java client's jar.

Every request and response is a JSON file with comments. This module reads them into ``Struct`` and
``Field``; it knows nothing of kfast.
"""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "common/message/"
PRIMITIVES = {
    "bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid", "string",
    "bytes", "records",
}  # fmt: skip
ZERO_UUID = bytes(16)


@dataclass(frozen=True)
class Range:
    """A version range; ``none`` is empty."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str | None) -> Range:
        if text is None or text == "none":
            return cls(1, 0)
        match = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
        assert match is not None, text
        first = int(match[1])
        return cls(first, 1 << 20 if match[2] else int(match[3] or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass(frozen=True)
class Field:
    """One field; ``struct`` holds those of its type, or of its elements, if it has any."""

    name: str
    type: str
    versions: Range
    nullable: Range
    tagged: Range
    tag: int | None
    ignorable: bool
    default: object
    struct: Struct | None

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        return self.type.removeprefix("[]")


@dataclass(frozen=True)
class Struct:
    """A message, or a struct inside one."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Schema:
    """One request or response, or data of another kind, which has no API key."""

    api_key: int | None
    valid: Range
    flexible: Range
    body: Struct


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Schemas:
    """All schemas in a jar.

    Parameters
    ----------
    jar : Path
        A kafka-clients jar.
    """

    def __init__(self, jar: Path) -> None:
        self._jar = zipfile.Path(jar)

    def load(self, name: str) -> Schema:
        """Return a message by its name, e.g. ``FetchRequest``."""
        text = (self._jar / f"{FOLDER}{name}.json").read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("//")]
        data = json.loads("\n".join(lines))
        shared = {struct["name"]: struct["fields"] for struct in data.get("commonStructs", [])}
        fields = _fields(data["fields"], shared)
        return Schema(
            data.get("apiKey"),
            Range.parse(data["validVersions"]),
            Range.parse(data["flexibleVersions"]),
            Struct(data["name"], fields),
        )


def _fields(data: list[dict[str, Any]], shared: dict[str, Any]) -> tuple[Field, ...]:
    return tuple(_field(field, shared) for field in data)


def _field(data: dict[str, Any], shared: dict[str, Any]) -> Field:
    element = data["type"].removeprefix("[]")
    struct = None
    if element not in PRIMITIVES:
        struct = Struct(element, _fields(data.get("fields") or shared[element], shared))
    return Field(
        snake_case(data["name"]),
        data["type"],
        Range.parse(data["versions"]),
        Range.parse(data.get("nullableVersions")),
        Range.parse(data.get("taggedVersions")),
        data.get("tag"),
        data.get("ignorable", False),
        _default(data, struct),
        struct,
    )


def _default(data: dict[str, Any], struct: Struct | None) -> object:
    kind, text = data["type"], data.get("default")
    if text == "null":
        return None
    if kind.startswith("[]"):
        return []
    if struct is not None:
        return {field.name: field.default for field in struct.fields}
    match kind:
        case "string":
            return text or ""
        case "bytes" | "records":
            return b""
        case "uuid":
            return ZERO_UUID
        case "bool":
            return str(text).lower() == "true"
        case "float64":
            return float(text or 0)
        case _:
            return int(str(text or 0), 0)
