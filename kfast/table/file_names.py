"""Names of the files of a table, and of its partition folders.

Owns both. A file's name is made of the range its task read, so that it is the same in each attempt
of a batch; folders are named as in Hive (``date=2026-01-31/hour=7``), which Spark, pyarrow, DuckDB
and polars read as columns. Readers ignore names that begin with ``_`` or ``.``, so such names of
topics, and those too long for a file's name, are changed. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from kfast.records.partition_records import PartitionRecords
from kfast.table.folders import NULL, FolderColumn, folder_value
from kfast.table.offset_ranges import OffsetRange

if TYPE_CHECKING:
    from kfast.table.time_limits import TimeLimits

_TIMES_MS: Final = {"date": 86_400_000, "hour": 3_600_000}
_LONGEST: Final = 140
_HASH_DIGITS: Final = 12

Parts = tuple[tuple[str, str], ...]
"""Names and values of the folders a file is in."""


def final_path(
    offset_range: OffsetRange,
    parts: Parts = (),
    number: int = 0,
    ending: str = ".parquet",
    unique: str = "",
) -> str:
    """Return the published path of a file, relative to the table.

    ``number`` is 0 for the first file of a range in this folder, then 1, 2, ...; with ``unique`` no
    other attempt at the range has the same path.
    """
    folders = "".join(f"{name}={value}/" for name, value in parts)
    more = f"-{unique}" if unique else f"-{number}" if number else ""
    return f"{folders}{task_name(offset_range)}{more}{ending}"


def task_name(offset_range: OffsetRange) -> str:
    """Return ``topic-partition-from-until``."""
    return f"{range_name(offset_range)}-{offset_range.until_offset}"


def range_name(offset_range: OffsetRange) -> str:
    """Return ``topic-partition-from``, the name of a range whose end may be unknown."""
    topic = offset_range.topic
    if topic.startswith(("_", ".")) or len(topic) > _LONGEST:
        digest = hashlib.sha256(topic.encode()).hexdigest()[:_HASH_DIGITS]
        topic = f"topic-{topic[:_LONGEST]}-{digest}"
    return f"{topic}-{offset_range.partition}-{offset_range.from_offset}"


def parts_of(path: str) -> dict[str, str | None]:
    """Return names and values of the folders a file is in."""
    folders = [folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder]
    return {name: folder_value(text) for name, text in folders}


def split_records(
    records: PartitionRecords, names: Sequence[str], limits: TimeLimits | None = None
) -> Iterator[tuple[Parts, PartitionRecords]]:
    """Yield records, which must not be empty, by their partition folders in the order of time.

    Those whose timestamps are outside of the limits come first, in the folders of null.
    """
    units = [_TIMES_MS[name] for name in names if name in _TIMES_MS]
    if not units:
        yield _parts(records, names, 0), records
        return
    beyond = None if limits is None else limits.check(records.timestamps)
    if beyond is not None:
        yield _parts(records, names, None), records[np.flatnonzero(beyond.is_bad)]
        records = records[np.flatnonzero(~beyond.is_bad)]
        if not len(records):
            return
    smallest = min(units)
    slots: NDArray[np.int64] = records.timestamps // smallest
    first = int(slots[0])
    if (slots == first).all():
        yield _parts(records, names, first * smallest), records
        return
    if names and "date" not in names:  # the same hour of different days goes to one folder
        slots = slots % 24
    for slot in np.unique(slots).tolist():
        yield _parts(records, names, slot * smallest), records[np.flatnonzero(slots == slot)]


def parts_at(topic: str, partition: int, columns: Sequence[FolderColumn], time_ms: int) -> Parts:
    """Return the folders of a file without rows of a partition at a time."""
    names = [column.name for column in columns if column.of_record]
    values = dict(_record_parts(topic, partition, names, time_ms))
    return tuple(
        (column.name, values[column.name] if column.of_record else NULL) for column in columns
    )


def time_bounds(records: PartitionRecords, limits: TimeLimits | None) -> tuple[int, int]:
    """The least and the greatest timestamp within the limits of records, which must not be empty.

    The former is greater if there is none.
    """
    # Two passes, not more: each gives the GIL away, and waits for it.
    times = records.timestamps
    low, high = int(times.min()), int(times.max())
    if limits is None or (low >= limits.low_ms and high <= limits.high_ms):
        return low, high
    times = times[(times >= limits.low_ms) & (times <= limits.high_ms)]
    return int(times.min(initial=2**63 - 1)), int(times.max(initial=-(2**63)))


def _parts(records: PartitionRecords, names: Sequence[str], time_ms: int | None) -> Parts:
    return _record_parts(records.topic, records.partition, names, time_ms)


def _record_parts(topic: str, partition: int, names: Sequence[str], time_ms: int | None) -> Parts:
    values = {"topic": topic, "partition": str(partition), "date": NULL, "hour": NULL}
    if time_ms is not None:
        values["date"] = str(np.datetime64(time_ms, "ms").astype("datetime64[D]"))
        values["hour"] = str(time_ms // 3_600_000 % 24)
    return tuple((name, values[name]) for name in names)
