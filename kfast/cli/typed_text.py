"""Typed keys and values of ``kfast read`` as text: rows are decoded some at a time.

Owns: which columns the text writer gets for a schema, and what of the rows that are written could
not be read. Imported only for keys and values with a schema: it brings NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from kfast.cli.formats import TypedColumn
from kfast.cli.sinks import Piece
from kfast.cli.typed_values import with_command_hint
from kfast.columns.column_text import text_source
from kfast.columns.typed import StructColumn
from kfast.deserializers.formats import known_root
from kfast.internals import ColumnTexts
from kfast.records.deserializing import OnError, TypedRows, decode_typed
from kfast.schemas.types import DataType, Kind

if TYPE_CHECKING:
    from kfast.cli.slices import Slice
    from kfast.cli.typed_values import ErrorsFile
    from kfast.columns.column_data import ColumnData
    from kfast.deserializers.typed import TypedDeserializer

_PIECE_BYTES: Final = 1 << 20
"""Of received records that are decoded at a time: their texts stay in the cache."""
_ON_ERROR: Final[Mapping[str, OnError]] = {"fail": "raise", "null": "null", "skip": "skip"}
_RECORD_COLUMNS: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestamp_type"})
_NUMBERS: Final = frozenset(
    {*range(Kind.INT8, Kind.FLOAT64 + 1), Kind.DURATION, Kind.DECIMAL128, Kind.DECIMAL256}
)

Columns = Mapping[str, Sequence[TypedColumn]]


class TypedTexts:
    """Decodes rows of slices, and has their texts ready for the text writer.

    ``deserializers`` are those of the keys and values that are written; ``columns`` are all that
    are. With ``is_flat`` the members of structs are columns of their own. ``topic`` is the one that
    is read, None for several.
    """

    def __init__(
        self,
        deserializers: Mapping[str, TypedDeserializer],
        *,
        columns: Sequence[str],
        on_error: str,
        is_json: bool,
        is_flat: bool,
        errors: ErrorsFile | None,
        topic: str | None = None,
    ) -> None:
        self._deserializers = {
            name: deserializers[name] for name in ("key", "value") if name in deserializers
        }
        self._taken = _RECORD_COLUMNS | ({"key", "value", "headers", "leader_epoch"} & {*columns})
        self._on_error = _ON_ERROR[on_error]
        self._is_json = is_json
        self.is_flat = is_flat
        self._errors = errors
        self._topic = topic
        self._texts: list[ColumnTexts] = []
        self._decoded: TypedRows | None = None
        self._first = 0
        self.nulled = 0

    def columns(self) -> Columns:
        """Return the columns where no record has come."""
        types = {
            name: self._type_of(name, deserializer)
            for name, deserializer in self._deserializers.items()
        }
        columns: dict[str, list[TypedColumn]] = {}
        taken = self._taken_names(types)
        for name, kind in types.items():
            if not self._is_flattened(kind):
                columns[name] = [_column(name, kind)]
                continue
            assert kind is not None
            names = _free_names(name, [field.name for field in kind.fields], taken)
            columns[name] = [
                _column(member, field.type)
                for member, field in zip(names, kind.fields, strict=True)
            ]
        return columns

    def _type_of(self, name: str, deserializer: TypedDeserializer) -> DataType | None:
        """Return the type of a key or value, as far as it is needed and known without records."""
        root = deserializer.root
        if root is None and self.is_flat and self._topic is not None:
            root = known_root(deserializer, self._topic, name)
        return None if root is None else root.type

    def pieces(self, rows: Slice) -> Iterator[Piece]:
        """Decode rows, about ``_PIECE_BYTES`` at a time."""
        step = max(1, _PIECE_BYTES * len(rows) // max(1, rows.nbytes))
        start = rows.start
        while start < rows.stop:
            stop = min(start + step, rows.stop)
            piece = self._piece(rows, start, stop)
            yield piece
            start = stop

    def note(self, stop: int) -> None:
        """Count what is bad in the rows before one, and keep it for ``--errors``."""
        decoded = self._decoded
        if decoded is None or not len(decoded.error_rows):
            return
        done = int(np.searchsorted(decoded.error_rows, stop - self._first))
        if not done:
            return
        if self._on_error == "null":
            self.nulled += done
        if self._errors is not None:
            self._errors.add(decoded.errors[:done])
        decoded.error_rows = decoded.error_rows[done:]
        decoded.errors = decoded.errors[done:]

    def _piece(self, rows: Slice, start: int, stop: int) -> Piece:
        tp = rows.topic_partition
        # A registry that has just failed is not asked again by what ends the text.
        topic, self._topic = self._topic, None
        decoded = decode_typed(
            tp.topic,
            tp.partition,
            rows.index,
            slice(start, stop),
            self._deserializers,
            on_error=self._on_error,
        )
        self._decoded, self._first, self._topic = decoded, start, topic
        columns: dict[str, list[TypedColumn]] = {}
        nodes: list[ColumnData] = []
        taken = self._taken_names({name: node.field.type for name, node in decoded.nodes.items()})
        for name in self._deserializers:
            members = self._members(name, decoded.nodes[name], taken)
            columns[name] = [_column(member, node.field.type) for member, node in members]
            nodes += [node for _, node in members]
        while len(self._texts) < len(nodes):
            self._texts.append(ColumnTexts(is_json=self._is_json))
        for texts, node in zip(self._texts, nodes, strict=False):
            texts.write(text_source(node))
        is_left_out = decoded.is_bad if self._on_error == "skip" else None
        typed = {
            "columns": self._texts,
            "first": start,
            "left_out": None if is_left_out is None else is_left_out.view(np.uint8),
        }
        error = decoded.error
        if error is not None:
            with_command_hint(error)
        return Piece(start + decoded.count, columns, typed, error)

    def _members(
        self, name: str, node: ColumnData, taken: set[str]
    ) -> list[tuple[str, ColumnData]]:
        """Return the columns of a key or value, each with its name."""
        if not self._is_flattened(node.field.type):
            return [(name, node)]
        members = [*StructColumn(node).flattened()]
        names = _free_names(name, [member for member, _ in members], taken)
        return [*zip(names, (node for _, node in members), strict=True)]

    def _is_flattened(self, kind: DataType | None) -> bool:
        return self.is_flat and kind is not None and kind.kind is Kind.STRUCT

    def _taken_names(self, types: Mapping[str, DataType | None]) -> set[str]:
        """Return the names that members cannot have: of columns that are not flattened."""
        return {*self._taken} - {name for name, kind in types.items() if self._is_flattened(kind)}


def _free_names(column: str, members: Sequence[str], taken: set[str]) -> list[str]:
    """Return the names of members; one that is taken gets that of the column before it."""
    names = []
    for member in members:
        name = member
        while name in taken:
            name = f"{column}.{name}"
        taken.add(name)
        names.append(name)
    return names


def _column(name: str, kind: DataType | None) -> TypedColumn:
    return TypedColumn(name, kind is not None and kind.kind in _NUMBERS)
