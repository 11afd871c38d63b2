"""Typed columns, and from their data to what users get.

Lists, maps and structs are here, since their items and members are columns of any kind.

==============================================  ==================================================
type                                            column
==============================================  ==================================================
numbers, bool, times, fixed_size_binary         ndarray, or MaskedArray if there are nulls
string, JSON raw                                :class:`StringColumn`
binary, raw                                     :class:`BytesColumn`
uuid                                            :class:`UuidColumn`
dictionary, decimal, list, map, struct          the class of that name
none yet                                        :class:`NullColumn`
==============================================  ==================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kfast._base.spelling import did_you_mean
from kfast.columns.arrow import ArrowColumn, SchemaNode, free_name
from kfast.columns.bytes import BytesColumn
from kfast.columns.column_arrow import arrow_of
from kfast.columns.column_data import ColumnData
from kfast.columns.column_values import array_of, has_array, plain_array, unscaled_numbers
from kfast.columns.nested import NestedColumn
from kfast.columns.spans import masked_array, object_array, read_only
from kfast.columns.text import StringColumn
from kfast.columns.uuid import UuidColumn
from kfast.schemas.types import DataType, Kind

if TYPE_CHECKING:
    pass


class DictionaryColumn(NestedColumn):
    """A column of texts that repeat: names of enums, codes.

    Notes
    -----
    ``column[i]`` is a str or None; slices, masks and lists of row numbers give columns.
    ``column == "buy"`` is a mask of shape (n,); nulls are neither equal to a text nor different
    from it.

    Examples
    --------
    >>> side = '{"type": "enum", "name": "Side", "symbols": ["buy", "sell"]}'
    >>> sides = kfast.Avro(side).decode([b"\\x00", b"\\x02"]).values
    >>> sides.to_list(), sides == "buy"
    (['buy', 'sell'], array([ True, False]))
    """

    __slots__ = ()

    @property
    def indices(self) -> NDArray[np.int32]:
        """Which of ``categories`` each row has, 0 where null; shape (n,)."""
        data: NDArray[np.int32] = self._node.data
        return data

    @property
    def categories(self) -> list[str]:
        """The texts; some may be in no row."""
        return [] if self._node.categories is None else self._node.categories.texts()

    def _equal_to(self, value: object) -> NDArray[np.bool_]:
        if not isinstance(value, str):
            raise TypeError(f"a DictionaryColumn compares with str, not {type(value).__name__}")
        matching = [index for index, text in enumerate(self.categories) if text == value]
        return read_only(np.isin(self.indices, matching) & ~self.is_null)


class DecimalColumn(NestedColumn):
    """A column of exact decimals.

    Notes
    -----
    ``column[i]`` is a ``decimal.Decimal`` or None; slices, masks and lists of row numbers give
    columns.

    Examples
    --------
    >>> prices = kfast.Json({"price": "decimal(10, 2)"}).decode([b'{"price": 9.50}'])
    >>> prices.values["price"][0]
    Decimal('9.50')
    """

    __slots__ = ()

    @property
    def scale(self) -> int:
        """Digits after the point."""
        return self._node.field.type.scale

    @property
    def precision(self) -> int:
        """Digits in all."""
        return self._node.field.type.precision

    @property
    def unscaled(self) -> NDArray[np.uint64]:
        """The value times 10**scale in two's complement, zeros where null.

        Shape (n, 2), or (n, 4) for ``decimal256``; words in the byte order of the machine, so on
        most machines the lowest comes first.
        """
        data: NDArray[Any] = self._node.data
        words = self._node.field.type.width // 8
        return np.ascontiguousarray(data).view(np.uint64).reshape(len(data), words)

    def to_numpy(self, dtype: DTypeLike = object) -> NDArray[Any]:
        """Return ``Decimal`` objects (default), or the nearest floats, masked where null."""
        target_dtype = np.dtype(dtype)
        if target_dtype.kind == "O":
            return object_array(self.to_list())
        if target_dtype.kind != "f":
            raise TypeError(f"decimals cannot be converted to {target_dtype}")
        # The quotient of two ints is rounded once.
        unit = 10 ** max(self.scale, 0)
        factor = 10 ** max(-self.scale, 0)
        values = np.array([n * factor / unit for n in unscaled_numbers(self._node)], target_dtype)
        mask = self._node.is_null
        return read_only(values) if mask is None else masked_array(values, mask)


class NullColumn(NestedColumn):
    """Rows that are all null, as no value has said yet what its schema is; in Arrow of type null.

    Joined with rows whose schema is known it becomes nulls of that schema.
    """

    __slots__ = ()

    def nulls_like(self, other: Any) -> Any:
        """Return the same rows as nulls of another column's kind."""
        count = len(self)
        if isinstance(other, np.ndarray):
            return masked_array(np.zeros(count, other.dtype), np.ones(count, np.bool_))
        if isinstance(other, NestedColumn):
            return type(other)(ColumnData.nulls(other.node.field, count))
        if isinstance(other, UuidColumn):
            nothing, nulls = np.zeros(count, "V16"), np.ones(count, np.bool_)
            return UuidColumn(read_only(nothing), read_only(nulls))
        raw = BytesColumn.from_values([None] * count)
        return StringColumn(raw) if isinstance(other, StringColumn) else raw


