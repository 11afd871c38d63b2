"""Text in UTF-8."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kfast._native import deserialize
from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.text import StringColumn
from kfast.deserializers.deserializer import (
    BadValue,
    DecodedColumn,
    bad_rows,
    confluent_schema_id,
)


@dataclass(frozen=True, slots=True)
class Utf8:
    """Text in UTF-8, as Java's ``StringSerializer`` writes it.

    The column is a :class:`StringColumn`; it is checked as a whole and decoded per value on access.

    Examples
    --------
    >>> orders = kfast.read_topic(
    ...     "orders", bootstrap_servers="localhost:9092", key_deserializer=kfast.Utf8()
    ... )
    >>> orders[kfast.TopicPartition("orders", 0)].keys.to_list()
    ['k1', 'k2']
    """

    def deserialize_column(
        self, column: BytesColumn, _headers: HeadersColumn | None = None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Check all values."""
        _, flags, first_bad = deserialize.utf8_column(*column.spans, stop_at_first)
        is_bad = bad_rows(flags, first_bad)
        if is_bad is not None:
            nulled = np.where(is_bad, np.int32(-1), column.lengths)
            column = BytesColumn(column.spans[0], column.starts, nulled, origin=column.origin)
        return DecodedColumn(StringColumn(column), first_bad, is_bad)

    def explain(self, raw: bytes) -> BadValue:
        """Name the first byte that is not UTF-8, or the foreign format it belongs to."""
        at = 0
        if confluent_schema_id(raw) is None:
            try:
                raw.decode()
            except UnicodeDecodeError as error:
                at = error.start
        byte = f"byte {at}: 0x{raw[at]:02x}" if raw else "empty"
        return BadValue.of(f"is not UTF-8 ({byte})", raw).detailed("utf8", "", at)
