"""ColumnData: the memory of a typed column, as decoders have built it.

Owns: one node of a schema's tree with its buffers, and what is done to all nodes alike: selection,
joining, copies, pickling. What users see (:class:`StructColumn`, arrays, ...) are views of it.

==========  ======================================================================================
storage     arrays
==========  ======================================================================================
FIXED       ``data`` of the kind's dtype (:func:`storage_dtype`), zeros where null
BYTES       ``data`` uint8 and ``offsets`` int32[n + 1], or int64 past 2 GiB
LIST        ``offsets`` into the children: the items, or keys and values of a map
STRUCT      children of the same length
DICTIONARY  ``data`` int32, indices into the texts of ``categories``
==========  ======================================================================================

Nulls are a bitmap as Arrow has it, or an array of bool where rows were selected; each is made of
the other at its first access. A child that may be null is null where its struct is; one that may
not is zero there, and has the nulls of its struct only when it is taken out of it.

Thread: any; two threads may make the same array concurrently, with equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from kfast._native import columns
from kfast.columns.spans import (
    Rows,
    array_over,
    block_bytes,
    read_only,
    restored,
    take,
)
from kfast.columns.unknown_fields import UnknownFields
from kfast.errors import ConfigurationError
from kfast.schemas.layout import BYTES, DICTIONARY, FIXED, LIST, STRUCT, storage_of
from kfast.schemas.types import DataType, Kind, SchemaField

if TYPE_CHECKING:
    from kfast._native.builders import Built

_INT32_MAX: Final = 2**31 - 1
_DTYPES: Final = {
    Kind.BOOL: "?", Kind.INT8: "i1", Kind.INT16: "i2", Kind.INT32: "i4", Kind.INT64: "i8",
    Kind.UINT8: "u1", Kind.UINT16: "u2", Kind.UINT32: "u4", Kind.UINT64: "u8",
    Kind.FLOAT32: "f4", Kind.FLOAT64: "f8", Kind.DATE32: "i4", Kind.TIME32: "i4",
    Kind.TIME64: "i8", Kind.TIMESTAMP: "i8", Kind.DURATION: "i8", Kind.DICTIONARY: "i4",
}  # fmt: skip

State = tuple[Any, ...]


def storage_dtype(data_type: DataType) -> np.dtype[Any]:
    """Return the dtype of ``data`` for a type of fixed width, or of indices."""
    return np.dtype(_DTYPES.get(data_type.kind) or f"V{data_type.width}")


class ColumnData:
    """The values of one node; see the module."""

    __slots__ = (
        "_bits",
        "_children",
        "_make_children",
        "_mask",
        "categories",
        "data",
        "field",
        "length",
        "null_count",
        "offsets",
        "unknown",
    )

    def __init__(
        self,
        field: SchemaField,
        length: int,
        *,
        data: NDArray[Any] | None = None,
        offsets: NDArray[Any] | None = None,
        children: Sequence[ColumnData] | Callable[[], Sequence[ColumnData]] = (),
        categories: ColumnData | None = None,
        is_null: NDArray[np.bool_] | None = None,
        bits: Any = None,
        null_count: int | None = None,
        unknown: UnknownFields | None = None,
    ) -> None:
        self.field = field
        self.length = length
        self.data: Any = data
        self.offsets: Any = offsets
        self.categories = categories
        self.unknown = unknown
        """Fields of the documents that have no column; of a root only."""
        self._bits = bits
        if null_count is None:
            null_count = 0 if is_null is None else int(np.count_nonzero(is_null))
        self.null_count = null_count
        self._mask = is_null if null_count else None
        self._make_children = children if callable(children) else None
        self._children = None if callable(children) else tuple(children)

    @classmethod
    def of_built(cls, field: SchemaField, built: Built) -> ColumnData:
        """Return a column over what ``_native.builders`` has finished."""
        storage, length, nulls, bits, data, offsets, dictionary, children = built
        column = cls(
            field,
            length,
            children=lambda: [
                ColumnData.of_built(child, child_built)
                for child, child_built in zip(field.type.fields, children, strict=True)
            ],
            bits=bits,
            null_count=nulls,
        )
        if storage in (FIXED, DICTIONARY):
            column.data = _array(data, storage_dtype(field.type), length)
        elif storage == BYTES:
            column.data = array_over(data, np.uint8)
        if offsets is not None:
            column.offsets = array_over(offsets, np.int32)
        if dictionary is not None:
            count, text_offsets, texts = dictionary
            column.categories = cls(
                _CATEGORY,
                count,
                data=array_over(texts, np.uint8),
                offsets=array_over(text_offsets, np.int32),
            )
        return column

    @classmethod
    def nulls(cls, field: SchemaField, length: int) -> ColumnData:
        """Return a column of nulls; of zeros where the field has none."""
        data_type, storage = field.type, storage_of(field.type)
        inner = 0 if storage == LIST else length
        nodes = cls(
            field,
            length,
            children=[cls.nulls(child, inner) for child in data_type.fields],
            is_null=read_only(np.ones(length, np.bool_)) if field.is_nullable else None,
        )
        if storage in (FIXED, DICTIONARY):
            nodes.data = read_only(np.zeros(length, storage_dtype(data_type)))
        elif storage != STRUCT:
            nodes.offsets = read_only(np.zeros(length + 1, np.int32))
            nodes.data = None if storage == LIST else read_only(np.zeros(0, np.uint8))
        if storage == DICTIONARY:
            nodes.categories = categories_of([])
        return nodes

    @property
    def children(self) -> tuple[ColumnData, ...]:
        """The nodes right below, in the order of the schema; made at the first access."""
        if self._children is None:
            assert self._make_children is not None
            self._children = tuple(self._make_children())
            self._make_children = None
        return self._children

    @property
    def is_null(self) -> NDArray[np.bool_] | None:
        """True where the value is null; None without nulls."""
        if self._mask is None and self.null_count:
            raw = np.frombuffer(self._bits, np.uint8)
            valid = np.unpackbits(raw, count=self.length, bitorder="little")
            self._mask = read_only(valid == 0)
        return self._mask

    @property
    def bits(self) -> Any:
        """Arrow's validity bitmap; None without nulls."""
        if self._bits is None and self.null_count:
            self._bits, _valid = columns.pack_bits(np.ascontiguousarray(self.is_null), True)
        return self._bits

    @property
    def starts_and_lengths(self) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Spans of BYTES, as a BytesColumn has them: -1 long where null."""
        lengths: NDArray[Any] = np.diff(self.offsets).astype(np.int32, copy=False)
        if self.is_null is not None:
            lengths[self.is_null] = -1
        return self.offsets[:-1], read_only(lengths)

    # --- rows -------------------------------------------------------------------------------------

    def select(self, rows: Rows) -> ColumnData:
        """Return some rows; a slice in steps of one shares all memory, other selections copy."""
        selected = self._select(rows)
        if self.unknown is not None:
            selected.unknown = self.unknown.select(rows)
        return selected

    def _select(self, rows: Rows) -> ColumnData:
        mask = None if self.is_null is None else take(self.is_null, rows)
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self.length)
            if step == 1:
                return self._cut(start, max(start, stop), mask)
            rows = np.arange(self.length)[rows]
        rows = np.where(rows < 0, rows + self.length, rows)
        if self.offsets is None:
            return self._with(
                len(rows),
                mask,
                data=None if self.data is None else take(self.data, rows),
                children=[child.select(rows) for child in self.children],
            )
        lengths = np.diff(self.offsets)[rows]
        starts = self.offsets[:-1][rows]
        if storage_of(self.field.type) == BYTES:
            sizes = lengths.astype(np.int32)
            offsets, payload, _bits, _nulls = columns.gather(self.data, starts, sizes)
            width = len(offsets) // (len(rows) + 1)
            return self._with(
                len(rows),
                mask,
                data=array_over(payload, np.uint8),
                offsets=array_over(offsets, f"i{width}"),
            )
        ends = np.cumsum(lengths, dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        items = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
        return self._with(
            len(rows),
            mask,
            offsets=_offsets_of(ends),
            children=[child.select(items) for child in self.children],
        )

    def _cut(self, start: int, stop: int, mask: NDArray[np.bool_] | None) -> ColumnData:
        rows = slice(start, stop)
        if self.offsets is not None:
            return self._with(
                stop - start,
                mask,
                data=self.data,
                offsets=self.offsets[start : stop + 1],
                children=self.children,
            )
        return self._with(
            stop - start,
            mask,
            data=None if self.data is None else self.data[rows],
            children=lambda: [child.select(rows) for child in self.children],
        )

    def _with(self, length: int, mask: NDArray[np.bool_] | None, **arrays: Any) -> ColumnData:
        return ColumnData(self.field, length, is_null=mask, categories=self.categories, **arrays)

    @property
    def items(self) -> tuple[NDArray[Any], tuple[ColumnData, ...]]:
        """Offsets from 0 on, and the children cut to what they cover."""
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        offsets = self.offsets if not first else read_only(self.offsets - first)
        if not first and all(child.length == last for child in self.children):
            return offsets, self.children
        return offsets, tuple(child.select(slice(first, last)) for child in self.children)

    def masked_by(self, parent: ColumnData) -> ColumnData:
        """Return a member as it is seen without its struct: null where that is, too."""
        if not parent.null_count or (self.field.is_nullable and self.null_count):
            return self
        mask = read_only(_mask_of(parent) | _mask_of(self))
        return ColumnData(
            replace(self.field, is_nullable=True),
            self.length,
            data=self.data,
            offsets=self.offsets,
            children=self.children,
            categories=self.categories,
            is_null=mask,
        )

    def as_type(
        self,
        field: SchemaField,
        *,
        data: NDArray[Any] | None = None,
        offsets: NDArray[Any] | None = None,
        children: Sequence[ColumnData] = (),
    ) -> ColumnData:
        """Return values that were converted to the type of a field; nulls stay where they are."""
        column = ColumnData(
            field,
            self.length,
            data=data,
            offsets=offsets,
            children=children,
            bits=self._bits,
            null_count=self.null_count,
            unknown=self.unknown,
        )
        column._mask = self._mask
        return column

    def with_nulls(self, mask: NDArray[np.bool_]) -> ColumnData:
        """Return a column in which the rows of a mask are null, too."""
        return ColumnData(
            self.field,
            self.length,
            data=self.data,
            offsets=self.offsets,
            children=self.children,
            categories=self.categories,
            is_null=read_only(_mask_of(self) | mask),
            unknown=None if self.unknown is None else self.unknown.without(mask),
        )

    # --- memory -----------------------------------------------------------------------------------

    def compact(self) -> ColumnData:
        """Return the same rows in memory of their own."""
        copy = self.select(np.arange(self.length))
        if copy.categories is not None:
            copy.categories = copy.categories.compact()
        return copy

    def blocks(self) -> Iterator[Any]:
        """Yield the buffers that the column keeps alive."""
        for array in (self._bits, self._mask, self.data, self.offsets):
            if array is not None:
                yield array
        if self.categories is not None:
            yield from self.categories.blocks()
        for child in self.children:
            yield from child.blocks()

    @property
    def pinned_nbytes(self) -> int:
        """Bytes of the memory blocks that the column keeps alive."""
        return block_bytes(self.blocks())

    @property
    def nbytes(self) -> int:
        """Bytes of the values, offsets and bitmaps of these rows."""
        total: int = (self.length + 7) // 8 if self.null_count else 0
        children = self.children
        if self.offsets is not None:
            total += (self.length + 1) * int(self.offsets.itemsize)
            if self.data is not None:
                return total + int(self.offsets[-1] - self.offsets[0])
            children = self.items[1]
        elif self.data is not None:
            total += int(self.data.nbytes)
        if self.categories is not None:
            total += self.categories.nbytes
        return total + sum(child.nbytes for child in children)

    def state(self) -> State:
        """Return arrays and children to pickle; compact."""
        if self.offsets is not None and int(self.offsets[0]):
            return self.compact().state()
        data = self.data
        if data is not None and self.offsets is not None:
            data = data[: int(self.offsets[-1])]
        bits = None if self.bits is None else np.frombuffer(self.bits, np.uint8)
        children = self.children if self.offsets is None else self.items[1]
        return (
            self.length,
            self.null_count,
            bits,
            data,
            self.offsets,
            None if self.categories is None else self.categories.state(),
            tuple(child.state() for child in children),
        )

    @classmethod
    def of_state(cls, field: SchemaField, state: State) -> ColumnData:
        """Return the column of a :meth:`state`."""
        length, nulls, bits, data, offsets, categories, children = state
        return cls(
            field,
            length,
            data=None if data is None else restored(data),
            offsets=None if offsets is None else restored(offsets),
            children=[
                cls.of_state(child, child_state)
                for child, child_state in zip(field.type.fields, children, strict=True)
            ],
            categories=None if categories is None else cls.of_state(_CATEGORY, categories),
            bits=None if bits is None else restored(bits),
            null_count=nulls,
        )

    @classmethod
    def concat(cls, chunks: Sequence[ColumnData]) -> ColumnData:
        """Return the rows of several columns of one schema as one.

        Raises
        ------
        ConfigurationError
            Their schemas differ.
        """
        first = chunks[0]
        if len(chunks) == 1:
            return first
        for chunk in chunks:
            if chunk.field.type != first.field.type:
                raise ConfigurationError(
                    f"columns of two schemas cannot be joined: {first.field.type} and "
                    f"{chunk.field.type}"
                )
        length = sum(chunk.length for chunk in chunks)
        mask = None
        if any(chunk.null_count for chunk in chunks):
            mask = read_only(np.concatenate([_mask_of(chunk) for chunk in chunks]))
        unknown = UnknownFields.concat([(chunk.unknown, chunk.length) for chunk in chunks])
        column = cls(first.field, length, is_null=mask, unknown=unknown)
        if first.offsets is not None:
            items = [chunk.items for chunk in chunks] if first.data is None else []
            inner = [children for _offsets, children in items]
            column.offsets = _offsets_of(
                np.cumsum(np.concatenate([np.diff(chunk.offsets) for chunk in chunks]), dtype="i8")
            )
            if first.data is not None:
                column.data = read_only(
                    np.concatenate(
                        [
                            chunk.data[int(chunk.offsets[0]) : int(chunk.offsets[-1])]
                            for chunk in chunks
                        ]
                    )
                )
        else:
            inner = [chunk.children for chunk in chunks]
            if first.categories is not None:
                column.categories, indices = _joined_categories(chunks)
                column.data = read_only(np.concatenate(indices))
            elif first.data is not None:
                column.data = read_only(np.concatenate([chunk.data for chunk in chunks]))
        column._children = tuple(map(cls.concat, zip(*inner, strict=True)))
        return column

    def texts(self) -> list[Any]:
        """Return the texts of a dictionary's categories."""
        starts, lengths = self.starts_and_lengths
        return columns.text_list(self.data, np.ascontiguousarray(starts), lengths)