class ListColumn(NestedColumn):
    """A column of lists.

    Notes
    -----
    ``column[i]`` is a list or None; slices, masks and lists of row numbers give columns. Row ``i``
    has the elements ``offsets[i]`` to ``offsets[i + 1]`` of ``items``.

    Examples
    --------
    >>> tags = kfast.Json({"tags": ["string"]}).decode([b'{"tags": ["a", "b"]}']).values["tags"]
    >>> tags[0], tags.items
    (['a', 'b'], <StringColumn n=2 nulls=0 nbytes=2 [a, b]>)
    """

    __slots__ = ()

    @property
    def offsets(self) -> NDArray[Any]:
        """Where each list begins in ``items``; int32 or int64, shape (n + 1,)."""
        return self._node.items[0]

    @property
    def lengths(self) -> NDArray[Any]:
        """Elements of each list, 0 for null; shape (n,)."""
        return read_only(np.diff(self._node.offsets))

    @property
    def items(self) -> Any:
        """The elements of all rows, as a column."""
        return column_of(self._node.items[1][0])


class MapColumn(NestedColumn):
    """A column of maps from text to values of one type.

    Notes
    -----
    ``column[i]`` is a dict or None; slices, masks and lists of row numbers give columns. Row ``i``
    has the entries ``offsets[i]`` to ``offsets[i + 1]`` of ``keys`` and ``values``.

    Examples
    --------
    >>> counts = kfast.Json({"n": "map<string, int64>"}).decode([b'{"n": {"a": 1}}']).values["n"]
    >>> counts[0]
    {'a': 1}
    """

    __slots__ = ()

    @property
    def offsets(self) -> NDArray[Any]:
        """Where the entries of each row begin; int32, shape (n + 1,)."""
        return self._node.items[0]

    @property
    def lengths(self) -> NDArray[Any]:
        """Entries of each map, 0 for null; shape (n,)."""
        return read_only(np.diff(self._node.offsets))

    @property
    def keys(self) -> Any:
        """The keys of all rows, as a column."""
        return self._entries(0)

    @property
    def values(self) -> Any:
        """The values of all rows, as a column."""
        return self._entries(1)

    def _entries(self, index: int) -> Any:
        return column_of(self._node.items[1][index])


