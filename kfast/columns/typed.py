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
from kfast.columns.arrow.arrays import free_name
from kfast.columns.arrow.nodes import ArrowColumn, SchemaNode
from kfast.columns.bytes import BytesColumn
from kfast.columns.column_arrow import arrow_of
from kfast.columns.column_data import ColumnData
from kfast.columns.column_values import array_of, has_array, plain_array
from kfast.columns.decimal import DecimalColumn
from kfast.columns.dictionary import DictionaryColumn
from kfast.columns.nested import NestedColumn
from kfast.columns.null import NullColumn
from kfast.columns.spans import masked_array, object_array, read_only
from kfast.columns.text import StringColumn
from kfast.columns.uuid import UuidColumn
from kfast.schemas.types import DataType, Kind, SchemaField

if TYPE_CHECKING:
    from kfast._native.builders import Built


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

    def _entries(self, part: int) -> Any:
        return column_of(self._node.items[1][part])


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
            wanted = form(name)
            requested = SchemaNode(wanted, "") if isinstance(wanted, str) else None
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
        made = np.zeros(len(self), [(n, a.dtype) for n, a in zip(self.names, arrays, strict=True)])
        for name, array in zip(self.names, arrays, strict=True):
            made[name] = array
        if not any(node.null_count for node in nodes):
            return read_only(made)
        mask: NDArray[Any] = np.zeros(len(self), np.ma.make_mask_descr(made.dtype))
        for name, node in zip(self.names, nodes, strict=True):
            if node.is_null is not None:
                mask[name] = node.is_null
        return masked_array(made, mask)


def _find(made: DataType, name: str) -> list[int] | None:
    if made.kind is not Kind.STRUCT:
        return None
    for position, field in enumerate(made.fields):
        if field.name == name:
            return [position]
    for position, field in enumerate(made.fields):
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


def typed_column(field: SchemaField, built: Built) -> Any:
    """Return the column of what ``_native.builders`` has finished."""
    return column_of(ColumnData.of_built(field, built))


def column_of(node: ColumnData) -> Any:
    """Return the user's column over some data."""
    made = node.field.type
    kind = _CLASSES.get(made.kind)
    if kind is not None:
        return kind(node)
    if has_array(made):
        return array_of(node)
    if made.kind is Kind.UUID:
        return UuidColumn(node.data, node.is_null)
    column = BytesColumn.of_offsets(node.data, node.offsets, node.is_null)
    is_text = made.kind is Kind.STRING or (made.kind is Kind.RAW and made.is_json)
    return StringColumn(column) if is_text else column
