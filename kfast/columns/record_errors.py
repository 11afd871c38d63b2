"""RecordErrors: the values of a batch that could not be read, each named exactly.

Owns: codes, the rows that compiled decoders record (``ErrorRow`` of ``builders.pxd``), and what
users see of them. Texts are made, and values copied, when they are asked for; until then an error
is a few numbers and a span of the received data.

Thread: any; immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, unique
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from kfast._base.optional import optional_package
from kfast.columns.arrow import (
    ArrowColumn,
    Capsule,
    array_column,
    bytes_column,
    struct_column,
    text_column,
)
from kfast.columns.bytes import BytesColumn
from kfast.columns.spans import Rows, read_only, row_number, row_selection
from kfast.columns.table_text import cell_text

if TYPE_CHECKING:
    import pyarrow as pa


@unique
class ErrorKind(IntEnum):
    """Why a value could not be read; the names in lower case are the codes that users see.

    The numbers are those of ``ErrorCode`` in ``builders.pxd``.
    """

    EMPTY = 1
    TRUNCATED = 2
    TRAILING = 3
    SYNTAX = 4
    UTF8 = 5
    TYPE = 6
    RANGE = 7
    MISSING = 8
    DUPLICATE_KEY = 9
    DEPTH = 10
    MAGIC = 11
    UNKNOWN_SCHEMA = 12
    SCHEMA = 13
    RESOLUTION = 14
    ENUM = 15
    UNION = 16
    TOO_LARGE = 17

    @property
    def text(self) -> str:
        """The code that users see."""
        return self.name.lower()


ERROR_ROW: Final = np.dtype(
    [
        ("row", np.int64),
        ("position", np.int64),
        ("code", np.int32),
        ("node", np.int32),
        ("detail", np.int32),
        ("depth", np.int32),
        ("indexes", np.int32, (8,)),
    ]
)
"""The layout of ``ErrorRow``."""

CLASS_NAME: Final = "kfast.errors.DeserializationError"


class BadText(Protocol):
    """What is said of a bad value; ``reason`` follows the column and the path in a sentence."""

    @property
    def reason(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def byte_position(self) -> int: ...


Describe = Callable[[bytes, Any, Any], BadText]
"""From a bad value, its ERROR_ROW (None: the deserializer gives none) and its schema id."""


def error_message(where: str, column: str, text: BadText) -> str:
    """Return the sentence of an error; ``where`` names the record."""
    dot = "." if text.path and not text.path.startswith("[") else ""
    return f"{where}: {column}{dot}{text.path} {text.reason}"


class RecordError(NamedTuple):
    """One value that could not be read.

    ``column`` is ``"key"`` or ``"value"``, ``path`` the place in it (``lines[2].qty``), empty for
    all of it; ``byte_position`` is -1 if no byte is known, ``schema_id`` an int or the text of a
    GUID if the value has one. ``raw`` is the value as it came.

    Examples
    --------
    >>> found = kfast.Json({"id": "int64"}).decode([b'{"id": "x"}'], on_error="null").errors
    >>> found[0].code, found[0].path, found[0].raw
    ('type', 'id', b'{"id": "x"}')
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    column: str
    code: str
    path: str
    byte_position: int
    schema_id: int | str | None
    message: str
    raw: bytes | None

    def headers(self) -> list[tuple[str, bytes]]:
        """Return headers for a dead letter queue, named as Kafka Connect's."""
        values = {
            "topic": self.topic,
            "partition": str(self.partition),
            "offset": str(self.offset),
            "exception.class.name": f"{CLASS_NAME}: {self.code}",
            "exception.message": self.message,
        }
        return [(f"__connect.errors.{name}", text.encode()) for name, text in values.items()]


