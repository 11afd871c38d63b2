"""Avro schemas: from their JSON text to a tree of types, and their canonical form and fingerprint.

The tree is complete: a named type that is used again is the same object again, so the tree is a
graph without cycles whose size follows the text's. Only where a record contains itself there is a
leaf instead, of kind ``RECURSION``, with the record's name. Nothing here says what can become a
column (``avro_columns``) or which pairs of schemas go together (``avro_resolution``).

A logical type is kept only if it is known and fits its base type; otherwise the type counts as its
base type, as the specification of Avro says. Attributes that Avro does not define
(``connect.name``, ``avro.java.string``, ...) are ignored.

The text may come from a registry and is hostile: its size and the depth of the tree are bounded,
and the only exception is ``ConfigurationError``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, unique
from types import MappingProxyType
from typing import Any, Final

from kfast._base.spelling import did_you_mean
from kfast._native import wire_ids
from kfast.errors import ConfigurationError

MAX_TEXT: Final = 4 << 20
"""Characters of a schema with its references, at most."""
MAX_DEPTH: Final = 100
"""Levels of types, at most; named types count where they are used."""
MAX_FIXED: Final = 1 << 20
MAX_PRECISION: Final = 76
"""Digits of the widest decimal column; a decimal of more is its base type."""
_MOST: Final = 1 << 31


@unique
class AvroKind(IntEnum):
    """Kinds of types, as the specification of Avro names them."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    STRING = 7
    RECORD = 8
    ENUM = 9
    ARRAY = 10
    MAP = 11
    UNION = 12
    FIXED = 13
    RECURSION = 14
    """A record inside itself."""


PRIMITIVES: Final = {kind.name.lower(): kind for kind in AvroKind if kind <= AvroKind.STRING}
COMPLEX: Final = ("record", "enum", "array", "map", "fixed")
_SMALLEST: Final = {
    AvroKind.NULL: 0, AvroKind.BOOLEAN: 1, AvroKind.INT: 1, AvroKind.LONG: 1, AvroKind.FLOAT: 4,
    AvroKind.DOUBLE: 8, AvroKind.BYTES: 1, AvroKind.STRING: 1,
}  # fmt: skip
_LOGICAL: Final = {
    AvroKind.INT: ("date", "time-millis"),
    AvroKind.LONG: (
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "timestamp-nanos",
        "local-timestamp-millis",
        "local-timestamp-micros",
        "local-timestamp-nanos",
    ),
    AvroKind.STRING: ("uuid",),
}
"""Logical types without attributes; those of bytes and fixed depend on their size."""


