"""Plans that read Avro: flat int32 instructions for ``_native/avro_decode``.

An :class:`AvroTarget` is the reader's side, one for all writers: columns, layout of the builders,
symbols of enums. An :class:`AvroPlan` is the way from one writer's schema into it.

An instruction is four int32: operation, node, and two numbers ``a`` and ``b``. It reads one value
of the writer's schema and appends one value to the node, if it is not said otherwise. Parts of a
record follow each other in the writer's order; places of instructions are numbers of instructions.

=================  =================================================================================
operation          what it does
=================  =================================================================================
END                ends the value
STRUCT             reads nothing, appends a struct; its members are appended by what follows
NULL               reads nothing, appends a null
CONSTANT           reads nothing, appends the constant at ``a``
LIST, NEXT         the instructions between them read one item; LIST knows the place behind NEXT
                   (``a``) and how many bytes an item has at least (``b``)
NULLABLE           reads the index of a union of two: at ``a`` it is null, and goes on at ``b``
UNION              reads the index of a union of ``b`` branches and goes on where the table at ``a``
                   says, -1 for a branch that cannot be read
JUMP               goes on at ``a``
ENUM               reads one of ``b`` symbols, whose numbers in the column are in the table at ``a``
DECIMAL            reads bytes, or ``b`` bytes if that is positive; the table at ``a`` has the power
                   of ten below which the number is, as eight int32
FIXED              reads as many bytes as the column has
BOOL ... UUID      read a value of the type, promoted where there are two names; LONG with ``a`` a
                   timestamp, which is not the smallest long
TIME_MS, TIME_US   read an int or a long, a time of day
SKIP_...           read a value and append nothing: the node is the column around it, or -1
SKIP_LIST          as LIST; blocks that say their size are passed over
SKIP_NULLABLE      as NULLABLE, appends nothing
CALL, RETURN       a record that is skipped in several places, or contains itself
=================  =================================================================================
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import IntEnum, unique
from functools import cached_property
from typing import Final

from kfast.errors import ConfigurationError
from kfast.schemas.avro_columns import columns_of
from kfast.schemas.avro_resolution import Action, Step, resolve
from kfast.schemas.avro_text import AvroKind, AvroSchema, AvroType
from kfast.schemas.layout import constant_bytes, layout, node_count
from kfast.schemas.types import Kind, SchemaField

INSTRUCTION: Final = 4
"""Numbers of an instruction."""
_CALL_FROM: Final = 32
"""Types of a skipped record from which it is an instruction to call."""
_INT_MAX: Final = (1 << 31) - 1
_NO_NODE: Final = -1


@unique
class Op(IntEnum):
    """Operations; the numbers are those of ``avro_decode.pyx``."""

    END = 0
    STRUCT = 1
    NULL = 2
    CONSTANT = 3
    LIST = 4
    NEXT = 5
    NULLABLE = 6
    UNION = 7
    JUMP = 8
    ENUM = 9
    DECIMAL = 10
    FIXED = 11
    BOOL = 12
    INT = 13
    LONG = 14
    FLOAT = 15
    DOUBLE = 16
    BYTES = 17
    STRING = 18
    UUID = 19
    TIME_MS = 20
    TIME_US = 21
    INT_LONG = 22
    INT_FLOAT = 23
    INT_DOUBLE = 24
    LONG_FLOAT = 25
    LONG_DOUBLE = 26
    FLOAT_DOUBLE = 27
    SKIP_INT = 28
    SKIP_LONG = 29
    SKIP_BOOL = 30
    SKIP_BYTES = 31
    SKIP_FIXED = 32
    SKIP_ENUM = 33
    SKIP_LIST = 34
    SKIP_NULLABLE = 35
    CALL = 36
    RETURN = 37


_SAME: Final = {
    AvroKind.BOOLEAN: Op.BOOL, AvroKind.INT: Op.INT, AvroKind.LONG: Op.LONG,
    AvroKind.FLOAT: Op.FLOAT, AvroKind.DOUBLE: Op.DOUBLE, AvroKind.BYTES: Op.BYTES,
    AvroKind.STRING: Op.STRING, AvroKind.FIXED: Op.FIXED,
}  # fmt: skip
_PROMOTED: Final = {
    (AvroKind.INT, AvroKind.LONG): Op.INT_LONG,
    (AvroKind.INT, AvroKind.FLOAT): Op.INT_FLOAT,
    (AvroKind.INT, AvroKind.DOUBLE): Op.INT_DOUBLE,
    (AvroKind.LONG, AvroKind.FLOAT): Op.LONG_FLOAT,
    (AvroKind.LONG, AvroKind.DOUBLE): Op.LONG_DOUBLE,
    (AvroKind.FLOAT, AvroKind.DOUBLE): Op.FLOAT_DOUBLE,
    (AvroKind.STRING, AvroKind.BYTES): Op.BYTES,
    (AvroKind.BYTES, AvroKind.STRING): Op.STRING,
}
_SKIPPED: Final = {
    AvroKind.BOOLEAN: (Op.SKIP_BOOL, 0), AvroKind.INT: (Op.SKIP_INT, 0),
    AvroKind.LONG: (Op.SKIP_LONG, 0), AvroKind.FLOAT: (Op.SKIP_FIXED, 4),
    AvroKind.DOUBLE: (Op.SKIP_FIXED, 8), AvroKind.BYTES: (Op.SKIP_BYTES, 0),
    AvroKind.STRING: (Op.SKIP_BYTES, 0),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class AvroTarget:
    """The columns of a reader's schema."""

    reader: AvroSchema
    column: SchemaField

    @cached_property
    def layout(self) -> array[int]:
        """Layout of the builders."""
        return layout(self.column)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Path of each node, in preorder."""
        return tuple(path for path, _ in self.column.nodes())

    @cached_property
    def symbols(self) -> dict[int, tuple[str, ...]]:
        """Symbols of each enum by node: the categories of its column, in this order."""
        symbols: dict[int, tuple[str, ...]] = {}
        _find_symbols(self.reader.root, self.column, 0, symbols)
        return symbols


def target_of(reader: AvroSchema) -> AvroTarget:
    """Return the columns that values of any writer are read into.

    Raises
    ------
    ConfigurationError
        A part of the schema cannot be a column.
    """
    return AvroTarget(reader, columns_of(reader))


@dataclass(frozen=True, eq=False, repr=False)
class AvroPlan:
    """Instructions, tables and constants."""

    ops: array[int]
    tables: array[int]
    constants: bytes
    paths: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.ops) // INSTRUCTION

    def __repr__(self) -> str:
        """Return one line per instruction."""
        lines = []
        for at in range(len(self)):
            op, node, a, b = self.ops[at * INSTRUCTION : (at + 1) * INSTRUCTION]
            path = self.paths[node] if node >= 0 else ""
            lines.append(f"{at:4} {Op(op).name:<13} {path or 'the root'} {a} {b}")
        return "\n".join(lines)


def compile_plan(writer: AvroSchema, target: AvroTarget, max_depth: int) -> AvroPlan:
    """Return how values of a writer's schema are read.

    Raises
    ------
    ConfigurationError
        Values of the writer's schema cannot be read by the reader's, or are deeper than
        ``max_depth`` levels.
    """
    if writer.root.depth > max_depth:
        raise ConfigurationError(
            f"the writer's schema has {writer.root.depth} levels, more than max_depth={max_depth}"
        )
    compiler = _Compiler(writer)
    compiler.read(resolve(writer, target.reader), target.column, 0)
    compiler.emit(Op.END, 0)
    compiler.finish_calls()
    return AvroPlan(compiler.ops, compiler.tables, bytes(compiler.constants), target.paths)


def _find_symbols(
    avro: AvroType, column: SchemaField, node: int, symbols: dict[int, tuple[str, ...]]
) -> None:
    if avro.kind is AvroKind.UNION:
        (avro,) = (branch for branch in avro.types if branch.kind is not AvroKind.NULL)
    if avro.kind is AvroKind.ENUM:
        symbols[node] = avro.symbols
    node += 1
    inner = tuple(field.type for field in avro.fields) or avro.types
    columns = column.type.fields
    if column.type.kind is Kind.MAP:
        node, columns = node + 1, columns[1:]
    for child, below in zip(inner, columns, strict=True):
        _find_symbols(child, below, node, symbols)
        node += node_count(below)


class _Compiler:
    """Writes instructions; ``here`` is the number of the next one."""

    def __init__(self, writer: AvroSchema) -> None:
        self.ops = array("i")
        self.tables = array("i")
        self.constants = bytearray()
        self._writer = writer
        self._merge_from = 0  # skips before this place are not extended: something goes on here
        self._weights: dict[int, int] = {}
        self._calls: list[tuple[int, str]] = []
        self._called: dict[str, AvroType] = {}

    @property
    def here(self) -> int:
        return len(self.ops) // INSTRUCTION

    def emit(self, op: Op, node: int, a: int = 0, b: int = 0) -> int:
        """Add an instruction and return its place."""
        self.ops.extend((op, node, a, b))
        return self.here - 1

    def _land(self, place: int, number: int) -> None:
        """Let ``a`` or ``b`` (2, 3) of an instruction be the place of the next one."""
        self.ops[place * INSTRUCTION + number] = self._merge_from = self.here

    def read(self, step: Step, column: SchemaField, node: int) -> None:
        """Add what reads one value into a column."""
        writer = step.writer
        if step.action is Action.NULL:
            self.emit(Op.NULL, node)
        elif step.action is Action.RECORD:
            self._record(step, column, node)
        elif step.action in {Action.ARRAY, Action.MAP}:
            self._list(step, column, node)
        elif step.action is Action.BRANCHES:
            self._branches(step, column, node)
        elif step.action is Action.ENUM:
            self.emit(Op.ENUM, node, self._table(step.symbols), len(step.symbols))
        elif column.type.kind in {Kind.DECIMAL128, Kind.DECIMAL256}:
            limit = self._table(_words(10**column.type.precision))
            self.emit(Op.DECIMAL, node, limit, writer.size)
        elif column.type.kind is Kind.UUID and writer.kind is AvroKind.STRING:
            self.emit(Op.UUID, node)
        elif column.type.kind is Kind.TIME32:
            self.emit(Op.TIME_MS, node)
        elif column.type.kind is Kind.TIME64:
            self.emit(Op.TIME_US, node, 0, writer.kind is AvroKind.INT)
        else:
            reader = step.reader.kind
            is_same = writer.kind is reader
            is_time = column.type.kind is Kind.TIMESTAMP
            self.emit(_SAME[reader] if is_same else _PROMOTED[writer.kind, reader], node, is_time)

    def _record(self, step: Step, column: SchemaField, node: int) -> None:
        self.emit(Op.STRUCT, node)
        columns, nodes = column.type.fields, []
        below = node + 1
        for member in columns:
            nodes.append(below)
            below += node_count(member)
        for child, target in zip(step.parts, step.targets, strict=True):
            assert child is not None
            if target < 0:
                self._skip(child.writer, node)
            else:
                self.read(child, columns[target], nodes[target])
        for target, value in step.defaults:
            if value is None:
                self.emit(Op.NULL, nodes[target])
                continue
            self.emit(Op.CONSTANT, nodes[target], len(self.constants))
            self.constants += constant_bytes(columns[target], value)

    def _list(self, step: Step, column: SchemaField, node: int) -> None:
        (item,) = step.parts
        assert item is not None
        smallest = step.writer.types[0].min_size
        if step.action is Action.MAP:
            smallest += 1
        begin = self.emit(Op.LIST, node, 0, min(smallest, _INT_MAX))
        self._merge_from = self.here
        below = node + 1
        if step.action is Action.MAP:
            self.emit(Op.STRING, below)
            below += 1
        self.read(item, column.type.fields[-1], below)
        self.emit(Op.NEXT, node)
        self._land(begin, 2)

    def _branches(self, step: Step, column: SchemaField, node: int) -> None:
        at_null = _null_of_two(step.writer)
        if at_null >= 0 and None not in step.parts:
            (value,) = (p for p in step.parts if p is not None and p.action is not Action.NULL)
            place = self.emit(Op.NULLABLE, node, at_null)
            self.read(value, column, node)
            self._land(place, 3)
            return
        table = self._union(node, len(step.parts))
        ends = []
        for at, branch in enumerate(step.parts):
            if branch is not None:
                self.tables[table + at] = self._merge_from = self.here
                self.read(branch, column, node)
                ends.append(self.emit(Op.JUMP, node))
        for end in ends:
            self._land(end, 2)

    def _union(self, node: int, branches: int) -> int:
        table = self._table((-1,) * branches)
        self.emit(Op.UNION, node, table, branches)
        return table

    def _table(self, numbers: tuple[int, ...]) -> int:
        self.tables.extend(numbers)
        return len(self.tables) - len(numbers)

    # ------------------------------------------------------------------------------------ skipping

    def _skip(self, avro: AvroType, node: int) -> None:
        kind = avro.kind
        if kind in _SKIPPED:
            op, size = _SKIPPED[kind]
            self._emit_skip(op, node, size)
        elif kind is AvroKind.FIXED:
            self._emit_skip(Op.SKIP_FIXED, node, avro.size)
        elif kind is AvroKind.ENUM:
            self.emit(Op.SKIP_ENUM, node, len(avro.symbols))
        elif kind is AvroKind.UNION:
            self._skip_union(avro, node)
        elif kind in {AvroKind.ARRAY, AvroKind.MAP}:
            smallest = avro.types[0].min_size + (kind is AvroKind.MAP)
            begin = self.emit(Op.SKIP_LIST, node, 0, min(smallest, _INT_MAX))
            self._merge_from = self.here
            if kind is AvroKind.MAP:
                self.emit(Op.SKIP_BYTES, node)
            self._skip(avro.types[0], node)
            self.emit(Op.NEXT, node)
            self._land(begin, 2)
        elif kind is AvroKind.RECURSION or (
            kind is AvroKind.RECORD and self._weight(avro) > _CALL_FROM
        ):
            self._calls.append((self.emit(Op.CALL, node), avro.name))
            self._called.setdefault(avro.name, self._writer.target(avro))
        else:
            for member in avro.fields:
                self._skip(member.type, node)

    def _emit_skip(self, op: Op, node: int, size: int) -> None:
        last = (self.here - 1) * INSTRUCTION
        if op is not Op.SKIP_FIXED:
            self.emit(op, node)
        elif self.here > self._merge_from and self.ops[last] == op and self.ops[last + 1] == node:
            self.ops[last + 2] = min(self.ops[last + 2] + size, _INT_MAX)
        elif size:
            self.emit(op, node, size)

    def _skip_union(self, avro: AvroType, node: int) -> None:
        at_null = _null_of_two(avro)
        if at_null >= 0:
            place = self.emit(Op.SKIP_NULLABLE, node, at_null)
            self._merge_from = self.here
            self._skip(avro.types[1 - at_null], node)
            self._land(place, 3)
            return
        table = self._union(node, len(avro.types))
        ends = []
        for at, branch in enumerate(avro.types):
            self.tables[table + at] = self._merge_from = self.here
            self._skip(branch, node)
            ends.append(self.emit(Op.JUMP, node))
        for end in ends:
            self._land(end, 2)

    def finish_calls(self) -> None:
        """Add the records that are called, behind the end."""
        begins: dict[str, int] = {}
        while waiting := self._called.keys() - begins.keys():
            for name in sorted(waiting):
                begins[name] = self._merge_from = self.here
                for member in self._called[name].fields:
                    self._skip(member.type, _NO_NODE)
                self.emit(Op.RETURN, _NO_NODE)
        for place, name in self._calls:
            self.ops[place * INSTRUCTION + 2] = begins[name]

    def _weight(self, avro: AvroType) -> int:
        """Return how many types a value has, at most 1 + _CALL_FROM or a little more."""
        weight = self._weights.get(id(avro))
        if weight is None:
            weight = 1
            for child in (*(member.type for member in avro.fields), *avro.types):
                weight += self._weight(child)
                if weight > _CALL_FROM:
                    break
            self._weights[id(avro)] = weight
        return weight


def _null_of_two(avro: AvroType) -> int:
    """Return the index of null in a union of it and one other type, -1 for other unions."""
    kinds = [branch.kind for branch in avro.types]
    return kinds.index(AvroKind.NULL) if len(kinds) == 2 and AvroKind.NULL in kinds else -1


def _words(number: int) -> tuple[int, ...]:
    """Return a number of 256 bits as int32, the lowest first."""
    words = [number >> shift & 0xFFFFFFFF for shift in range(0, 256, 32)]
    return tuple(word - (1 << 32) if word >> 31 else word for word in words)
