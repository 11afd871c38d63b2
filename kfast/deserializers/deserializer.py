"""The interface of deserializers, their result, and the description of a value they cannot read.

Compiled conversions report rows by a flag each: 0 value, 1 null, 2 bad; no flags at all if every
row is a value.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kfast._native.buffers import OwnedBuffer, copy_of
from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.operations import Values
from kfast.columns.spans import index_array, masked_array, read_only

if TYPE_CHECKING:
    from kfast.columns.column_data import ColumnData
    from kfast.registry.registered_schema import SchemaKey
    from kfast.schemas.types import SchemaField

_BAD: Final = 2
_PREVIEW_BYTES: Final = 8
_CONFLUENT_HEADER_BYTES: Final = 5
_SEEK_OR_SKIP: Final = 'seek past it, or set on_deserialization_error to "null" or "skip"'


@dataclass(slots=True)
class DecodedColumn:
    """The result of a deserializer.

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
    errors : FoundErrors or None
        Where each bad row is bad, if the deserializer knows more than that it is.
    node : ColumnData or None
        The memory of typed columns, of which ``values`` is a view.
    """

    values: Values
    first_bad: int = -1
    is_bad: NDArray[np.bool_] | None = None
    cause: Exception | None = None
    errors: FoundErrors | None = None
    node: ColumnData | None = None


@dataclass(frozen=True, slots=True)
class FoundErrors:
    """The errors of a column as a compiled decoder has found them, in the order of the rows."""

    rows: NDArray[Any]
    """Of dtype `kfast.columns.record_errors.ERROR_ROW`."""
    schema_ids: Sequence[int | str | None] | None = None
    """Of each error, the id of the schema that the value names."""
    root: SchemaField | None = None
    """The schema whose nodes the errors name."""

    def within(self, kept: NDArray[np.bool_]) -> FoundErrors:
        """Return some of the errors."""
        ids = self.schema_ids
        if ids is not None:
            ids = [
                schema_id for schema_id, is_kept in zip(ids, kept.tolist(), strict=True) if is_kept
            ]
        return FoundErrors(self.rows[kept], ids, self.root)


@dataclass(frozen=True, slots=True)
class BadValue:
    """Why a value cannot be read, in the parts of an error message.

    ``code``, ``path`` and ``byte_position`` are those of a `RecordError`.
    """

    reason: str
    found: str
    hint: str = _SEEK_OR_SKIP
    code: str = "type"
    path: str = ""
    byte_position: int = -1

    @classmethod
    def of(cls, reason: str, raw: bytes, *, is_number: bool = False) -> BadValue:
        """Describe a value by its first bytes, or by Confluent's schema id if it has one."""
        schema_id = None if is_number else confluent_schema_id(raw)
        if schema_id is not None:
            return cls(
                reason,
                f"{raw[:_CONFLUENT_HEADER_BYTES].hex(' ')} … \N{EN DASH} Confluent wire format, "
                f"schema id {schema_id}",
                "give a deserializer for that format, or " + _SEEK_OR_SKIP,
            )
        shown = raw[:_PREVIEW_BYTES].hex(" ")
        more = " …" if len(raw) > _PREVIEW_BYTES else ""
        return cls(reason, f"{shown}{more} ({len(raw)} bytes)".lstrip())

    def detailed(self, code: str, path: str, byte_position: int) -> BadValue:
        """Return the same with the details of a `RecordError`."""
        return replace(self, code=code, path=path, byte_position=byte_position)

    @classmethod
    def of_wrong_size(cls, type_name: str, size: int, raw: bytes) -> BadValue:
        """Describe a value whose type has a fixed size."""
        # A number of another width also begins with zeros: do not take it for Confluent's format.
        is_number = len(raw) in {2, 4, 8, 16}
        reason = f"is not {type_name} ({len(raw)} bytes, needs {size})"
        return cls.of(reason, raw, is_number=is_number)


@runtime_checkable
class Deserializer(Protocol):
    """Converts a column at a time."""

    def deserialize_column(
        self, column: BytesColumn, headers: HeadersColumn | None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        """Convert all values; with ``stop_at_first`` none after the first bad one."""
        ...

    def explain(self, raw: bytes) -> BadValue:
        """Return why a value cannot be read."""
        ...


@runtime_checkable
class NativeDeserializer(Deserializer, Protocol):
    """A deserializer of compiled code that runs on any thread, and names its errors exactly."""

    is_native: bool
    """Runs without the GIL, and may run on decode threads."""

    @property
    def needs_headers(self) -> bool:
        """Whether a header may name the schema of a value."""
        ...

    def prepare(
        self, column: BytesColumn, headers: HeadersColumn | None, /
    ) -> Collection[SchemaKey]:
        """Return the keys of schemas that are needed and not known yet; none for most."""
        ...

    def decode_some(
        self,
        column: BytesColumn,
        headers: HeadersColumn | None,
        /,
        *,
        stop_at_first: bool,
        most_bytes: int,
    ) -> DecodedColumn:
        """Convert values until the column has taken about ``most_bytes``, at least one."""
        ...

    def explain_error(
        self, root: SchemaField | None, raw: bytes, error: Any, schema_id: int | str | None
    ) -> BadValue:
        """Return why a value cannot be read, by its row of `FoundErrors`."""
        ...


def is_native(deserializer: Deserializer | None) -> bool:
    """Return whether a deserializer may run on decode threads."""
    return bool(getattr(deserializer, "is_native", False))


def describe(
    deserializer: Deserializer, root: SchemaField | None, raw: bytes, error: Any, schema_id: Any
) -> BadValue:
    """Return why a value cannot be read; ``error`` is its row of `FoundErrors`, if it has one."""
    if error is None or not isinstance(deserializer, NativeDeserializer):
        return deserializer.explain(raw)
    return deserializer.explain_error(root, raw, error, schema_id)


def confluent_schema_id(raw: bytes) -> int | None:
    """Schema id of a value in Confluent's wire format (zero byte, int32 id, payload), or None."""
    if len(raw) > _CONFLUENT_HEADER_BYTES and raw[0] == 0:
        return int.from_bytes(raw[1:_CONFLUENT_HEADER_BYTES], "big")
    return None


def null_rows(flags: OwnedBuffer) -> NDArray[np.bool_]:
    """Return which rows have no value: null ones and bad ones."""
    return read_only(index_array(flags, np.uint8) != 0)


def bad_rows(flags: OwnedBuffer | None, first_bad: int) -> NDArray[np.bool_] | None:
    """Return which rows are bad, None if none is."""
    if flags is None or first_bad < 0:
        return None
    is_bad: NDArray[np.bool_] = read_only(index_array(flags, np.uint8) == _BAD)
    return is_bad


def also_bad(
    flags: OwnedBuffer | None, first_bad: int, is_bad: NDArray[np.bool_]
) -> tuple[OwnedBuffer, int]:
    """Return the flags with more bad rows, and the first bad row."""
    marks = (
        np.zeros(len(is_bad), np.uint8) if flags is None else index_array(flags, np.uint8).copy()
    )
    marks[is_bad] = _BAD
    first = int(np.argmax(is_bad))
    return copy_of(marks.tobytes()), first if first_bad < 0 else min(first, first_bad)


def masked(values: NDArray[Any], flags: OwnedBuffer | None) -> NDArray[Any]:
    """Return the values, masked where they are null or bad, if any are."""
    if flags is None:
        return values
    return masked_array(values, null_rows(flags))
