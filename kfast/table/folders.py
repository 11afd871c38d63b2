"""FolderColumn: a column of the folders of a table, from the record or from its typed value.

Owns what ``partition_by`` may name, and how the rows of a batch are divided by values:

=============================  =====================================================================
written                        folders
=============================  =====================================================================
``topic``, ``partition``       those of the record
``date``, ``hour``             of the record's timestamp, in UTC
``value.country``              ``country=DE``: a text, whole number, boolean or date of a typed key
                               or value, which stays a column of the files as well
``date(value.ts)``,            ``date=2026-01-31``, ``hour=7``: of a time of it, in UTC
``hour(value.ts)``
=============================  =====================================================================

Folders are named as in Hive: other characters than letters, digits, ``.``, ``-`` and ``_`` become
``%XX``, and what is null, empty or longer than `LONGEST` bytes is in the folder that Hive's
readers take for null; so are dates that are not in the years 0 to 9999. Nothing is done per row in
Python. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kfast._base.optional import optional_package
from kfast.errors import ConfigurationError, did_you_mean
from kfast.table.projection import Projection, sql_type

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

RECORD_COLUMNS: Final = {
    "topic": "string",
    "partition": "integer",
    "date": "date",
    "hour": "integer",
}
"""Columns of folders that every record has, and their types in Spark's JSON form."""
HELP: Final = f"{', '.join(RECORD_COLUMNS)}, value.NAME, date(value.NAME), hour(value.NAME)"
LONGEST: Final = 180
NULL: Final = "__HIVE_DEFAULT_PARTITION__"

_COLUMN: Final = re.compile(
    r"(?P<unit>date|hour)\((?P<of>(?:key|value)(?:\.\w+)+)\)|(?P<path>(?:key|value)(?:\.\w+)+)"
)
_TYPES: Final = ("string", "boolean", "byte", "short", "integer", "long", "date")
_TIMES: Final = ("timestamp", "timestamp_ntz", "date")
_HOUR_US: Final = 3_600_000_000
_DATE_LETTERS: Final = 10
"""Of the years 0 to 9999; readers take no other texts for dates."""
_PLAIN: Final = re.compile(r"[^A-Za-z0-9._\-]")


@dataclass(frozen=True, slots=True)
class FolderColumn:
    """One column of the folders."""

    name: str
    """That of the folders."""
    path: tuple[str, ...] = ()
    """Where the value is; () for what every record has."""
    unit: str = ""
    """``date`` or ``hour`` of a time, else ""."""

    @property
    def of_record(self) -> bool:
        """Whether every record has it."""
        return not self.path


def folder_columns(names: Sequence[str]) -> tuple[FolderColumn, ...]:
    """Return the columns of folders, each known and given once.

    Raises ``ConfigurationError``.
    """
    columns = [_column(name) for name in names]
    for column in columns:
        if sum(other.name.lower() == column.name.lower() for other in columns) > 1:
            raise ConfigurationError(
                f"partition by {','.join(names)}: two folders would be {column.name}=",
                hint="name it once",
            )
    return tuple(columns)


def _column(text: str) -> FolderColumn:
    if text in RECORD_COLUMNS:
        return FolderColumn(text)
    match = _COLUMN.fullmatch(text)
    if match is None:
        near = did_you_mean(text, RECORD_COLUMNS)
        raise ConfigurationError(
            f"cannot partition the table by {text}" + (f"; did you mean {near}?" if near else ""),
            hint=f"choose from {HELP}",
        )
    path = tuple((match["path"] or match["of"]).split("."))
    return FolderColumn(match["unit"] or path[-1], path, match["unit"] or "")


def check_folders(names: Sequence[str], projection: Projection) -> dict[str, Any]:
    """Return the type of each folder's column in Spark's JSON form, by the name of the folder.

    Raises ``ConfigurationError`` if a column does not exist, or folders cannot be named after it.
    """
    types: dict[str, Any] = {}
    files = {column.name.lower() for column in projection.without(names).columns}
    for text, column in zip(names, folder_columns(names), strict=True):
        if column.of_record:
            types[column.name] = RECORD_COLUMNS[column.name]
            continue
        kind = _type_at(projection, column.path, text)
        allowed = _TIMES if column.unit else _TYPES
        if kind not in allowed:
            raise ConfigurationError(
                f"cannot partition the table by {text}: it is {sql_type(kind)}",
                hint=f"one of {', '.join(map(sql_type, allowed))}"
                + ("" if column.unit or kind not in _TIMES else f"; or date({text})"),
            )
        if column.name.startswith("_"):
            raise ConfigurationError(
                f"cannot partition the table by {text}: readers ignore folders that begin with _",
                hint="partition by something else",
            )
        if column.name.lower() in files:
            raise ConfigurationError(
                f"cannot partition the table by {text}: its files have a column {column.name}",
                hint=f"leave {column.name} out of the columns, or partition by something else",
            )
        types[column.name] = {"hour": "integer", "date": "date"}.get(column.unit, kind)
    return types


