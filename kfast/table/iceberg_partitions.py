"""IcebergPartitions: divides the rows of batches by the partition values of an Iceberg table.

Owns what ``partition_by`` may name for Iceberg tables, and the values of Iceberg's transforms:

=================================  ================================================================
written                            partition field
=================================  ================================================================
``topic``, ``value.country``       ``identity`` of a column of the record, or of its typed value
``date``, ``hour``                 ``day`` and ``hour`` of the record's timestamp
``date(value.ts)``, ``day(..)``,   of a time or date of it, in UTC
``hour(..)``, ``month(..)``,
``year(..)``
``bucket(16,value.id)``            a hash modulo 16
``truncate(4,value.name)``         the first 4 characters, or a number rounded down to 4
=================================  ================================================================

The columns stay in the files. Values are exactly those that readers of Iceberg compute, as
they skip whole files by them. Values and spec travel with the file as JSON
(``DataFile.partition_values``). Nothing is done per row in Python, but for texts of ``bucket``,
which are hashed once per distinct value. Pure.
"""

from __future__ import annotations

import base64
import decimal
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kfast._base.optional import optional_package
from kfast.errors import ConfigurationError
from kfast.table.projection import Projection

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

HELP: Final = (
    "topic, partition, date, hour, value.NAME, date(value.NAME), hour(..), month(..), year(..), "
    "bucket(16,value.NAME), truncate(4,value.NAME)"
)
_PATH: Final = r"(?:topic|partition|offset|timestamp|timestampType|(?:key|value)(?:\.\w+)*)"
_SOURCE: Final = re.compile(
    rf"(?P<unit>date|day|hour|month|year)\((?P<time>{_PATH})\)"
    rf"|(?P<kind>bucket|truncate)\((?P<number>[1-9]\d{{0,8}}),\s*(?P<argument>{_PATH})\)"
    rf"|(?P<path>{_PATH})"
)
_SHORT: Final = {"date": "date(timestamp)", "hour": "hour(timestamp)"}
_US: Final = {"day": 86_400_000_000, "hour": 3_600_000_000}
_TRANSFORM: Final = re.compile(r"(bucket|truncate)\[(\d+)\]")
_SIGN: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """What ``partition_by`` says of one partition field."""

    path: tuple[str, ...]
    """Of the column that it is made of."""
    transform: str
    """As Iceberg writes it: ``identity``, ``day``, ``bucket[16]``."""

    @property
    def text(self) -> str:
        """How it is written."""
        path = ".".join(self.path)
        name, number = split_transform(self.transform)
        if number:
            return f"{name}({number},{path})"
        return path if self.transform == "identity" else f"{self.transform}({path})"


@dataclass(frozen=True, slots=True)
class IcebergField:
    """One field of the partition spec of a table."""

    name: str
    transform: str
    """As Iceberg writes it."""
    spec_id: int
    path: tuple[str, ...] = ()
    """Of the column of the files; () for one that they do not have, which is null."""


def split_partition_by(text: str) -> tuple[str, ...]:
    """The names in an option, which commas outside of parentheses separate."""
    return tuple(name.strip() for name in re.split(r",(?![^()]*\))", text) if name.strip())


def partition_columns(names: Sequence[str]) -> tuple[PartitionColumn, ...]:
    """The partition fields that ``partition_by`` names; ``ConfigurationError`` for other texts."""
    columns: list[PartitionColumn] = []
    for name in names:
        match = _SOURCE.fullmatch(_SHORT.get(name, name))
        if match is None:
            raise ConfigurationError(
                f"cannot partition the Iceberg table by {name}", hint=f"choose from {HELP}"
            )
        if match["path"]:
            column = PartitionColumn(tuple(match["path"].split(".")), "identity")
        elif match["unit"]:
            unit = "day" if match["unit"] == "date" else match["unit"]
            column = PartitionColumn(tuple(match["time"].split(".")), unit)
        else:
            transform = f"{match['kind']}[{match['number']}]"
            column = PartitionColumn(tuple(match["argument"].split(".")), transform)
        if column in columns:
            raise ConfigurationError(
                f"partition by {','.join(names)}: {name} is there twice", hint="name it once"
            )
        columns.append(column)
    return tuple(columns)


