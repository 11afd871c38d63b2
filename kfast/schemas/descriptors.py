"""Descriptors of Protobuf: messages and enums by full name, whatever they were read from.

A :class:`ProtoPool` is what a set of descriptors (``descriptor_set``) and ``.proto`` text
(``proto_text``) become alike. It is linked: ``type_name`` of a field is the full name, without a
dot in front, of a message or enum of the pool. It has what decoding needs and nothing else: a
decoder takes packed and unpacked fields whatever was declared, and checks every string, so neither
is here; services, extensions and other options are not either. Values are immutable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Final

from kfast._base.spelling import did_you_mean
from kfast.errors import ConfigurationError


@unique
class ProtoType(IntEnum):
    """Types of fields; the numbers are those of ``descriptor.proto``."""

    DOUBLE = 1
    FLOAT = 2
    INT64 = 3
    UINT64 = 4
    INT32 = 5
    FIXED64 = 6
    FIXED32 = 7
    BOOL = 8
    STRING = 9
    GROUP = 10
    """A message between two tags: by ``group``, or by ``features.message_encoding``."""
    MESSAGE = 11
    BYTES = 12
    UINT32 = 13
    ENUM = 14
    SFIXED32 = 15
    SFIXED64 = 16
    SINT32 = 17
    SINT64 = 18


NAMED_TYPES: Final = frozenset({ProtoType.GROUP, ProtoType.MESSAGE, ProtoType.ENUM})
"""Types of fields that have a ``type_name``."""

_MOST_COMPARED: Final = 2_000
_LONGEST_COMPARED: Final = 100

Default = bool | int | float | str | bytes


@dataclass(frozen=True, slots=True)
class ProtoEnum:
    """An enum. ``values`` are in the order of the declaration, aliases of a number included."""

    full_name: str
    values: tuple[tuple[str, int], ...]
    is_closed: bool
    """Whether a number without a name is no value of it."""


@dataclass(frozen=True, slots=True)
class ProtoField:
    """A field of a message.

    ``has_presence``: a message that lacks the field is not the same as one that has its default.
    ``oneof`` is the name of the one it is a member of, None too for ``optional`` in proto3, which
    descriptors have as a oneof of its own. ``default`` is declared; that of an enum is a name.
    """

    name: str
    number: int
    type: ProtoType
    type_name: str = ""
    is_repeated: bool = False
    is_required: bool = False
    has_presence: bool = False
    oneof: str | None = None
    default: Default | None = None


@dataclass(frozen=True, slots=True)
class ProtoMessage:
    """A message, with its fields in the order of the declaration."""

    full_name: str
    fields: tuple[ProtoField, ...]
    is_map_entry: bool = False
    """Whether it is what a map field has for each key: ``key`` is field 1, ``value`` field 2."""


@dataclass(frozen=True)
class ProtoPool:
    """Messages and enums by full name.

    ``files`` has the full names of the messages of each file, ``nested`` those of each message, in
    the order of the declaration, map entries included. ``main`` is the file that the pool was made
    for; message indexes on the wire are counted in it.
    """

    messages: Mapping[str, ProtoMessage]
    enums: Mapping[str, ProtoEnum]
    main: str
    files: Mapping[str, tuple[str, ...]]
    nested: Mapping[str, tuple[str, ...]]

    def message(self, full_name: str) -> ProtoMessage:
        """Return a message by its full name.

        Raises
        ------
        ConfigurationError
            There is none of that name; the nearest one is named.
        """
        message = self.messages.get(full_name.removeprefix("."))
        if message is not None and not message.is_map_entry:
            return message
        names = [other.full_name for other in self.messages.values() if not other.is_map_entry]
        short = full_name.rpartition(".")[2]
        near = nearest(full_name, names) or next(
            (name for name in names if name.rpartition(".")[2] == short), None
        )
        if near:
            hint = f'did you mean "{near}"?'
        elif names:
            hint = f"the schema has {', '.join(sorted(names)[:8])}{', ...' if names[8:] else ''}"
        else:
            hint = "the schema has no messages"
        kind = "an enum" if full_name in self.enums else "no message of the schema"
        raise ConfigurationError(f'"{full_name}" is {kind}', hint=hint)

    def at_indexes(self, indexes: Sequence[int]) -> str:
        """Return the full name of the message of the main file that indexes lead to.

        Kafka clients do not agree on whether map entries count among nested messages: in Java they
        do not. Indexes that lead to a map entry or nowhere are read that way.

        Raises
        ------
        LookupError
            There is no such message.
        """
        for with_entries in (True, False):
            full_name = self._at(self.files[self.main], indexes, with_entries)
            if full_name is not None and not self.messages[full_name].is_map_entry:
                return full_name
        raise LookupError(f"{self.main or 'the schema'} has no message at {list(indexes)}")

    def is_at(self, indexes: Sequence[int], full_name: str) -> bool:
        """Return whether indexes in its file may mean a message, by either way of counting."""
        counted = (
            self._indexes_of(full_name, with_entries=with_entries) for with_entries in (True, False)
        )
        return tuple(indexes) in counted

    def _at(self, names: tuple[str, ...], indexes: Sequence[int], with_entries: bool) -> str | None:
        full_name = None
        for index in indexes:
            names = self._counted(names, with_entries)
            if not 0 <= index < len(names):
                return None
            full_name = names[index]
            names = self.nested[full_name]
        return full_name

    def _counted(self, names: tuple[str, ...], with_entries: bool) -> tuple[str, ...]:
        if with_entries:
            return names
        return tuple(name for name in names if not self.messages[name].is_map_entry)

    def _indexes_of(self, full_name: str, *, with_entries: bool) -> tuple[int, ...]:
        parent = full_name.rpartition(".")[0]
        if parent in self.messages:
            before, names = self._indexes_of(parent, with_entries=with_entries), self.nested[parent]
        else:
            before = ()
            names = next(
                full_names for full_names in self.files.values() if full_name in full_names
            )
        return (*before, self._counted(names, with_entries).index(full_name))


def nearest(name: str, names: Sequence[str]) -> str | None:
    """Return the nearest one of names, which may be many and long: only some are looked at."""
    short = [
        candidate for candidate in names[:_MOST_COMPARED] if len(candidate) <= _LONGEST_COMPARED
    ]
    return did_you_mean(name, short) if len(name) <= _LONGEST_COMPARED else None
