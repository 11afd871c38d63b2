"""Statistics of a file's columns as a Delta log has them, from the footer that its writer made.

Least and greatest values and numbers of nulls, of the columns that the file has statistics of and
that Delta skips files by: members of structs too, those of lists and maps not. Left out are bounds
that could be wrong: those of floating-point numbers, as Parquet leaves out NaN and Delta takes it
for the greatest, and those of decimals, whose digits JSON numbers may not hold. Delta's times have
milliseconds: bounds are rounded to the outside, and those beyond the years 1 to 9999 are the ends
of these.

A column at the top has bounds in every file or in none, and the table has a property that says
which (`file_formats.bounded_columns`): for the others deltalake would take "at least null" as a
bound, by which its Arrow datasets leave out rows that a filter on such a column asks for. Pure.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kfast._base.optional import optional_package

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_BOUNDED: Final = (int, str, datetime.date)  # bool and datetime are subclasses
_MS: Final = datetime.timedelta(milliseconds=1)
_ENDS: Final = (
    datetime.datetime(1, 1, 1, tzinfo=datetime.UTC),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.UTC),
)
_LONGEST: Final = 256
"""Longest text that is given as a bound; names of topics are shorter."""


def delta_stats(metadata: pq.FileMetaData, schema: pa.Schema) -> str:
    """Return the statistics of a file in JSON."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    paths = [path for field in schema for path in _leaves(field.type, (field.name,))]
    for number, path in enumerate(paths):
        found = [
            metadata.row_group(group).column(number).statistics
            for group in range(metadata.num_row_groups)
        ]
        if path is None or any(each is None for each in found):
            continue
        if all(each.has_null_count for each in found):
            _put(nulls, path, sum(each.null_count for each in found))
        # A row group of nulls has no bounds.
        bounded = [each for each in found if each.num_values]
        if bounded and all(_has_bounds(each) for each in bounded):
            _put(least, path, _text(min(_bounds(each)[0] for each in bounded), is_end=False))
            _put(greatest, path, _text(max(_bounds(each)[1] for each in bounded), is_end=True))
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": nulls,
        }
    )


def _has_bounds(found: pq.Statistics) -> bool:
    if not found.has_min_max:
        return False
    return all(
        isinstance(each, _BOUNDED) and (not isinstance(each, str) or len(each) <= _LONGEST)
        for each in _bounds(found)
    )


def _bounds(found: pq.Statistics) -> tuple[Any, Any]:
    """Return the least and the greatest value, within the years that Python has."""
    made = []
    for name in ("min", "max"):
        try:
            made.append(getattr(found, name))
        except (OverflowError, ValueError):
            end = _ENDS[getattr(found, f"{name}_raw") > 0]
            kind = json.loads(found.logical_type.to_json())
            if kind["Type"] == "Date":
                made.append(end.date())
            else:
                made.append(end if kind["isAdjustedToUTC"] else end.replace(tzinfo=None))
    return made[0], made[1]


def _text(value: Any, *, is_end: bool) -> Any:
    if not isinstance(value, datetime.datetime):
        return value.isoformat() if isinstance(value, datetime.date) else value
    rest = datetime.timedelta(microseconds=value.microsecond % 1000)
    if rest:
        value -= rest
        with contextlib.suppress(OverflowError):  # the last millisecond that there is
            value += _MS if is_end else datetime.timedelta()
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _put(into: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        into = into.setdefault(name, {})
    into[path[-1]] = value


def _leaves(kind: pa.DataType, path: tuple[str, ...]) -> Iterator[tuple[str, ...] | None]:
    """Yield the path of each column of Parquet, None for those inside of lists and maps."""
    types = optional_package("pyarrow", "a table of files").types
    if types.is_struct(kind):
        for number in range(kind.num_fields):
            field = kind.field(number)
            yield from _leaves(field.type, (*path, field.name))
    elif types.is_dictionary(kind) or not kind.num_fields:
        yield path
    else:
        inner = [kind.key_type, kind.item_type] if types.is_map(kind) else [kind.value_type]
        for each in inner:
            for _ in _leaves(each, path):
                yield None
