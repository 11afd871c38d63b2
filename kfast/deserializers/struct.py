"""Values of a fixed layout, as a structured NumPy dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from kfast._native import deserialize
from kfast.columns.bytes import INVALID_TEXT, BytesColumn, invalid_text
from kfast.columns.headers import HeadersColumn
from kfast.columns.spans import array_over, read_only
from kfast.deserializers.deserializer import BadValue, DecodedColumn, also_bad, bad_rows, masked
from kfast.errors import ConfigurationError


@dataclass(frozen=True, slots=True, init=False)
class Struct:
    """Values of a fixed layout: any structured NumPy dtype, in any byte order.

    The column is a structured array of exactly this dtype. Arrow gets a struct of native fields.

    Parameters
    ----------
    dtype : dtype-like
        A structured dtype without object fields. Every value must have ``dtype.itemsize`` bytes,
        and no code point past U+10FFFF in fields of text (``U``).

    Raises
    ------
    ConfigurationError
        The dtype is not structured, is empty, or has object fields.

    Examples
    --------
    >>> reading = kfast.Struct([("sensor", "<i4"), ("celsius", "<f4")])
    >>> read = kfast.read_topic(
    ...     "readings", bootstrap_servers="localhost:9092", value_deserializer=reading
    ... )
    >>> read[kfast.TopicPartition("readings", 0)].values["celsius"]
    array([20.5], dtype=float32)
    """

    dtype: np.dtype[Any]

    def __init__(self, dtype: DTypeLike) -> None:
        try:
            struct_dtype = np.dtype(dtype)
        except TypeError as error:
            raise ConfigurationError(f"Struct({dtype!r}): not a NumPy dtype") from error
        if not struct_dtype.names or struct_dtype.hasobject or not struct_dtype.itemsize:
            raise ConfigurationError(
                f"Struct({struct_dtype}): needs a structured dtype without object fields",
                hint='for example Struct([("id", ">i8"), ("price", ">f8")])',
            )
        object.__setattr__(self, "dtype", struct_dtype)

    def deserialize_column(
        self, column: BytesColumn, _headers: HeadersColumn | None = None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Gather all values."""
        block, flags, first_bad = deserialize.block_column(
            *column.spans, self.dtype.itemsize, stop_at_first
        )
        values = array_over(block, self.dtype)
        invalid = invalid_text(values)
        if invalid is not None:
            values = values.copy()
            values[invalid] = np.zeros((), self.dtype)
            flags, first_bad = also_bad(flags, first_bad, invalid)
        return DecodedColumn(
            masked(read_only(values), flags), first_bad, bad_rows(flags, first_bad)
        )

    def explain(self, raw: bytes) -> BadValue:
        """State both sizes, or that text in it is invalid."""
        if len(raw) == self.dtype.itemsize:
            return BadValue.of(INVALID_TEXT, raw, is_number=True)
        return BadValue.of_wrong_size("a Struct", self.dtype.itemsize, raw)