@dataclass(frozen=True, slots=True, eq=False)
class AvroField:
    """A field of a record. ``default`` is JSON, and counts only if ``has_default``."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class AvroType:
    """A type. Two are the same only if they are one object: comparing by value could take for ever.

    ``name`` and ``aliases`` are full names. ``types`` are a union's branches, an array's item or a
    map's value. ``min_size`` is how many bytes a value has at least; 0 means that it has none.
    """

    kind: AvroKind
    name: str = ""
    aliases: tuple[str, ...] = ()
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    fields: tuple[AvroField, ...] = ()
    types: tuple[AvroType, ...] = ()
    depth: int = 1
    min_size: int = 0

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    def __str__(self) -> str:
        """Return the type as error messages name it."""
        kind = self.kind.name.lower()
        if self.kind is AvroKind.UNION:
            text = f"[{', '.join(map(str, self.types[:8]))}]"
            return text if len(text) <= 120 else f"{text[:117]}..."
        if self.kind in {AvroKind.ARRAY, AvroKind.MAP}:
            return f"{kind} of {self.types[0]}"
        if self.kind is AvroKind.RECURSION:
            return f"record {self.name}"
        text = f"{kind} {self.name}" if self.name else kind
        if self.kind is AvroKind.FIXED:
            text = f"{text} of {self.size} bytes"
        if self.logical == "decimal":
            return f"{text} (decimal({self.precision}, {self.scale}))"
        return f"{text} ({self.logical})" if self.logical else text


@dataclass(frozen=True, slots=True, eq=False)
class AvroSchema:
    """A schema: its root, and its named types by full name."""

    root: AvroType
    names: Mapping[str, AvroType] = field(default_factory=lambda: MappingProxyType({}))

    def target(self, avro: AvroType) -> AvroType:
        """Return the record that a recursion leads to, other types as they are."""
        return self.names[avro.name] if avro.kind is AvroKind.RECURSION else avro


def parse_avro(text: str, references: Sequence[str] = ()) -> AvroSchema:
    """Read a schema; ``references`` are schemas whose named types it uses, needed ones first."""
    if sum(map(len, (text, *references))) > MAX_TEXT:
        raise ConfigurationError(f"the Avro schema has more than {MAX_TEXT} characters")
    reader = _Reader()
    for reference in references:
        reader.read(_json_of(reference), "", "", 1)
    root = reader.read(_json_of(text), "", "", 1)
    return AvroSchema(root, MappingProxyType({n: t for n, t in reader.names.items() if t}))


def _json_of(text: str) -> Any:
    stripped = text.strip()
    if stripped in PRIMITIVES:  # written without quotation marks, as many tools take it
        return stripped
    try:
        return json.loads(text)
    except RecursionError:
        raise ConfigurationError(
            f"the Avro schema is nested more than {MAX_DEPTH} levels deep"
        ) from None
    except ValueError as error:
        raise ConfigurationError(
            "the Avro schema is not JSON",
            cause=str(error),
            found=repr(stripped[:60]),
            hint="give the text of the schema, not the name of its file",
        ) from None


def _refusal(path: str, problem: str, hint: str | None = None) -> ConfigurationError:
    return ConfigurationError(f"Avro schema: {path or 'the root'} {problem}", hint=hint, path=path)


def _shown(value: object) -> str:
    if not isinstance(value, str):
        return repr(value)[:60]
    shown = "".join(letter if letter.isprintable() else "?" for letter in value[:60])
    return f'"{shown}"'


class _Reader:
    """Reads one schema. ``names`` has None for a record whose fields are being read."""

    def __init__(self) -> None:
        self.names: dict[str, AvroType | None] = {}

    def read(self, value: Any, namespace: str, path: str, depth: int) -> AvroType:
        """Return the type that a JSON value stands for."""
        if depth > MAX_DEPTH:
            raise _refusal(path, f"is nested more than {MAX_DEPTH} levels deep")
        if isinstance(value, str):
            avro = self._named(value, namespace, path)
        elif isinstance(value, list):
            avro = self._union(value, namespace, path, depth)
        elif isinstance(value, dict):
            avro = self._object(value, namespace, path, depth)
        else:
            raise _refusal(path, f"has {_shown(value)} for its type")
        if avro.depth > MAX_DEPTH:
            raise _refusal(path, f"is nested more than {MAX_DEPTH} levels deep")
        return avro

    def _named(self, name: str, namespace: str, path: str) -> AvroType:
        """Return the primitive, or the type that was defined before under this name."""
        kind = PRIMITIVES.get(name)
        if kind is not None:
            return AvroType(kind, min_size=_SMALLEST[kind])
        for full in (_full_name(name, namespace), name):
            if full in self.names:
                # A record that is not complete contains itself; a value of it has at least a byte.
                return self.names[full] or AvroType(AvroKind.RECURSION, name=full, min_size=1)
        near = did_you_mean(name, (*PRIMITIVES, *COMPLEX, *self.names))
        raise _refusal(
            path,
            f"has the unknown type {_shown(name)}",
            f'did you mean "{near}"?' if near else "a named type has to be defined before its use",
        )

    def _object(self, value: dict[str, Any], namespace: str, path: str, depth: int) -> AvroType:
        kind = value.get("type")
        if kind in ("record", "error"):
            return self._record(value, namespace, path, depth)
        if kind == "enum":
            return self._enum(value, namespace, path)
        if kind == "fixed":
            return self._fixed(value, namespace, path)
        if kind in ("array", "map"):
            key, step = ("items", "[]") if kind == "array" else ("values", "{value}")
            if key not in value:
                raise _refusal(path, f'is of type {kind} without "{key}"')
            inner = self.read(value[key], namespace, path + step, depth + 1)
            container = AvroKind.ARRAY if kind == "array" else AvroKind.MAP
            return AvroType(container, types=(inner,), depth=inner.depth + 1, min_size=1)
        if kind is None:
            raise _refusal(path, 'has an object without "type" for its type')
        return _with_logical(self.read(kind, namespace, path, depth + 1), value)

    def _union(self, value: list[Any], namespace: str, path: str, depth: int) -> AvroType:
        if not value:
            raise _refusal(path, "is a union without branches")
        branches = tuple(self.read(branch, namespace, path, depth + 1) for branch in value)
        seen: set[str] = set()
        for branch in branches:
            if branch.kind is AvroKind.UNION:
                raise _refusal(path, "is a union directly inside of a union")
            key = branch.name or branch.kind.name.lower()
            if key in seen:
                raise _refusal(path, f"is a union with two branches of type {key}")
            seen.add(key)
        smallest = min(branch.min_size for branch in branches)
        return AvroType(
            AvroKind.UNION,
            types=branches,
            depth=1 + max(branch.depth for branch in branches),
            min_size=min(1 + smallest, _MOST),
        )

    def _record(self, value: dict[str, Any], namespace: str, path: str, depth: int) -> AvroType:
        name, aliases, inner = self._define(value, namespace, path)
        self.names[name] = None
        listed = value.get("fields")
        if not isinstance(listed, list):
            raise _refusal(path, f'is record {name} without a list "fields"')
        fields: dict[str, AvroField] = {}
        for item in listed:
            member = self._field(item, inner, path, depth)
            if member.name in fields:
                raise _refusal(path, f"has two fields with the name {member.name}")
            fields[member.name] = member
        types = [member.type for member in fields.values()]
        record = AvroType(
            AvroKind.RECORD,
            name=name,
            aliases=aliases,
            fields=tuple(fields.values()),
            depth=1 + max((t.depth for t in types), default=0),
            min_size=min(sum(t.min_size for t in types), _MOST),
        )
        self.names[name] = record
        return record

    def _field(self, item: Any, namespace: str, path: str, depth: int) -> AvroField:
        if not isinstance(item, dict) or "type" not in item:
            raise _refusal(path, f"has a field without a type: {_shown(item)}")
        name = item.get("name")
        if not isinstance(name, str) or not name.isidentifier():
            raise _refusal(path, f"has a field whose name is {_shown(name)}")
        inner = f"{path}.{name}" if path else name
        field_type = self.read(item["type"], namespace, inner, depth + 1)
        return AvroField(
            name,
            field_type,
            _texts(item, "aliases", inner),
            has_default="default" in item,
            default=item.get("default"),
        )

    def _enum(self, value: dict[str, Any], namespace: str, path: str) -> AvroType:
        name, aliases, _ = self._define(value, namespace, path)
        symbols = _texts(value, "symbols", path)
        if (
            not symbols
            or len(set(symbols)) < len(symbols)
            or not all(map(str.isidentifier, symbols))
        ):
            raise _refusal(path, f"is enum {name}, whose symbols are not distinct names")
        default = value.get("default")
        if default is not None and default not in symbols:
            raise _refusal(path, f"is enum {name}, whose default {_shown(default)} is no symbol")
        enum = AvroType(
            AvroKind.ENUM,
            name=name,
            aliases=aliases,
            symbols=symbols,
            default_symbol=default,
            min_size=1,
        )
        self.names[name] = enum
        return enum

    def _fixed(self, value: dict[str, Any], namespace: str, path: str) -> AvroType:
        name, aliases, _ = self._define(value, namespace, path)
        size = _whole(value.get("size"))
        if size is None or not 0 <= size <= MAX_FIXED:
            raise _refusal(path, f"is fixed {name} of size {_shown(value.get('size'))}")
        fixed = AvroType(AvroKind.FIXED, name=name, aliases=aliases, size=size, min_size=size)
        fixed = _with_logical(fixed, value)
        self.names[name] = fixed
        return fixed

    def _define(
        self, value: dict[str, Any], namespace: str, path: str
    ) -> tuple[str, tuple[str, ...], str]:
        """Return full name, full aliases and inner namespace of a named type that begins here."""
        name, own = value.get("name"), value.get("namespace")
        if own is not None and not (isinstance(own, str) and (not own or _is_full_name(own))):
            raise _refusal(path, f"has the namespace {_shown(own)}")
        if not isinstance(name, str) or not _is_full_name(name):
            raise _refusal(path, f"is of type {value['type']}, and its name is {_shown(name)}")
        full = _full_name(name, namespace if own is None else own)
        if full in self.names:
            raise _refusal(path, f"defines {full} a second time")
        if full in PRIMITIVES:
            raise _refusal(path, f"defines {full}, which is a type of Avro")
        inner = full.rpartition(".")[0]
        aliases = tuple(_full_name(alias, inner) for alias in _texts(value, "aliases", path))
        return full, aliases, inner


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _is_full_name(name: str) -> bool:
    return all(map(str.isidentifier, name.split(".")))


def _texts(value: dict[str, Any], key: str, path: str) -> tuple[str, ...]:
    listed = value.get(key) or []
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise _refusal(path, f'has "{key}" that are no list of names')
    return tuple(listed)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _with_logical(avro: AvroType, value: dict[str, Any]) -> AvroType:
    """Return the type with the logical type that an object gives it, if that fits."""
    logical = value.get("logicalType")
    if not isinstance(logical, str) or avro.logical:
        return avro
    is_fixed = avro.kind is AvroKind.FIXED
    if logical in _LOGICAL.get(avro.kind, ()):
        return replace(avro, logical=logical)
    if is_fixed and (logical, avro.size) in {("uuid", 16), ("duration", 12)}:
        return replace(avro, logical=logical)
    if logical != "decimal" or not (is_fixed or avro.kind is AvroKind.BYTES):
        return avro
    precision, scale = _whole(value.get("precision")), _whole(value.get("scale", 0))
    if precision is None or scale is None or not 0 <= scale <= precision:
        return avro
    most = min(MAX_PRECISION, _digits(avro.size)) if is_fixed else MAX_PRECISION
    if not 1 <= precision <= most:
        return avro
    return replace(avro, logical=logical, precision=precision, scale=scale)


def _digits(size: int) -> int:
    """How many decimal digits always fit into a two's complement number of so many bytes."""
    if size > 64:
        return MAX_PRECISION
    return len(str((1 << (8 * size - 1)) - 1)) - 1 if size else 0