def _type_at(projection: Projection, path: tuple[str, ...], text: str) -> Any:
    column = projection.column(path[0])
    kind: Any = None if column is None else column.json_type
    for name in path[1:]:
        fields = kind["fields"] if isinstance(kind, Mapping) and "fields" in kind else ()
        kind = next((member["type"] for member in fields if member["name"] == name), None)
    if kind is None:
        raise ConfigurationError(
            f"cannot partition the table by {text}: it has no such column",
            found=f"its columns are {projection.ddl}",
            hint="name a member of a typed key or value",
        )
    return kind


class BatchFolders:
    """Divides the rows of batches by the values that folders are named after."""

    def __init__(self, names: Sequence[str], projection: Projection) -> None:
        self._columns = [column for column in folder_columns(names) if not column.of_record]
        self._at = {column.source: number for number, column in enumerate(projection.columns)}

    def divide(self, batch: pa.RecordBatch) -> Iterator[tuple[dict[str, str], pa.RecordBatch]]:
        """Yield rows by folder, with the text of each value by the name of its folder."""
        if not self._columns:
            yield {}, batch
            return
        codes: NDArray[np.int64] = np.zeros(batch.num_rows, np.int64)
        texts: list[list[str]] = []
        for column in self._columns:
            own, names = _coded(_values(batch.column(self._at[column.path[0]]), column), column)
            codes = codes * len(names) + own
            texts.append(names)
        unique_codes, firsts = np.unique(np.sort(codes), return_index=True)
        if len(unique_codes) > 1:
            batch = batch.take(np.argsort(codes, kind="stable"))  # in their order by folder
        ends = [*firsts[1:].tolist(), batch.num_rows]
        for code, first, end in zip(unique_codes.tolist(), firsts.tolist(), ends, strict=True):
            values: dict[str, str] = {}
            for column, names in zip(reversed(self._columns), reversed(texts), strict=True):
                code, at = divmod(code, len(names))
                values[column.name] = names[at]
            yield values, batch.slice(first, end - first)

    def __repr__(self) -> str:
        return f"<BatchFolders {[column.name for column in self._columns]}>"


def _values(array: pa.Array, column: FolderColumn) -> pa.Array:
    """Return the values at a path, with a date or hour for a time."""
    compute = optional_package("pyarrow.compute", "a table of files")
    arrow = optional_package("pyarrow", "a table of files")
    for name in column.path[1:]:
        array = compute.struct_field(array, name)  # null where the struct is
    if not column.unit:
        return array
    if arrow.types.is_date32(array.type):
        array = array.cast(arrow.timestamp("us"))
    numbers = compute.cast(array, arrow.int64())
    unit = _HOUR_US * (24 if column.unit == "date" else 1)
    units = numbers.fill_null(0).to_numpy(zero_copy_only=False) // unit
    return arrow.array(units, mask=numbers.is_null().to_numpy(zero_copy_only=False))


def _coded(array: pa.Array, column: FolderColumn) -> tuple[NDArray[np.int64], list[str]]:
    """Return a code for each row, and the text of each code."""
    arrow = optional_package("pyarrow", "a table of files")
    is_date = arrow.types.is_date32(array.type)
    if is_date:  # dates of Python's end with the year 9999
        array = array.cast(arrow.int32())
    coded = array.dictionary_encode("encode")
    unit = "date" if is_date else column.unit
    texts = [_text(value, unit) for value in coded.dictionary.to_pylist()]
    numbers: dict[str, int] = {}  # several values may share a folder
    places = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
    return places[coded.indices.to_numpy(zero_copy_only=False)], list(numbers)


def _text(value: Any, unit: str) -> str:
    if value is None:
        return NULL
    if unit == "date":
        text = str(np.datetime64(value, "D"))
        return text if len(text) == _DATE_LETTERS else NULL
    if unit == "hour":
        return str(value % 24)
    if isinstance(value, bool):
        return "true" if value else "false"
    text = _PLAIN.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()),
                      str(value))  # fmt: skip
    return text if text and len(text) <= LONGEST else NULL


def folder_value(text: str) -> str | None:
    """Return the value in the name of a folder, None for null."""
    if text == NULL:
        return None
    parts = text.split("%")
    data = parts[0].encode() + b"".join(
        bytes([int(piece[:2], 16)]) + piece[2:].encode() for piece in parts[1:]
    )
    return data.decode()
