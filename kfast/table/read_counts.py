"""ReadCounts: what a task has read, what of it has no column, and what is not as in the log.

Owns the numbers that are reported for a batch: in the logs of the workers, by `LagListener`, and in
the manifest of an ingest. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

_MOST_PATHS: Final = 8


@dataclass(frozen=True, slots=True, order=True)
class SkippedBatch:
    """A record batch that was left out, as it cannot be read (``skipCorruptBatches``)."""

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    """As far as it can be known of a batch that is corrupt."""
    cause: str = field(default="", compare=False)

    def __str__(self) -> str:
        cause = f" ({self.cause})" if self.cause else ""
        return (
            f"{self.topic}-{self.partition} offsets {self.base_offset} to {self.last_offset}{cause}"
        )


@dataclass(slots=True)
class UnknownCounts:
    """Fields of documents that no column is read from."""

    fields: int = 0
    """In all records that were handed out."""
    paths: tuple[str, ...] = ()
    """The first ones, such as ``value.user.age``."""

    def add(self, fields: int, paths: Iterable[str], above: str = "") -> None:
        """Add fields of more records; ``above`` is the column that the paths begin in."""
        self.fields += fields
        named = (f"{above}.{path}" if above else path for path in paths)
        self.paths = tuple(dict.fromkeys((*self.paths, *named)))[:_MOST_PATHS]

    @property
    def text(self) -> str:
        """The paths as one text."""
        return ", ".join(self.paths)


@dataclass(slots=True)
class ReadCounts:
    """Counts of a task, or of all tasks of a batch."""

    rows: int = 0
    """Records handed out."""
    lost_offsets: int = 0
    """Offsets that the log had no more (``failOnDataLoss=false``)."""
    bad_records: int = 0
    """Keys, values and timestamps that are malformed."""
    skipped_batches: tuple[SkippedBatch, ...] = ()
    unknown: UnknownCounts = field(default_factory=UnknownCounts)
    """Fields of documents that have no column: read as it is, but not all of it."""

    def skip(self, batch: SkippedBatch) -> None:
        """Add a batch; one that is there already may turn out to be longer."""
        self.skipped_batches = _merged((*self.skipped_batches, batch))

    def add(self, other: ReadCounts) -> None:
        """Add the counts of another task."""
        self.rows += other.rows
        self.lost_offsets += other.lost_offsets
        self.bad_records += other.bad_records
        self.unknown.add(other.unknown.fields, other.unknown.paths)
        self.skipped_batches = _merged((*self.skipped_batches, *other.skipped_batches))

    @property
    def is_complete(self) -> bool:
        """Whether everything was read as it is in the log."""
        return not (self.lost_offsets or self.bad_records or self.skipped_batches)

    @property
    def differences(self) -> list[str]:
        """What was not read as it is in the log, in words; empty if `is_complete`."""
        differences = []
        if self.lost_offsets:
            differences.append(f"{self.lost_offsets:,} lost offsets")
        if self.skipped_batches:
            count = len(self.skipped_batches)
            differences.append(f"{count:,} skipped batch{'es' if count > 1 else ''}")
        if self.bad_records:
            differences.append(f"{self.bad_records:,} malformed records")
        return differences

    def __str__(self) -> str:
        return ", ".join([f"{self.rows:,} records", *self.differences])


def _merged(batches: Iterable[SkippedBatch]) -> tuple[SkippedBatch, ...]:
    """Return each batch once: tasks that share one skip it each, some in pieces."""
    by_batch: dict[tuple[str, int, int], SkippedBatch] = {}
    for batch in batches:
        key = (batch.topic, batch.partition, batch.base_offset)
        last = max(batch.last_offset, by_batch[key].last_offset if key in by_batch else -1)
        by_batch[key] = replace(batch, last_offset=last)
    return tuple(sorted(by_batch.values()))
