"""UUIDs, as text or raw."""

from __future__ import annotations

from dataclasses import dataclass

from kfast._native import deserialize
from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.spans import array_over
from kfast.columns.uuid import UuidColumn
from kfast.deserializers.deserializer import BadValue, DecodedColumn, bad_rows, null_rows


@dataclass(frozen=True, slots=True)
class Uuid:
    """UUIDs: the 36 characters of Java's ``UUIDSerializer``, or 16 raw bytes.

    The column is a :class:`UuidColumn`.

    Examples
    --------
    >>> ids = kfast.read_topic(
    ...     "ids", bootstrap_servers="localhost:9092", value_deserializer=kfast.Uuid()
    ... )
    >>> ids[kfast.TopicPartition("ids", 0)].values.to_list()
    [UUID('00000000-0000-0000-0000-000000000001')]
    """

    def deserialize_column(
        self, column: BytesColumn, _headers: HeadersColumn | None = None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Convert all values."""
        block, flags, first_bad = deserialize.uuid_column(*column.spans, stop_at_first)
        is_null = None if flags is None else null_rows(flags)
        values = UuidColumn(array_over(block, "V16"), is_null)
        return DecodedColumn(values, first_bad, bad_rows(flags, first_bad))

    def explain(self, raw: bytes) -> BadValue:
        """State the forms that are read."""
        return BadValue.of("is not a UUID (36 characters of text, or 16 bytes)", raw)
