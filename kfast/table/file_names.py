"""File names: where the files of a table are, and what the names of folders say.

Owns both. A file's name follows from what its task read, so that it is the same whoever finishes a
batch; folders are named as Hive does (``date=2026-01-31/hour=7``), which Spark, pyarrow, DuckDB and
polars take for columns. Readers pass over names that begin with ``_`` or ``.``, so a topic's name
that does so, or is too long for a file's, is spelled differently. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kfast.errors import ConfigurationError, did_you_mean
from kfast.records.partition_records import PartitionRecords
from kfast.table.offset_ranges import OffsetRange

PARTITION_BY: Final = {
    "topic": "string",
    "partition": "integer",
    "date": "string",
    "hour": "integer",
}
"""What folders may be named after, and the types of these columns in Spark's JSON. Date and hour
are those of the record's timestamp, in UTC."""

_TIMES_MS: Final = {"date": 86_400_000, "hour": 3_600_000}
_LONGEST: Final = 140
_HASH_DIGITS: Final = 12

Parts = tuple[tuple[str, str], ...]
"""Names and values of the folders a file is in."""


def check_partition_by(names: Sequence[str]) -> tuple[str, ...]:
    """Return what folders are named after.

    Raises
    ------
    ConfigurationError
        A name is unknown, or there twice.
    """
    for name in names:
        if name not in PARTITION_BY:
            near = did_you_mean(name, PARTITION_BY)
            raise ConfigurationError(
                f"cannot partition the table by {name}"
                + (f"; did you mean {near}?" if near else ""),
                hint=f"choose from {', '.join(PARTITION_BY)}",
            )
    if len(set(names)) != len(names):
        raise ConfigurationError(
            f"partition by {','.join(names)}: a name is there twice", hint="name it once"
        )
    return tuple(names)


def final_path(wanted: OffsetRange, parts: Parts = (), number: int = 0) -> str:
    """Return where readers find a file, relative to the table.

    Parameters
    ----------
    wanted : OffsetRange
        What its task read.
    parts : sequence of pairs
        Names and values of its folders.
    number : int
        0 for the first file of its task in this folder, then 1, 2, ...
    """
    folders = "".join(f"{name}={value}/" for name, value in parts)
    more = f"-{number}" if number else ""
    return f"{folders}{task_name(wanted)}{more}.parquet"


def task_name(wanted: OffsetRange) -> str:
    """Return ``topic-partition-from-until``."""
    topic = wanted.topic
    if topic.startswith(("_", ".")) or len(topic) > _LONGEST:
        digest = hashlib.sha256(topic.encode()).hexdigest()[:_HASH_DIGITS]
        topic = f"topic-{topic[:_LONGEST]}-{digest}"
    return f"{topic}-{wanted.partition}-{wanted.from_offset}-{wanted.until_offset}"


def parts_of(path: str) -> dict[str, str]:
    """Return names and values of the folders a file is in."""
    return dict(folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder)


def split_records(
    records: PartitionRecords, names: Sequence[str]
) -> Iterator[tuple[Parts, PartitionRecords]]:
    """Yield records by the folders they belong to, in the order of time.

    Parameters
    ----------
    records : PartitionRecords
        Of one partition; not empty.
    names : sequence of str
        What folders are named after.
    """
    units = [_TIMES_MS[name] for name in names if name in _TIMES_MS]
    if not units:
        yield _parts(records, names, 0), records
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


def _parts(records: PartitionRecords, names: Sequence[str], time_ms: int) -> Parts:
    values = {
        "topic": lambda: records.topic,
        "partition": lambda: str(records.partition),
        "date": lambda: str(np.datetime64(time_ms, "ms").astype("datetime64[D]")),
        "hour": lambda: str(time_ms // 3_600_000 % 24),
    }
    return tuple((name, values[name]()) for name in names)
