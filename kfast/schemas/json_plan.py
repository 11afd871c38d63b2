"""The plan of JSON: a schema's tree as the flat arrays that ``_native.json_decode`` runs.

One operation per node, and one for each object on the way to a lifted field, which has no column
of its own (``PATH_OBJECT``). An operation is `OP_ITEMS` int32:

=========  =======================================================================================
kind       number of ``Kind``, or ``PATH_OBJECT``
node       the column; of a ``PATH_OBJECT`` the struct that has the lifted fields
flags      ``REQUIRED``, encodings and what ``coerce`` opts in to
constant   where the default is in ``constants``, or -1
first      struct: number of its first member; list and map: the operation of items, of values
count      members
unit       digits of a second's fraction, decimals' precision, bytes of fixed-size binary
scale      of decimals; of timestamps the digits of the one epoch that is read, or -1
=========  =======================================================================================

A member is ``(position in keys, bytes, operation)``; keys are UTF-8.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kfast.schemas.layout import constant_bytes, layout
from kfast.schemas.refusals import refusal
from kfast.schemas.types import Kind, SchemaField

PATH_OBJECT: Final = 32
OP_ITEMS: Final = 8
MEMBER_ITEMS: Final = 3
MAX_STEPS: Final = 16
"""Steps of one source."""

REQUIRED: Final = 1
IS_UTC: Final = 2
TEXT_ONLY: Final = 4
EPOCH_ONLY: Final = 8
BASE64URL: Final = 16
HEX: Final = 32
PLAIN_TEXT: Final = 64
COERCIONS: Final = {
    "number_text": 256,
    "integral_float": 512,
    "stringify": 1024,
    "truncate_time": 2048,
}
HAS_PATH_OBJECTS: Final = 4096

_DIGITS: Final = {"": 0, "s": 0, "ms": 3, "us": 6, "ns": 9}
_ENCODINGS: Final = {
    "": 0, "base64": 0, "base64url": BASE64URL, "hex": HEX, "utf8": PLAIN_TEXT,
    "rfc3339": TEXT_ONLY, "epoch_s": EPOCH_ONLY, "epoch_ms": EPOCH_ONLY, "epoch_us": EPOCH_ONLY,
    "epoch_ns": EPOCH_ONLY,
}  # fmt: skip


@dataclass(slots=True)
class _Object:
    """Keys of one object of the documents, each with a field or a further object."""

    node: int
    members: dict[str, _Object | tuple[int, SchemaField]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JsonPlan:
    """A compiled schema; immutable, shared by threads.

    ``paths`` are those of the nodes, for errors. ``repr`` has one line per operation.
    """

    layout: bytes
    ops: bytes
    members: bytes
    keys: bytes
    constants: bytes
    duplicates_last: bool
    allow_nan: bool
    max_depth: int
    paths: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        ops, members = array("i", self.ops), array("i", self.members)
        for number in range(len(ops) // OP_ITEMS):
            kind, node, flags, constant, first, count, _, _ = ops[
                number * OP_ITEMS : (number + 1) * OP_ITEMS
            ]
            name = "path_object" if kind == PATH_OBJECT else Kind(kind).name.lower()
            parts = [f"{number:3} {name:12} {self.paths[node] or '$'}"]
            parts += ["required"] if flags & REQUIRED else []
            parts += ["default"] if constant >= 0 else []
            if kind in {Kind.STRUCT, PATH_OBJECT}:
                pairs = []
                for at in range(first, first + count):
                    start, size, op = members[at * MEMBER_ITEMS : (at + 1) * MEMBER_ITEMS]
                    pairs.append(f"{self.keys[start : start + size].decode()}={op}")
                parts.append(" ".join(pairs))
            elif kind in {Kind.LIST, Kind.MAP}:
                parts.append(f"each={first}")
            yield " ".join(parts)


def json_plan(
    root: SchemaField,
    *,
    coerce: tuple[str, ...] = (),
    duplicates_last: bool = False,
    allow_nan: bool = False,
    max_depth: int = 64,
) -> JsonPlan:
    """Compile a schema.

    Raises
    ------
    ConfigurationError
        Two fields read the same key, or a default is no value of its column.
    """
    coerced = sum(COERCIONS[name] for name in coerce)
    compiler = _Compiler(coerced)
    compiler.add(root, 0, "")
    return JsonPlan(
        layout(root).tobytes(),
        compiler.ops.tobytes(),
        compiler.members.tobytes(),
        bytes(compiler.keys) + bytes(16),  # keys are read 8 bytes at a time
        bytes(compiler.constants),
        duplicates_last,
        allow_nan,
        max_depth,
        tuple(path for path, _ in root.nodes()),
    )


class _Compiler:
    def __init__(self, coerced: int) -> None:
        self.ops = array("i")
        self.members = array("i")
        self.keys = bytearray()
        self.constants = bytearray()
        self._coerced = coerced

    def add(self, field: SchemaField, node: int, path: str) -> int:
        """Add the operation of a field and of all below it; return its number."""
        number = len(self.ops) // OP_ITEMS
        constant = -1
        if field.default is not None:
            constant = len(self.constants)
            self.constants += constant_bytes(field)
        self.ops.extend((field.type.kind, node, _flags(field) | self._coerced, constant, 0, 0))
        self.ops.extend(_details(field))
        kind = field.type.kind
        if kind is Kind.STRUCT:
            self._add_members(number, _object_of(field, node, path), path)
        elif kind is Kind.LIST:
            self._set(number, self.add(field.type.item, node + 1, f"{path}[]"), 1)
        elif kind is Kind.MAP:
            self._set(number, self.add(field.type.fields[1], node + 2, f"{path}{{value}}"), 1)
        return number

    def _set(self, number: int, first: int, count: int) -> None:
        self.ops[number * OP_ITEMS + 4] = first
        self.ops[number * OP_ITEMS + 5] = count

    def _add_members(self, number: int, json_object: _Object, path: str) -> None:
        first = len(self.members) // MEMBER_ITEMS
        self._set(number, first, len(json_object.members))
        self.members.extend([0] * (MEMBER_ITEMS * len(json_object.members)))
        for at, (key, member) in enumerate(json_object.members.items(), first):
            raw = key.encode()
            if isinstance(member, _Object):
                op = len(self.ops) // OP_ITEMS
                self.ops[number * OP_ITEMS + 2] |= HAS_PATH_OBJECTS
                self.ops.extend((PATH_OBJECT, json_object.node, 0, -1, 0, 0, 0, 0))
                self._add_members(op, member, path)
            else:
                node, inner = member
                op = self.add(inner, node, f"{path}.{inner.name}" if path else inner.name)
            self.members[at * MEMBER_ITEMS : (at + 1) * MEMBER_ITEMS] = array(
                "i", (len(self.keys), len(raw), op)
            )
            self.keys += raw


def _object_of(struct: SchemaField, node: int, path: str) -> _Object:
    """Return the keys of the documents that the fields of a struct are read from."""
    root = _Object(node)
    child = node + 1
    for column in struct.type.fields:
        steps = column.source or (column.name,)
        inner = f"{path}.{column.name}" if path else column.name
        if len(steps) > MAX_STEPS:
            raise refusal(inner, f"a source has at most {MAX_STEPS} steps")
        at = root
        for step in steps[:-1]:
            below = at.members.setdefault(step, _Object(node))
            if not isinstance(below, _Object):
                raise _taken(inner, steps, below[1])
            at = below
        taken = at.members.get(steps[-1])
        if taken is not None:
            other = taken if not isinstance(taken, _Object) else _first_field(taken)
            raise _taken(inner, steps, other[1])
        at.members[steps[-1]] = (child, column)
        child += sum(1 for _ in column.nodes())
    return root


def _first_field(json_object: _Object) -> tuple[int, SchemaField]:
    for member in json_object.members.values():
        return _first_field(member) if isinstance(member, _Object) else member
    raise AssertionError("an object on the way to a field has that field")


def _taken(path: str, steps: tuple[str, ...], other: SchemaField) -> Exception:
    return refusal(
        path,
        f'reads {".".join(steps)!r}, which "{other.name}" reads, too',
        "read one part of a document into one column",
    )


def _flags(field: SchemaField) -> int:
    flags = _ENCODINGS[field.encoding]
    flags |= 0 if field.is_nullable else REQUIRED
    flags |= IS_UTC if field.type.is_utc else 0
    return flags


def _details(field: SchemaField) -> tuple[int, int]:
    kind = field.type.kind
    if kind in {Kind.DECIMAL128, Kind.DECIMAL256}:
        return field.type.precision, field.type.scale
    if kind is Kind.FIXED_BINARY:
        return field.type.size, 0
    epoch = -1
    if field.encoding.startswith("epoch_"):
        epoch = _DIGITS[field.encoding.removeprefix("epoch_")]
    return _DIGITS[field.type.unit], epoch
