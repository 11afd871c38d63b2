"""Declaration of protocol messages: types, versions and fields.

A message, and every struct inside one, is a slotted dataclass whose fields are declared with
``wire``. One definition covers all versions kfast supports: a field names the versions that carry
it, those that allow null, and its tag if it is in the tag section (KIP-482). The order of the
fields is the order on the wire; tagged fields come last. Kafka's own names are kept, in snake
case, and a test compares every definition with the schemas in Kafka's Java client.

Owns declarations only: bytes are read and written by ``decoders`` and ``encoders``. Any thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from kfast.types import ZERO_UUID

_METADATA_KEY: Final = "wire"
_UNSET: Final[Any] = object()
_NO_LIMIT: Final = 0x7FFF


@dataclass(slots=True, frozen=True)
class Versions:
    """A range of versions, both ends included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Return the range written in Kafka's notation: ``"3+"``, ``"8-10"``, ``"4"``."""
        if text.endswith("+"):
            return cls(int(text[:-1]), _NO_LIMIT)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


# --- types ----------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Scalar:
    """A type of fixed size, by Kafka's name and its letter in the ``struct`` module."""

    name: str
    code: str
    default: object


@dataclass(slots=True, frozen=True)
class Sized:
    """A type with a length prefix, by Kafka's name."""

    name: str
    default: object


@dataclass(slots=True, frozen=True)
class ArrayOf:
    """An array, as a Python list; its elements are of a type or of a struct's dataclass."""

    element: Scalar | Sized | type


WireType: TypeAlias = Scalar | Sized | ArrayOf | type

I8: Final = Scalar("int8", "b", 0)
I16: Final = Scalar("int16", "h", 0)
U16: Final = Scalar("uint16", "H", 0)
I32: Final = Scalar("int32", "i", 0)
I64: Final = Scalar("int64", "q", 0)
F64: Final = Scalar("float64", "d", 0.0)
BOOL: Final = Scalar("bool", "?", False)
UUID: Final = Scalar("uuid", "16s", ZERO_UUID)
STR: Final = Sized("string", "")
BYTES: Final = Sized("bytes", b"")
RECORDS: Final = Sized("records", b"")


# --- fields ---------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class WireField:
    """One field of a message as declared by ``wire``."""

    kind: WireType
    versions: Versions
    """Versions that carry it."""
    nullable: Versions | None
    """Versions that allow null."""
    tag: int | None
    """Its number in the tag section; None for a positional field."""
    make_default: Callable[[], Any]
    """Returns its value in versions that do not carry it."""
    ignorable: bool
    """Whether encoding a version without it may drop a value that is not the default."""

    def is_nullable(self, version: int) -> bool:
        """Return whether null is allowed in a version."""
        return self.nullable is not None and version in self.nullable

    @property
    def has_mutable_default(self) -> bool:
        """Return whether every object needs a default value of its own."""
        return self.make_default is list or isinstance(self.make_default, type)


def wire(
    kind: WireType,
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int | None = None,
    default: Any = _UNSET,
    ignorable: bool = False,
) -> Any:
    """Declare a field of a message; see `WireField`. Version ranges are in Kafka's notation.

    Without ``default`` it is zero, empty, false or a struct of defaults. The result is a
    ``dataclasses.Field``, typed as Any so that a type checker uses the attribute's annotation.
    """
    make_default: Callable[[], Any]
    if default is not _UNSET:
        make_default = _constant(default)
    elif isinstance(kind, Scalar | Sized):
        make_default = _constant(kind.default)
    else:
        make_default = list if isinstance(kind, ArrayOf) else kind
    spec = WireField(
        kind,
        Versions.parse(versions),
        None if nullable is None else Versions.parse(nullable),
        tag,
        make_default,
        ignorable,
    )
    metadata = {_METADATA_KEY: spec}
    if spec.has_mutable_default:
        return dataclasses.field(default_factory=make_default, metadata=metadata)
    return dataclasses.field(default=make_default(), metadata=metadata)


def _constant(value: object) -> Callable[[], Any]:
    return lambda: value


class WireContext(NamedTuple):
    """Version of a message and path to the current field, while a decoder or encoder is built."""

    version: int
    is_flexible: bool
    """Whether the version uses compact types and tag sections."""
    label: str
    """Path to the field, for errors."""

    def inside(self, name: str) -> WireContext:
        """Return the context of a field of the current struct."""
        return self._replace(label=f"{self.label}.{name}")


@cache
def wire_fields(cls: type) -> dict[str, WireField]:
    """Return the declared fields of a message or struct by name, in wire order.

    Raises
    ------
    TypeError
        A field was declared without ``wire``, or a positional field after a tagged one.
    """
    declared: dict[str, WireField] = {}
    has_tagged = False
    for field in dataclasses.fields(cls):
        name = field.name
        spec = field.metadata.get(_METADATA_KEY)
        if spec is None:
            raise TypeError(f"{cls.__name__}.{name} is not declared with wire()")
        if spec.tag is None and has_tagged:
            raise TypeError(f"{cls.__name__}.{name} must come before the tagged fields")
        has_tagged = has_tagged or spec.tag is not None
        declared[name] = spec
    return declared
