"""Numbers in Kafka's big-endian serialization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kfast._native import deserialize
from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.spans import array_over
from kfast.deserializers.deserializer import BadValue, DecodedColumn, bad_rows, masked


class _BigEndianNumber:
    """What the four classes have in common: they differ in the column's dtype only."""

    __slots__ = ()

    # Made once: for a single record, making the dtype is the longest part of converting it.
    _dtype: ClassVar[np.dtype[Any]]
    _phrase: ClassVar[str]

    def deserialize_column(
        self, column: BytesColumn, _headers: HeadersColumn | None = None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Convert all values."""
        dtype = self._dtype
        block, flags, first_bad = deserialize.big_endian_column(
            *column.spans, dtype.itemsize, stop_at_first
        )
        values = array_over(block, dtype)
        if flags is None:
            return DecodedColumn(values)
        return DecodedColumn(masked(values, flags), first_bad, bad_rows(flags, first_bad))

    def explain(self, raw: bytes) -> BadValue:
        """State both sizes."""
        return BadValue.of_wrong_size(self._phrase, self._dtype.itemsize, raw)


@dataclass(frozen=True, slots=True)
class Int32(_BigEndianNumber):
    """4-byte big-endian integers, as Java's ``IntegerSerializer`` writes them; column int32.

    Examples
    --------
    >>> read = kfast.read_topic(
    ...     "int32s", bootstrap_servers="localhost:9092", value_deserializer=kfast.Int32()
    ... )
    >>> read[kfast.TopicPartition("int32s", 0)].values
    array([1, 2], dtype=int32)
    """

    _dtype = np.dtype(np.int32)
    _phrase = "an Int32"


@dataclass(frozen=True, slots=True)
class Int64(_BigEndianNumber):
    """8-byte big-endian integers, as Java's ``LongSerializer`` writes them; column int64.

    Examples
    --------
    >>> read = kfast.read_topic(
    ...     "int64s", bootstrap_servers="localhost:9092", value_deserializer=kfast.Int64()
    ... )
    >>> read[kfast.TopicPartition("int64s", 0)].values
    array([1, 2])
    """

    _dtype = np.dtype(np.int64)
    _phrase = "an Int64"


@dataclass(frozen=True, slots=True)
class Float32(_BigEndianNumber):
    """4-byte big-endian floats, as Java's ``FloatSerializer`` writes them; column float32.

    Examples
    --------
    >>> read = kfast.read_topic(
    ...     "float32s", bootstrap_servers="localhost:9092", value_deserializer=kfast.Float32()
    ... )
    >>> read[kfast.TopicPartition("float32s", 0)].values
    array([0.5, 1. ], dtype=float32)
    """

    _dtype = np.dtype(np.float32)
    _phrase = "a Float32"


@dataclass(frozen=True, slots=True)
class Float64(_BigEndianNumber):
    """8-byte big-endian floats, as Java's ``DoubleSerializer`` writes them; column float64.

    Examples
    --------
    >>> read = kfast.read_topic(
    ...     "float64s", bootstrap_servers="localhost:9092", value_deserializer=kfast.Float64()
    ... )
    >>> read[kfast.TopicPartition("float64s", 0)].values
    array([0.5, 1. ])
    """

    _dtype = np.dtype(np.float64)
    _phrase = "a Float64"
