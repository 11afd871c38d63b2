"""From the data of a typed column to what users get.

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

from typing import TYPE_CHECKING, Any, Final

from kfast.records.columns.bytes import BytesColumn
from kfast.records.columns.column_data import ColumnData
from kfast.records.columns.column_values import array_of, has_array
from kfast.records.columns.decimal import DecimalColumn
from kfast.records.columns.dictionary import DictionaryColumn
from kfast.records.columns.list import ListColumn
from kfast.records.columns.map import MapColumn
from kfast.records.columns.nested import NestedColumn
from kfast.records.columns.null import NullColumn
from kfast.records.columns.struct import StructColumn
from kfast.records.columns.text import StringColumn
from kfast.records.columns.uuid import UuidColumn
from kfast.schemas.types import Kind, SchemaField

if TYPE_CHECKING:
    from kfast._native.builders import Built

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
