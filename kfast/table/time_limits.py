"""TimeLimits: which timestamps of records the columns and the folders of a table can hold.

A producer may write any 64 bits as a record's timestamp; microseconds or nanoseconds in place of
milliseconds are the usual mistake. Such a timestamp is malformed like a value that is not of its
format: an error, null, or the record is left out, and a dead letter.

==========================================  ========================================================
where                                       timestamps it can hold
==========================================  ========================================================
column ``timestamp``, in microseconds       the years -290,308 to 294,247
folders ``date`` and ``hour``               the years 1 to 9999: readers take the names for dates
neither                                     all
==========================================  ========================================================

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kfast.columns.record_errors import error_message
from kfast.deserializers.deserializer import BadValue
from kfast.errors import DeserializationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kfast.records.partition_records import PartitionRecords
    from kfast.table.projection import Projection

COLUMN: Final = "timestamp"
_CODE: Final = "range"
_FOLDERS: Final = frozenset({"date", "hour"})


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """The least and the greatest timestamp in milliseconds, and the reason in words."""

    low_ms: int
    high_ms: int
    reason: str

    def check(self, times: NDArray[np.int64]) -> BadTimes | None:
        """Return the timestamps that are outside, None if there are none."""
        low, high = int(times.min(initial=self.low_ms)), int(times.max(initial=self.high_ms))
        if low >= self.low_ms and high <= self.high_ms:
            return None
        return BadTimes((times < self.low_ms) | (times > self.high_ms), times, self.reason)


MICROSECONDS: Final = TimeLimits(
    -((2**63 - 1) // 1000), (2**63 - 1) // 1000, "is beyond what a column of microseconds can hold"
)
YEARS: Final = TimeLimits(
    -62_135_596_800_000,
    253_402_300_799_999,
    "is not in the years 1 to 9999 of the folders",
)


def time_limits(projection: Projection, partition_by: Sequence[str] = ()) -> TimeLimits | None:
    """Return the limits of a table, None if nothing of it depends on timestamps of records."""
    if _FOLDERS & set(partition_by):
        return YEARS
    return MICROSECONDS if projection.wants(COLUMN) else None


class BadTimes:
    """The timestamps of some records that are outside of the limits."""

    def __init__(self, is_bad: NDArray[np.bool_], times: NDArray[np.int64], reason: str) -> None:
        self.is_bad = is_bad
        """True where a timestamp is outside."""
        self._times = times
        self._reason = reason

    def bad_value(self, row: int) -> BadValue:
        """Return why a timestamp cannot be held."""
        text = f"{int(self._times[row])} ms"
        return BadValue(f"{text} {self._reason}", text, code=_CODE)

    def raw_value(self, row: int) -> bytes:
        """Return a timestamp in milliseconds as text."""
        return b"%d" % int(self._times[row])

    def reasons(self) -> dict[int, str]:
        """Return column and code of each of them."""
        return dict.fromkeys(np.flatnonzero(self.is_bad).tolist(), f"{COLUMN} {_CODE}")

    def error(self, records: PartitionRecords, hint: str) -> DeserializationError:
        """Return the error for the first of them."""
        row = int(np.argmax(self.is_bad))
        offset = int(records.offsets[row])
        bad = self.bad_value(row)
        return DeserializationError(
            error_message(f"{records.topic_partition} offset {offset}", COLUMN, bad),
            cause="a producer has written another unit than milliseconds, or no time",
            hint=hint,
            topic=records.topic,
            partition=records.partition,
            offset=offset,
            column=COLUMN,
            code=bad.code,
        )

    def __repr__(self) -> str:
        return f"<BadTimes {int(np.count_nonzero(self.is_bad))} of {len(self.is_bad)}>"