_CATEGORY: Final = SchemaField("", DataType(Kind.STRING))


def _array(buffer: Any, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    if not dtype.itemsize:
        return read_only(np.zeros(count, dtype))
    return array_over(buffer, dtype, count)


def _mask_of(column: ColumnData) -> NDArray[np.bool_]:
    return np.zeros(column.length, np.bool_) if column.is_null is None else column.is_null


def _offsets_of(ends: NDArray[np.int64]) -> NDArray[Any]:
    """Return offsets from 0 on: int32 if they fit."""
    is_wide = len(ends) > 0 and ends[-1] > _INT32_MAX
    offsets = np.zeros(len(ends) + 1, np.int64 if is_wide else np.int32)
    offsets[1:] = ends
    return read_only(offsets)


def _joined_categories(chunks: Sequence[ColumnData]) -> tuple[ColumnData, list[NDArray[Any]]]:
    """Return one dictionary for all chunks, and their indices into it."""
    numbers: dict[str, int] = {}
    indices = []
    for chunk in chunks:
        assert chunk.categories is not None
        texts = chunk.categories.texts()
        table = np.fromiter(
            (numbers.setdefault(text, len(numbers)) for text in texts), np.int32, len(texts)
        )
        indices.append(table[chunk.data] if len(texts) else np.zeros(chunk.length, np.int32))
    return categories_of(list(numbers)), indices


def categories_of(texts: Sequence[str]) -> ColumnData:
    """Return texts as the categories of a dictionary."""
    raw = [text.encode() for text in texts]
    ends = np.cumsum(np.fromiter(map(len, raw), np.int64, len(raw)))
    data = array_over(b"".join(raw), np.uint8)
    return ColumnData(_CATEGORY, len(raw), data=data, offsets=_offsets_of(ends))