def check_partition_by(names: Sequence[str]) -> None:
    """Check the spelling of ``partition_by``; ``ConfigurationError`` for other texts."""
    partition_columns(names)


class IcebergPartitions:
    """Divides batches with the columns of a projection by the partition fields of a table."""

    def __init__(self, fields: Sequence[IcebergField], projection: Projection) -> None:
        self._fields = tuple(fields)
        self._columns = {column.name: number for number, column in enumerate(projection.columns)}

    def divide(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield rows by partition, in their order, with the JSON of its values; "" for no spec."""
        if not self._fields:
            yield "", batch
            return
        columns = [_coded(self._transformed(batch, field)) for field in self._fields]
        codes: NDArray[np.int64] = np.zeros(batch.num_rows, np.int64)
        for own, distinct in columns:
            # Numbered anew each time: the product of all numbers of values may exceed 64 bits.
            codes = np.unique(codes * len(distinct) + own, return_inverse=True)[1].reshape(-1)
        order = np.argsort(codes, kind="stable")
        firsts = np.flatnonzero(np.diff(codes[order], prepend=-1)).tolist()
        ends = [*firsts[1:], batch.num_rows]
        ordered = batch if len(firsts) == 1 else batch.take(order)
        for first, end in zip(firsts, ends, strict=True):
            values = [distinct[own[order[first]]] for own, distinct in columns]
            yield self._text(values), ordered.slice(first, end - first)

    def _text(self, values: list[Any]) -> str:
        body = {"spec-id": self._fields[0].spec_id, "values": values}
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False)

    def _transformed(self, batch: pa.RecordBatch, field: IcebergField) -> pa.Array:
        arrow = optional_package("pyarrow", "a table of files")
        if not field.path or field.transform == "void":
            return arrow.nulls(batch.num_rows)
        array = batch.column(self._columns[field.path[0]])
        for name in field.path[1:]:
            compute = optional_package("pyarrow.compute", "a table of files")
            array = compute.struct_field(array, name)  # null where the struct is
        return transformed(array, field.transform)

    def __repr__(self) -> str:
        return f"<IcebergPartitions {[field.name for field in self._fields]}>"


def split_transform(transform: str) -> tuple[str, int]:
    """A transform as Iceberg writes it, and its number, 0 for one without."""
    match = _TRANSFORM.fullmatch(transform)
    return (transform, 0) if match is None else (match[1], int(match[2]))


def _coded(array: pa.Array) -> tuple[NDArray[np.int64], list[Any]]:
    """A code for each row, and the value of each code as JSON has it."""
    coded = array.dictionary_encode("encode")
    values = [_json_value(value) for value in coded.dictionary.to_pylist()]
    return coded.indices.to_numpy(zero_copy_only=False).astype(np.int64), values


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, decimal.Decimal) else value


def transformed(array: pa.Array, transform: str) -> pa.Array:
    """The values of a transform as Iceberg stores them: dates as days, times as microseconds."""
    arrow = optional_package("pyarrow", "a table of files")
    name, number = split_transform(transform)
    if number:
        return _bucket(array, number) if name == "bucket" else _truncate(array, number)
    if transform == "identity":
        return _stored(array)
    numbers = _stored(array).cast(arrow.int64())
    is_date = arrow.types.is_date32(array.type)
    units: NDArray[np.int64] = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    if transform in _US:
        if not is_date:
            units = units // _US[transform]
    else:
        times = units.astype("datetime64[D]" if is_date else "datetime64[us]")
        units = times.astype(f"datetime64[{transform[0].upper()}]").astype(np.int64)
    return arrow.array(units, mask=numbers.is_null().to_numpy(zero_copy_only=False))


def _stored(array: pa.Array) -> pa.Array:
    """Dates as days and times as microseconds; others as they are."""
    arrow = optional_package("pyarrow", "a table of files")
    if arrow.types.is_date32(array.type):
        return array.view(arrow.int32())
    return array.view(arrow.int64()) if arrow.types.is_timestamp(array.type) else array


def _truncate(array: pa.Array, width: int) -> pa.Array:
    arrow = optional_package("pyarrow", "a table of files")
    compute = optional_package("pyarrow.compute", "a table of files")
    if arrow.types.is_string(array.type):
        return compute.utf8_slice_codeunits(array, 0, width)
    if arrow.types.is_binary(array.type):
        return compute.binary_slice(array, 0, width)
    if arrow.types.is_decimal(array.type):
        unit = decimal.Decimal(width).scaleb(-array.type.scale)
        with decimal.localcontext(decimal.Context(prec=80)):
            rounded = [
                None if value is None else value - (value % unit + unit) % unit
                for value in array.to_pylist()
            ]
        return arrow.array(rounded, arrow.decimal256(76, array.type.scale))
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    mask = array.is_null().to_numpy(zero_copy_only=False)
    return arrow.array(numbers - np.mod(numbers, width), mask=mask)


def _bucket(array: pa.Array, count: int) -> pa.Array:
    arrow = optional_package("pyarrow", "a table of files")
    stored = _stored(array)
    mask = stored.is_null().to_numpy(zero_copy_only=False)
    if arrow.types.is_integer(stored.type):
        numbers = stored.cast(arrow.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        hashes = hash_longs(numbers)
    else:
        murmur = optional_package("mmh3", "bucket of an Iceberg table").hash
        coded = stored.dictionary_encode()
        distinct = [murmur(_hashed_bytes(value)) for value in coded.dictionary.to_pylist()]
        codes = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        hashes = np.array(distinct or [0], np.int64)[codes]
    return arrow.array((hashes & _SIGN) % count, mask=mask)


def _hashed_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, decimal.Decimal):
        sign, digits, _ = value.as_tuple()
        number = int("".join(map(str, digits))) * (-1 if sign else 1)
        least = number if number >= 0 else ~number
        return number.to_bytes(least.bit_length() // 8 + 1, "big", signed=True)
    return bytes(value)


def hash_longs(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Murmur3 (32 bits, seed 0) of each number's 8 bytes in little-endian order."""
    words = np.ascontiguousarray(values, "<i8").view("<u4").reshape(-1, 2)
    state = np.zeros(len(words), np.uint32)
    with np.errstate(over="ignore"):
        for at in range(2):
            mixed = words[:, at] * np.uint32(0xCC9E2D51)
            mixed = (mixed << np.uint32(15)) | (mixed >> np.uint32(17))
            state ^= mixed * np.uint32(0x1B873593)
            state = (state << np.uint32(13)) | (state >> np.uint32(19))
            state = state * np.uint32(5) + np.uint32(0xE6546B64)
        state ^= np.uint32(8)
        state ^= state >> np.uint32(16)
        state *= np.uint32(0x85EBCA6B)
        state ^= state >> np.uint32(13)
        state *= np.uint32(0xC2B2AE35)
        state ^= state >> np.uint32(16)
    return state.astype(np.int64)


def stored_values(text: str, types: Sequence[Any]) -> tuple[int, list[Any]]:
    """The id of the spec and the values of its fields, from the JSON that `divide` yields.

    ``types`` are those of the partition fields, of pyiceberg.
    """
    body = json.loads(text)
    values: list[Any] = []
    for value, kind in zip(body["values"], types, strict=True):
        name = type(kind).__name__
        if value is not None and name in {"BinaryType", "FixedType"}:
            values.append(base64.b64decode(value))
        elif value is not None and name == "DecimalType":
            values.append(decimal.Decimal(value))
        else:
            values.append(value)
    return int(body["spec-id"]), values