@dataclass(frozen=True, slots=True)
class ErrorPart:
    """The errors of one column of one decoding; all arrays have one entry per error."""

    topic: str
    partition: int
    column: str
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    raw: BytesColumn
    error_rows: NDArray[Any] | None
    schema_ids: Sequence[int | str | None] | None
    describe: Describe

    def row(self, number: int) -> RecordError:
        """Make one error."""
        raw = self.raw[number]
        schema_id = None if self.schema_ids is None else self.schema_ids[number]
        text = self.describe(
            raw or b"", None if self.error_rows is None else self.error_rows[number], schema_id
        )
        offset = int(self.offsets[number])
        # Values that are decoded from memory have no topic, and rows instead of offsets.
        where = f"{self.topic}-{self.partition} offset {offset}" if self.topic else f"row {offset}"
        return RecordError(
            self.topic,
            self.partition,
            offset,
            int(self.timestamps[number]),
            self.column,
            text.code,
            text.path,
            text.byte_position,
            schema_id,
            error_message(where, self.column, text),
            raw,
        )


@dataclass(frozen=True, slots=True)
class _MadePart:
    """Errors that were made before: those of a pickle."""

    rows: tuple[RecordError, ...]

    @property
    def offsets(self) -> NDArray[np.int64]:
        return np.array([row.offset for row in self.rows], np.int64)

    def row(self, number: int) -> RecordError:
        return self.rows[number]