# --- the canonical form ---------------------------------------------------------------------------


def canonical_form(avro: AvroType) -> str:
    """Parsing Canonical Form of Avro: what matters for reading bytes, written in one way."""
    return _canonical(avro, set())


def fingerprint(avro: AvroType) -> int:
    """CRC-64-AVRO of a schema, unsigned, by which single-object encoding names the writer's."""
    return wire_ids.fingerprint(canonical_form(avro).encode())


def _canonical(avro: AvroType, defined: set[str]) -> str:
    kind = avro.kind.name.lower()
    if avro.kind is AvroKind.UNION:
        return f"[{','.join(_canonical(branch, defined) for branch in avro.types)}]"
    if avro.kind is AvroKind.ARRAY:
        return f'{{"type":"array","items":{_canonical(avro.types[0], defined)}}}'
    if avro.kind is AvroKind.MAP:
        return f'{{"type":"map","values":{_canonical(avro.types[0], defined)}}}'
    if not avro.name:
        return f'"{kind}"'
    if avro.name in defined or avro.kind is AvroKind.RECURSION:
        return _quoted(avro.name)
    defined.add(avro.name)
    begin = f'{{"name":{_quoted(avro.name)},"type":"{kind}"'
    if avro.kind is AvroKind.FIXED:
        return f'{begin},"size":{avro.size}}}'
    if avro.kind is AvroKind.ENUM:
        return f'{begin},"symbols":[{",".join(map(_quoted, avro.symbols))}]}}'
    fields = (
        f'{{"name":{_quoted(field.name)},"type":{_canonical(field.type, defined)}}}'
        for field in avro.fields
    )
    return f'{begin},"fields":[{",".join(fields)}]}}'


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