class StructColumn(NestedColumn):
    """A column of structs: a sequence of dicts, and named columns.

    Notes
    -----
    ``column["a"]`` is a column: an array, a MaskedArray if it has nulls, a ``StringColumn``, ...;
    ``column["a.b"]`` is ``column["a"]["b"]``, unless there is a member of that name;
    ``column["a", "b"]`` is a StructColumn with these members. ``column[i]`` is a dict or None;
    slices, masks and lists of row numbers give StructColumns.

    A null row is no row of nulls: ``is_null`` has it. In the column of a member both are null.
    ``column == {...}`` is a mask of shape (n,), for ``records[...]``; compared with another
    StructColumn the result is one bool: the same types and values.

    Examples
    --------
    >>> orders = kfast.Json({"id": "int64", "at": {"city": "string"}})
    >>> column = orders.decode([b'{"id": 1, "at": {"city": "Ulm"}}']).values
    >>> column["id"], column["at.city"].to_list(), column[0]
    (array([1]), ['Ulm'], {'id': 1, 'at': {'city': 'Ulm'}})
    """

    __slots__ = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the members."""
        return tuple(field.name for field in self._node.field.type.fields)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._path(name) is not None

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> dict[str, Any] | None: ...
    @overload
    def __getitem__(self, rows: str) -> Any: ...
    @overload
    def __getitem__(self, rows: tuple[str, ...]) -> StructColumn: ...
    @overload
    def __getitem__(self, rows: slice | list[int] | NDArray[Any]) -> StructColumn: ...
    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, str):
            return column_of(self.member(rows))
        if isinstance(rows, tuple) and rows and all(isinstance(name, str) for name in rows):
            return self._with_members(rows)
        return NestedColumn.__getitem__(self, rows)

    def member(self, name: str) -> ColumnData:
        """Return the data of a member by its name or path, null where its structs are.

        Raises
        ------
        KeyError
            There is no such member; the message has the nearest name.
        """
        path = self._path(name)
        if path is None:
            near = did_you_mean(name, self.names)
            asked = f'; did you mean "{near}"?' if near else ""
            raise KeyError(f'no column "{name}" in {", ".join(self.names)}{asked}')
        node = self._node
        for position in path:
            node = node.children[position].masked_by(node)
        return node

    def _path(self, name: str) -> list[int] | None:
        """Return positions of members from the outermost in; an exact name wins over a path."""
        return _find(self._node.field.type, name)

    def _with_members(self, names: tuple[str, ...]) -> StructColumn:
        nodes = [self.member(name) for name in names]
        fields = tuple(node.field.renamed(name) for node, name in zip(nodes, names, strict=True))
        kind = DataType(Kind.STRUCT, fields=fields)
        field = type(self._node.field)(self._node.field.name, kind, self._node.field.is_nullable)
        return StructColumn(
            ColumnData(field, len(self), children=nodes, is_null=self._node.is_null)
        )

    def flattened(self, *, nested: bool = False) -> Iterator[tuple[str, ColumnData]]:
        """Yield name and data of the members, null where the struct is.

        With ``nested`` those of members that are structs take their place, named ``a.b``.
        """
        for child in self._node.children:
            node = child.masked_by(self._node)
            if nested and node.field.type.kind is Kind.STRUCT:
                for name, inner in StructColumn(node).flattened(nested=True):
                    yield f"{child.field.name}.{name}", inner
            else:
                yield child.field.name, node

    def flattened_columns(
        self, column: str, taken: set[str], form: Callable[[str], Any], *, nested: bool
    ) -> Iterator[ArrowColumn]:
        """Yield the members as Arrow columns of a table.

        See `free_name` for the names; ``form`` is the requested form of one, None for the usual.
        """
        for member, node in self.flattened(nested=nested):
            name = free_name(member, column, taken)
            request = form(name)
            requested = SchemaNode(request, "") if isinstance(request, str) else None
            yield arrow_of(node, name, requested, is_nullable=True)

    def to_numpy(self, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """Return a structured array if all members have a fixed width, else dicts.

        With nulls anywhere the structured array is a MaskedArray. ``dtype=object`` gives dicts.
        """
        fields = self._node.field.type.fields
        if dtype is None and all(has_array(field.type) for field in fields):
            return self._structured()
        if dtype is not None and np.dtype(dtype).kind != "O":
            raise TypeError(f"structs cannot be converted to {np.dtype(dtype)}")
        return object_array(self.to_list())

    def _structured(self) -> NDArray[Any]:
        nodes = [node for _name, node in self.flattened()]
        arrays = [plain_array(node) for node in nodes]
        structured = np.zeros(
            len(self), [(n, a.dtype) for n, a in zip(self.names, arrays, strict=True)]
        )
        for name, array in zip(self.names, arrays, strict=True):
            structured[name] = array
        if not any(node.null_count for node in nodes):
            return read_only(structured)
        mask: NDArray[Any] = np.zeros(len(self), np.ma.make_mask_descr(structured.dtype))
        for name, node in zip(self.names, nodes, strict=True):
            if node.is_null is not None:
                mask[name] = node.is_null
        return masked_array(structured, mask)


def _find(data_type: DataType, name: str) -> list[int] | None:
    if data_type.kind is not Kind.STRUCT:
        return None
    for position, field in enumerate(data_type.fields):
        if field.name == name:
            return [position]
    for position, field in enumerate(data_type.fields):
        if name.startswith(f"{field.name}."):
            inner = _find(field.type, name[len(field.name) + 1 :])
            if inner is not None:
                return [position, *inner]
    return None


_CLASSES: Final[dict[Kind, type[NestedColumn]]] = {
    Kind.DICTIONARY: DictionaryColumn,
    Kind.DECIMAL128: DecimalColumn,
    Kind.DECIMAL256: DecimalColumn,
    Kind.LIST: ListColumn,
    Kind.MAP: MapColumn,
    Kind.STRUCT: StructColumn,
    Kind.NULL: NullColumn,
}


def column_of(node: ColumnData) -> Any:
    """Return the user's column over some data."""
    data_type = node.field.type
    kind = _CLASSES.get(data_type.kind)
    if kind is not None:
        return kind(node)
    if has_array(data_type):
        return array_of(node)
    if data_type.kind is Kind.UUID:
        return UuidColumn(node.data, node.is_null)
    column = BytesColumn.of_offsets(node.data, node.offsets, node.is_null)
    is_text = data_type.kind is Kind.STRING or (data_type.kind is Kind.RAW and data_type.is_json)
    return StringColumn(column) if is_text else column