class RecordErrors:
    """The values of some records that could not be read, in the order of the records.

    Notes
    -----
    A sequence of :class:`RecordError`; every field of it is also a column here: ``errors.offset``,
    ``errors.code``, ``errors.raw``. ``pyarrow.table(errors)`` and others read it through Arrow.
    Errors keep the received bytes alive, until their :attr:`raw` is copied by :meth:`compact`.

    Examples
    --------
    >>> found = kfast.Json({"id": "int64"}).decode([b"1", b'{"id": 2}'], on_error="null").errors
    >>> len(found), found.code
    (1, ['type'])
    """

    __slots__ = ("_numbers", "_parts", "_picked")

    def __init__(
        self,
        parts: Sequence[ErrorPart | _MadePart] = (),
        counts: Sequence[int] = (),
        order: NDArray[np.intp] | None = None,
    ) -> None:
        self._parts = tuple(parts)
        self._picked = np.repeat(np.arange(len(self._parts)), counts)
        self._numbers = (
            np.concatenate([np.arange(count) for count in counts])
            if len(self._parts)
            else np.zeros(0, np.intp)
        )
        if order is not None:
            self._picked, self._numbers = self._picked[order], self._numbers[order]

    @classmethod
    def concat(cls, tables: Sequence[RecordErrors]) -> RecordErrors:
        """Return the errors of several batches as one sequence."""
        kept = [table for table in tables if len(table)]
        if len(kept) == 1:
            return kept[0]
        errors = cls()
        errors._parts = tuple(error_part for table in kept for error_part in table._parts)
        if kept:
            starts = np.cumsum([0, *(len(table._parts) for table in kept[:-1])])
            errors._picked = np.concatenate(
                [table._picked + start for table, start in zip(kept, starts, strict=True)]
            )
            errors._numbers = np.concatenate([table._numbers for table in kept])
        return errors

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[RecordError]:
        for part_number, number in zip(self._picked.tolist(), self._numbers.tolist(), strict=True):
            yield self._parts[part_number].row(number)

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> RecordError: ...
    @overload
    def __getitem__(self, rows: slice | list[int] | NDArray[Any]) -> RecordErrors: ...
    def __getitem__(self, rows: Any) -> RecordError | RecordErrors:
        if not hasattr(rows, "__index__") or isinstance(rows, np.ndarray):
            return self.select(row_selection(rows, len(self)))
        row = row_number(rows, len(self))
        return self._parts[int(self._picked[row])].row(int(self._numbers[row]))

    def select(self, rows: Rows) -> RecordErrors:
        """Return some errors."""
        selected = RecordErrors()
        picked, numbers = self._picked[rows], self._numbers[rows]
        used = np.unique(picked)
        selected._parts = tuple(self._parts[number] for number in used)
        selected._picked, selected._numbers = np.searchsorted(used, picked), numbers
        return selected

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordErrors):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (tuple(self),)

    # --- columns ----------------------------------------------------------------------------------

    def _field(self, name: str) -> list[Any]:
        return [getattr(error, name) for error in self]

    @property
    def topic(self) -> list[str]:
        """Topic of each error's record."""
        return self._field("topic")

    @property
    def partition(self) -> NDArray[np.int32]:
        """Partition of each error's record."""
        return read_only(np.array(self._field("partition"), np.int32))

    @property
    def offset(self) -> NDArray[np.int64]:
        """Offset of each error's record; of ``decode()`` the number of the row."""
        offsets = np.empty(len(self), np.int64)  # without describing each
        for number, error_part in enumerate(self._parts):
            mine = self._picked == number
            offsets[mine] = error_part.offsets[self._numbers[mine]]
        return read_only(offsets)

    @property
    def timestamp(self) -> NDArray[np.int64]:
        """Timestamp of each error's record in milliseconds, -1 for none."""
        return read_only(np.array(self._field("timestamp"), np.int64))

    @property
    def column(self) -> list[str]:
        """``"key"`` or ``"value"``."""
        return self._field("column")

    @property
    def code(self) -> list[str]:
        """Why the value could not be read: ``syntax``, ``type``, ``range``, ..."""
        return self._field("code")

    @property
    def path(self) -> list[str]:
        """Where in the value: ``lines[2].qty``; empty for all of it."""
        return self._field("path")

    @property
    def byte_position(self) -> NDArray[np.int64]:
        """The byte of the value at which it could not be read, -1 if not known."""
        return read_only(np.array(self._field("byte_position"), np.int64))

    @property
    def schema_id(self) -> list[int | str | None]:
        """Id of the schema the value names, or the text of its GUID; None without one."""
        return self._field("schema_id")

    @property
    def message(self) -> list[str]:
        """What is wrong, in a sentence."""
        return self._field("message")

    @property
    def raw(self) -> BytesColumn:
        """The values as they came."""
        return BytesColumn.from_values(self._field("raw"))

    # --- memory and conversions -------------------------------------------------------------------

    def compact(self) -> RecordErrors:
        """Return the same errors without a reference to received data."""
        return _restored(tuple(self)) if len(self) else self

    def blocks(self) -> Iterator[Any]:
        """Yield the buffers that the errors keep alive."""
        for error_part in self._parts:
            if isinstance(error_part, ErrorPart):
                yield from error_part.raw.blocks()

    def to_arrow(self) -> pa.RecordBatch:
        """Return a ``pyarrow.RecordBatch`` with one column per field.

        Raises
        ------
        MissingDependencyError
            pyarrow is not installed.
        """
        pyarrow = optional_package("pyarrow", "to_arrow()")
        return pyarrow.record_batch(self)

    def arrow_column(self) -> ArrowColumn:
        """Return all fields as a struct; a schema id is text there."""
        rows = list(self)
        columns = {name: [getattr(row, name) for row in rows] for name in RecordError._fields}
        numbers = {"partition": np.int32, "offset": np.int64, "timestamp": np.int64}
        children = []
        for name, values in columns.items():
            if name in numbers or name == "byte_position":
                column = array_column(name, np.array(values, numbers.get(name, np.int64)))
            elif name == "raw":
                column = bytes_column(name, values)
            else:
                texts = [None if value is None else str(value) for value in values]
                column = text_column(name, texts)
            children.append(column)
        return struct_column("", children, len(rows))

    def __arrow_c_array__(self, requested_schema: Capsule = None) -> tuple[Capsule, Capsule]:
        return self.arrow_column().capsules()

    def __arrow_c_schema__(self) -> Capsule:
        return self.arrow_column().capsules()[0]

    def __repr__(self) -> str:
        lines = [cell_text(error.message, 100) for error in self[:3]]
        more = ["\N{HORIZONTAL ELLIPSIS}"] if len(self) > len(lines) else []
        return "\n  ".join([f"<RecordErrors n={len(self)}", *lines, *more]) + ">"


NO_ERRORS: Final = RecordErrors()


def _restored(rows: tuple[RecordError, ...]) -> RecordErrors:
    return RecordErrors([_MadePart(rows)], [len(rows)])
