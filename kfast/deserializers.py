"""Deserializers: what ``key_deserializer`` and ``value_deserializer`` accept.

Owns: the public deserializer classes, which convert a whole column in compiled code, and the
adapter that applies a Python callable to each value. A deserializer reports which rows it cannot
read; raising, nulling or skipping them is decided in ``records.building``.

Null values are never given to a deserializer: they stay null (KIP-334 and kafka-python agree).

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

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kfast._native import deserialize
from kfast._native.buffers import OwnedBuffer
from kfast.errors import ConfigurationError
from kfast.records.columns.bytes import BytesColumn
from kfast.records.columns.headers import HeadersColumn
from kfast.records.columns.operations import Values
from kfast.records.columns.spans import array_over, index_array, object_array, read_only
from kfast.records.columns.text import StringColumn
from kfast.records.columns.uuid import UuidColumn

_BAD: Final = 2
_PREVIEW_BYTES: Final = 8
_CONFLUENT_HEADER_BYTES: Final = 5
_SEEK_OR_SKIP: Final = 'seek past it, or set on_deserialization_error to "null" or "skip"'


# Made once: for a single record, making the dtype is the longest part of converting it.
_INT32: Final = np.dtype(np.int32)
_INT64: Final = np.dtype(np.int64)
_FLOAT32: Final = np.dtype(np.float32)
_FLOAT64: Final = np.dtype(np.float64)


@dataclass(slots=True)
class DecodedColumn:
    """What a deserializer made of a column.

    Parameters
    ----------
    values : column
        One entry per row; null where the value was null or could not be read. When the caller
        asked to stop at the first bad row, rows from there on are undefined.
    first_bad : int
        First row that could not be read, or -1.
    is_bad : ndarray of bool or None
        All rows that could not be read; None when there are none.
    cause : Exception or None
        What the user's callable raised for ``first_bad``.
    """

    values: Values
    first_bad: int = -1
    is_bad: NDArray[np.bool_] | None = None
    cause: Exception | None = None


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a value cannot be read, in the parts of an error message."""

    reason: str
    found: str
    hint: str = _SEEK_OR_SKIP


