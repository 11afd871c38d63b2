"""``NullColumn``: rows whose schema is not known yet."""

from __future__ import annotations

from typing import Any

import numpy as np

from kfast.columns.bytes import BytesColumn
from kfast.columns.column_data import ColumnData
from kfast.columns.nested import NestedColumn
from kfast.columns.spans import masked_array, read_only
from kfast.columns.text import StringColumn
from kfast.columns.uuid import UuidColumn


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
