"""Avro schema resolution: how values of a writer's schema become values of a reader's.

The result is a tree of steps along the writer's schema, in the order in which its values are
encoded. The rules are those of Avro's specification, strictly: what is not in this list is refused,
with the path and both types.

- same type, or int to long, float and double, long to float and double, float to double, string to
  bytes and back
- records by field name, then by the aliases of the reader's field; a field that only the writer has
  is skipped, one that only the reader has needs a default
- full names are compared without namespace and with the reader's aliases, and not at the root
- fixed of one size; enums by symbol: one that the reader lacks becomes its default, or is an error
  of the row
- a writer's union: a branch that cannot be read is an error of the rows that have it; at least one
  besides null has to be readable
- a reader's union: the first branch of the same type, then the first that the writer's type can be
  promoted to
- two logical types have to be the same: a reader in milliseconds of a writer in microseconds would
  be wrong by a thousand. A plain type and a logical one of the same base go together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Final

from kfast.errors import ConfigurationError
from kfast.schemas.avro_columns import Defaults, SchemaTooLargeError
from kfast.schemas.avro_text import AvroField, AvroKind, AvroSchema, AvroType

MAX_STEPS: Final = 50_000
"""Steps of one pair: unions of records in records multiply."""

_PROMOTIONS: Final = {
    AvroKind.INT: {AvroKind.LONG, AvroKind.FLOAT, AvroKind.DOUBLE},
    AvroKind.LONG: {AvroKind.FLOAT, AvroKind.DOUBLE},
    AvroKind.FLOAT: {AvroKind.DOUBLE},
    AvroKind.STRING: {AvroKind.BYTES},
    AvroKind.BYTES: {AvroKind.STRING},
}


@unique
class Action(IntEnum):
    """What a step does with a value of the writer's type."""

    SKIP = 0
    NULL = 1
    VALUE = 2
    """A value without parts, perhaps promoted."""
    ENUM = 3
    RECORD = 4
    ARRAY = 5
    MAP = 6
    BRANCHES = 7
    """A writer's union."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One value of the writer's type, and what becomes of it.

    ``parts`` are steps of a record's fields in the writer's order, of an array's item, of a map's
    value, or of a union's branches, None for a branch that cannot be read. ``targets`` are the
    numbers of the reader's fields for the fields of the writer's record, -1 for none; ``defaults``
    are numbers and values of the reader's fields that the writer lacks. ``symbols`` are the numbers
    of the reader's symbols for the writer's, -1 for none.
    """

    action: Action
    writer: AvroType
    reader: AvroType
    parts: tuple[Step | None, ...] = ()
    targets: tuple[int, ...] = ()
    defaults: tuple[tuple[int, object], ...] = ()
    symbols: tuple[int, ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether there are values of the writer's type that cannot be read."""
        if self.action is Action.SKIP:
            return False
        return -1 in self.symbols or any(step is None or step.is_partial for step in self.parts)


def resolve(writer: AvroSchema, reader: AvroSchema) -> Step:
    """Return how values of the writer's schema are read.

    Raises
    ------
    ConfigurationError
        Values of the writer's schema cannot be read by the reader's.
    """
    return _Resolver(writer, reader).root()


class _Resolver:
    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer, self._reader = writer, reader
        self._steps = 0
        self._defaults = Defaults()

    def root(self) -> Step:
        """Resolve the roots, whose names are not compared."""
        return self._resolve(self._writer.root, self._reader.root, "", is_root=True)

    def _resolve(
        self, writer: AvroType, reader: AvroType, path: str, *, is_root: bool = False
    ) -> Step:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise SchemaTooLargeError(
                f"the writer's schema and the reader's have more than {MAX_STEPS} pairs of types"
            )
        writer = self._writer.target(writer)
        if reader.kind is AvroKind.RECURSION:
            raise _mismatch(path, writer, reader, "which contains itself")
        if writer.kind is AvroKind.UNION:
            return self._branches(writer, reader, path, is_root)
        if reader.kind is AvroKind.UNION:
            return self._into_union(writer, reader, path, is_root)
        if writer.kind is not reader.kind:
            if reader.kind not in _PROMOTIONS.get(writer.kind, ()):
                raise _mismatch(path, writer, reader)
        elif writer.name and not is_root and not _have_one_name(writer, reader):
            raise _mismatch(path, writer, reader, "which has another name and no alias for it")
        if writer.logical and reader.logical and _meaning(writer) != _meaning(reader):
            raise _mismatch(path, writer, reader)
        return self._same(writer, reader, path)

    def _same(self, writer: AvroType, reader: AvroType, path: str) -> Step:
        if writer.kind is AvroKind.RECORD:
            return self._record(writer, reader, path)
        if writer.kind is AvroKind.ARRAY:
            inner = self._resolve(writer.types[0], reader.types[0], path + "[]")
            return Step(Action.ARRAY, writer, reader, (inner,))
        if writer.kind is AvroKind.MAP:
            inner = self._resolve(writer.types[0], reader.types[0], path + "{value}")
            return Step(Action.MAP, writer, reader, (inner,))
        if writer.kind is AvroKind.ENUM:
            return _enum(writer, reader)
        if writer.kind is AvroKind.FIXED and writer.size != reader.size:
            raise _mismatch(path, writer, reader)
        return Step(Action.NULL if writer.kind is AvroKind.NULL else Action.VALUE, writer, reader)

    def _record(self, writer: AvroType, reader: AvroType, path: str) -> Step:
        sources, missing = _matches(writer, reader)
        defaults = tuple(
            (number, self._defaults.of(reader.fields[number], _below(path, reader.fields[number])))
            for number in missing
        )
        parts: list[Step] = []
        targets: list[int] = []
        for at, field in enumerate(writer.fields):
            target = sources.get(at, -1)
            targets.append(target)
            if target < 0:
                parts.append(Step(Action.SKIP, field.type, field.type))
            else:
                reader_field = reader.fields[target]
                parts.append(
                    self._resolve(field.type, reader_field.type, _below(path, reader_field))
                )
        return Step(Action.RECORD, writer, reader, tuple(parts), tuple(targets), defaults)

    def _branches(self, writer: AvroType, reader: AvroType, path: str, is_root: bool) -> Step:
        """Resolve each branch of a writer's union on its own."""
        parts: list[Step | None] = []
        first: ConfigurationError | None = None
        can_read = can_read_null = False
        for branch in writer.types:
            try:
                parts.append(self._resolve(branch, reader, path, is_root=is_root))
            except SchemaTooLargeError:
                raise
            except ConfigurationError as error:
                first = first or error
                parts.append(None)
            else:
                can_read_null = can_read_null or branch.kind is AvroKind.NULL
                can_read = can_read or branch.kind is not AvroKind.NULL
        is_only_null = all(branch.kind is AvroKind.NULL for branch in writer.types)
        if not can_read and not (is_only_null and can_read_null):
            raise first or _mismatch(path, writer, reader)
        return Step(Action.BRANCHES, writer, reader, tuple(parts))

    def _into_union(self, writer: AvroType, reader: AvroType, path: str, is_root: bool) -> Step:
        """Choose the branch of a reader's union: the same type first, then a promotion."""
        first: ConfigurationError | None = None
        same = [branch for branch in reader.types if branch.kind is writer.kind]
        for branch in (*same, *(b for b in reader.types if b.kind is not writer.kind)):
            try:
                return self._resolve(writer, branch, path, is_root=is_root)
            except SchemaTooLargeError:
                raise
            except ConfigurationError as error:
                first = first or error
        if same and first:
            raise first
        raise _mismatch(path, writer, reader)


def _matches(writer: AvroType, reader: AvroType) -> tuple[dict[int, int], tuple[int, ...]]:
    """Return ``{writer's field: reader's field}``, and the reader's fields without one."""
    numbers = {field.name: at for at, field in enumerate(writer.fields)}
    names = {field.name for field in reader.fields}
    sources: dict[int, int] = {}
    defaults: list[int] = []
    for at, field in enumerate(reader.fields):
        source = numbers.get(field.name)
        if source is None:
            free = (numbers[a] for a in field.aliases if a in numbers and a not in names)
            source = next((number for number in free if number not in sources), None)
        if source is None:
            defaults.append(at)
        else:
            sources[source] = at
    return sources, tuple(defaults)


def _enum(writer: AvroType, reader: AvroType) -> Step:
    numbers = {symbol: at for at, symbol in enumerate(reader.symbols)}
    default = -1 if reader.default_symbol is None else numbers[reader.default_symbol]
    symbols = tuple(numbers.get(symbol, default) for symbol in writer.symbols)
    return Step(Action.ENUM, writer, reader, symbols=symbols)


def _have_one_name(writer: AvroType, reader: AvroType) -> bool:
    aliases = (alias.rpartition(".")[2] for alias in reader.aliases)
    return writer.short_name in (reader.short_name, *aliases)


def _meaning(avro: AvroType) -> tuple[str, int, int]:
    return avro.logical, avro.precision, avro.scale


def _below(path: str, field: AvroField) -> str:
    return f"{path}.{field.name}" if path else field.name


def _mismatch(path: str, writer: AvroType, reader: AvroType, but: str = "") -> ConfigurationError:
    return ConfigurationError(
        f"{path or 'the root'}: the writer's schema has {writer}, the reader's {reader}"
        + (f", {but}" if but else ""),
        hint="read with a schema that the writer's is compatible with, or leave the column out",
        path=path,
    )
