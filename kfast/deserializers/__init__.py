"""Deserializers: what ``key_deserializer`` and ``value_deserializer`` accept.

The public classes convert a whole column in compiled code; a Python callable is applied to each
value. A deserializer reports which rows it cannot read; raising, nulling or skipping them is
decided in ``records.deserializing``. Null values stay null and are never given to a deserializer
(KIP-334; kafka-python does the same).

======================  ============================  ==========================================
class                   wire form                     column
======================  ============================  ==========================================
``Utf8()``              UTF-8 text                    ``StringColumn``
``Int32() Int64()``     big-endian integer            ``ndarray`` int32, int64
``Float32() Float64()`` big-endian IEEE 754           ``ndarray`` float32, float64
``Uuid()``              36 characters, or 16 bytes    ``UuidColumn``
``Struct(dtype)``       the dtype's own bytes         structured ``ndarray`` of that dtype
callable, or object     anything                      ``ndarray`` of objects (slow: one Python
with ``deserialize``                                  call per value)
======================  ============================  ==========================================

A numeric or structured column with nulls is a ``numpy.ma.MaskedArray``.
"""

from __future__ import annotations

from kfast.deserializers.callables import as_deserializer, needs_headers
from kfast.deserializers.deserializer import (
    BadValue,
    DecodedColumn,
    Deserializer,
    FoundErrors,
    NativeDeserializer,
    describe,
    is_native,
)
from kfast.deserializers.numbers import Float32, Float64, Int32, Int64
from kfast.deserializers.struct import Struct
from kfast.deserializers.text import Utf8
from kfast.deserializers.uuid import Uuid

__all__ = [
    "BadValue",
    "DecodedColumn",
    "Deserializer",
    "Float32",
    "Float64",
    "FoundErrors",
    "Int32",
    "Int64",
    "NativeDeserializer",
    "Struct",
    "Utf8",
    "Uuid",
    "as_deserializer",
    "describe",
    "is_native",
    "needs_headers",
]