@runtime_checkable
class Deserializer(Protocol):
    """Converts a column at a time."""

    def deserialize_column(
        self, column: BytesColumn, headers: HeadersColumn | None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Convert all values; with ``stop_at_first`` none after the first bad one."""
        ...

    def complain(self, raw: bytes) -> Complaint:
        """Say why a value cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class Utf8:
    """Text in UTF-8, as Java's ``StringSerializer`` writes it.

    The column is a :class:`StringColumn`; it is checked as a whole and decoded per value on access.
    """

    def deserialize_column(
        self, column: BytesColumn, _headers: HeadersColumn | None = None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Check all values."""
        _, flags, first_bad = deserialize.utf8_column(*column.spans, stop_at_first)
        is_bad = _bad_rows(flags, first_bad)
        if is_bad is not None:
            nulled = np.where(is_bad, np.int32(-1), column.lengths)
            column = BytesColumn(column.spans[0], column.starts, nulled, origin=column.origin)
        return DecodedColumn(StringColumn(column), first_bad, is_bad)

    def complain(self, raw: bytes) -> Complaint:
        """Name the first byte that is not UTF-8, or the foreign format it belongs to."""
        at = 0
        if _confluent_schema_id(raw) is None:
            try:
                raw.decode()
            except UnicodeDecodeError as error:
                at = error.start
        byte = f"byte {at}: 0x{raw[at]:02x}" if raw else "empty"
        return _complaint(f"is not UTF-8 ({byte})", raw)


@dataclass(frozen=True, slots=True)
class Int32:
    """4-byte big-endian integers, as Java's ``IntegerSerializer`` writes them; column int32."""

    def deserialize_column(
        self, column: BytesColumn, _headers: HeadersColumn | None = None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Convert all values."""
        return _numbers(column, _INT32, stop_at_first)

    def complain(self, raw: bytes) -> Complaint:
        """State both sizes."""
        return _wrong_size("an Int32", 4, raw)


@dataclass(frozen=True, slots=True)
class Int64:
    """8-byte big-endian integers, as Java's ``LongSerializer`` writes them; column int64."""

    def deserialize_column(
        self, column: BytesColumn, _headers: HeadersColumn | None = None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Convert all values."""
        return _numbers(column, _INT64, stop_at_first)

    def complain(self, raw: bytes) -> Complaint:
        """State both sizes."""
        return _wrong_size("an Int64", 8, raw)


@dataclass(frozen=True, slots=True)
class Float32:
    """4-byte big-endian floats, as Java's ``FloatSerializer`` writes them; column float32."""

    def deserialize_column(
        self, column: BytesColumn, _headers: HeadersColumn | None = None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Convert all values."""
        return _numbers(column, _FLOAT32, stop_at_first)

    def complain(self, raw: bytes) -> Complaint:
        """State both sizes."""
        return _wrong_size("a Float32", 4, raw)


@dataclass(frozen=True, slots=True)
class Float64:
    """8-byte big-endian floats, as Java's ``DoubleSerializer`` writes them; column float64."""

    def deserialize_column(
        self, column: BytesColumn, _headers: HeadersColumn | None = None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Convert all values."""
        return _numbers(column, _FLOAT64, stop_at_first)

    def complain(self, raw: bytes) -> Complaint:
        """State both sizes."""
        return _wrong_size("a Float64", 8, raw)


@dataclass(frozen=True, slots=True)
class Uuid:
    """UUIDs: the 36 characters of Java's ``UUIDSerializer``, or 16 raw bytes.

    The column is a :class:`UuidColumn`.
    """

    def deserialize_column(
        self, column: BytesColumn, _headers: HeadersColumn | None = None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Convert all values."""
        block, flags, first_bad = deserialize.uuid_column(*column.spans, stop_at_first)
        is_null = None if flags is None else _flags(flags) != 0
        values = UuidColumn(array_over(block, "V16"), is_null)
        return DecodedColumn(values, first_bad, _bad_rows(flags, first_bad))

    def complain(self, raw: bytes) -> Complaint:
        """State the forms that are read."""
        return _complaint("is not a UUID (36 characters of text, or 16 bytes)", raw)


@dataclass(frozen=True, slots=True, init=False)
class Struct:
    """Records of a fixed layout: any structured NumPy dtype, in any byte order.

    The column is a structured array of exactly this dtype. Arrow gets a struct of native fields.

    Parameters
    ----------
    dtype : dtype-like
        A structured dtype without object fields. Every value must have ``dtype.itemsize`` bytes.

    Raises
    ------
    ConfigurationError
        The dtype is not structured, is empty, or has object fields.
    """

    dtype: np.dtype[Any]

    def __init__(self, dtype: DTypeLike) -> None:
        try:
            wanted = np.dtype(dtype)
        except TypeError as error:
            raise ConfigurationError(f"Struct({dtype!r}): not a NumPy dtype") from error
        if not wanted.names or wanted.hasobject or not wanted.itemsize:
            raise ConfigurationError(
                f"Struct({wanted}): needs a structured dtype without object fields",
                hint='for example Struct([("id", ">i8"), ("price", ">f8")])',
            )
        object.__setattr__(self, "dtype", wanted)

    def deserialize_column(
        self, column: BytesColumn, _headers: HeadersColumn | None = None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Gather all values."""
        block, flags, first_bad = deserialize.block_column(
            *column.spans, self.dtype.itemsize, stop_at_first
        )
        values = _masked(array_over(block, self.dtype), flags)
        return DecodedColumn(values, first_bad, _bad_rows(flags, first_bad))

    def complain(self, raw: bytes) -> Complaint:
        """State both sizes."""
        return _wrong_size("a Struct", self.dtype.itemsize, raw)


@dataclass(frozen=True, slots=True)
class _PerRecord:
    """Applies Python code to each value: the slow path.

    Parameters
    ----------
    name : str
        Names the code in errors.
    bind : callable
        Gives the function for one topic.
    takes_headers : bool
        Whether that function takes ``(headers, value)`` rather than ``(value)``.
    """

    name: str
    bind: Callable[[str], Callable[..., object]]
    takes_headers: bool = False

    def deserialize_column(
        self, column: BytesColumn, headers: HeadersColumn | None = None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Call the code once per value that is not null."""
        function = self.bind(column.origin.topic if column.origin is not None else "")
        raw = column.to_list()
        arguments: list[tuple[Any, ...]]
        if self.takes_headers:
            rows = headers.to_list() if headers is not None else [[] for _ in raw]
            arguments = list(zip(rows, raw, strict=True))
        else:
            arguments = [(value,) for value in raw]
        values: list[object] = []
        first_bad, cause = -1, None
        is_bad: NDArray[np.bool_] | None = None
        for row, given in enumerate(arguments):
            if raw[row] is None:
                values.append(None)
                continue
            try:
                values.append(function(*given))
            except Exception as error:
                if is_bad is None:
                    first_bad, cause = row, error
                    is_bad = np.zeros(len(raw), np.bool_)
                is_bad[row] = True
                if stop_at_first:
                    values.extend([None] * (len(raw) - row))
                    break
                values.append(None)
        return DecodedColumn(object_array(values), first_bad, is_bad, cause)

    def complain(self, raw: bytes) -> Complaint:
        """Name the code; what it raised is the error's cause."""
        return _complaint(f"cannot be read by {self.name}", raw)


_OWN: Final = (Utf8, Int32, Int64, Float32, Float64, Uuid, Struct, _PerRecord)


def as_deserializer(given: object) -> Deserializer | None:
    """Return the deserializer for what a user passed as ``key_`` or ``value_deserializer``.

    Parameters
    ----------
    given : None, Deserializer, callable or object with ``deserialize``
        ``deserialize`` is called as ``(topic, bytes)``, or as ``(topic, headers, bytes)`` when it
        requires three arguments (kafka-python 3).

    Raises
    ------
    ConfigurationError
        It is none of these.
    """
    if given is None:
        return None
    if isinstance(given, _OWN):  # asked for every chunk; the protocol check below is slow
        return given
    if isinstance(given, type) and hasattr(given, "deserialize_column"):
        raise ConfigurationError(
            f"a deserializer must be an object, not the class {given.__name__}",
            hint=f"write {given.__name__}(...) instead of {given.__name__}",
        )
    if isinstance(given, Deserializer):
        return given
    method = getattr(given, "deserialize", None)
    if callable(method) and not isinstance(given, type):
        takes_headers = _required_arguments(method) >= 3
        return _PerRecord(
            type(given).__name__, functools.partial(functools.partial, method), takes_headers
        )
    if callable(given):
        function: Callable[..., object] = given
        return _PerRecord(getattr(given, "__qualname__", repr(given)), lambda _topic: function)
    raise ConfigurationError(
        f"{given!r} is no deserializer",
        hint="give None, a kfast deserializer such as Utf8(), a callable of bytes, or an object "
        "with deserialize(topic, bytes)",
    )


_WITHOUT_HEADERS: Final = frozenset((Utf8, Int32, Int64, Float32, Float64, Uuid, Struct))


def needs_headers(deserializer: Deserializer) -> bool:
    """Return whether the headers may matter to a deserializer: not to kfast's own."""
    return type(deserializer) not in _WITHOUT_HEADERS


def _required_arguments(method: Callable[..., object]) -> int:
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return 2
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters)


def _flags(flags: OwnedBuffer) -> NDArray[Any]:
    return index_array(flags, np.uint8)


def _bad_rows(flags: OwnedBuffer | None, first_bad: int) -> NDArray[np.bool_] | None:
    return None if flags is None or first_bad < 0 else read_only(_flags(flags) == _BAD)


def _masked(values: NDArray[Any], flags: OwnedBuffer | None) -> NDArray[Any]:
    """Return the values, masked where they are null or bad, if any are."""
    if flags is None:
        return values
    is_null = read_only(_flags(flags) != 0)
    if not values.dtype.names:
        return np.ma.MaskedArray(values, mask=is_null)
    mask = np.zeros(len(values), np.ma.make_mask_descr(values.dtype))
    mask[is_null] = np.ones((), mask.dtype)
    return np.ma.MaskedArray(values, mask=read_only(mask))


def _numbers(column: BytesColumn, dtype: np.dtype[Any], stop_at_first: bool) -> DecodedColumn:
    block, flags, first_bad = deserialize.big_endian_column(
        *column.spans, dtype.itemsize, stop_at_first
    )
    values = array_over(block, dtype)
    if flags is None:
        return DecodedColumn(values)
    return DecodedColumn(_masked(values, flags), first_bad, _bad_rows(flags, first_bad))


def _confluent_schema_id(raw: bytes) -> int | None:
    """Schema id of a value in Confluent's wire format (zero byte, int32 id, payload), or None."""
    if len(raw) > _CONFLUENT_HEADER_BYTES and raw[0] == 0:
        return int.from_bytes(raw[1:_CONFLUENT_HEADER_BYTES], "big")
    return None


def _complaint(reason: str, raw: bytes, is_number: bool = False) -> Complaint:
    schema_id = None if is_number else _confluent_schema_id(raw)
    if schema_id is not None:
        return Complaint(
            reason,
            f"{raw[:_CONFLUENT_HEADER_BYTES].hex(' ')} … \N{EN DASH} Confluent wire format, "
            f"schema id {schema_id}",
            "give a deserializer for that format, or " + _SEEK_OR_SKIP,
        )
    shown = raw[:_PREVIEW_BYTES].hex(" ")
    more = " …" if len(raw) > _PREVIEW_BYTES else ""
    return Complaint(reason, f"{shown}{more} ({len(raw)} bytes)".lstrip())


def _wrong_size(what: str, size: int, raw: bytes) -> Complaint:
    # A number of another width also begins with zeros: do not take it for Confluent's format.
    is_number = len(raw) in {2, 4, 8, 16}
    return _complaint(f"is not {what} ({len(raw)} bytes, needs {size})", raw, is_number)
