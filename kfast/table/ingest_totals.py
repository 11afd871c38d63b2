"""IngestTotals: what the batches of one ingest have in all.

Owns the sums of manifests that lines, metrics and warnings show. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfast.table.batches import ReadRange
    from kfast.table.entries import Entry


@dataclass(slots=True)
class IngestTotals:
    """What the batches of one ingest have in all."""

    rows: int = 0
    bytes: int = 0
    files: int = 0
    batches: int = 0
    partitions: int = 0
    """Of the table, after the last batch."""
    lost_offsets: int = 0
    bad_records: int = 0
    skipped_batches: int = 0
    dead_letters: int = 0
    unknown_fields: int = 0

    def add(self, entry: Entry) -> None:
        """Add a batch."""
        self.rows += entry.counts.rows
        self.bytes += entry.counts.bytes
        self.files += entry.counts.files
        self.batches += 1
        self.partitions = len(entry.ends)
        self.lost_offsets += entry.counts.lost_offsets
        self.bad_records += entry.counts.bad_records
        self.dead_letters += entry.counts.dead_letters
        self.unknown_fields += entry.counts.unknown_fields
        self.skipped_batches += len(
            {batch for batch_range in entry.ranges for batch in skipped_in(batch_range)}
        )

    @property
    def losses(self) -> list[str]:
        """What is not as it is in Kafka, zeros too."""
        return [
            f"{self.lost_offsets:,} lost offsets",
            f"{self.bad_records:,} malformed records",
            f"{self.skipped_batches:,} skipped batches",
            f"{self.dead_letters:,} dead letters",
            f"{self.unknown_fields:,} fields without a column",
        ]


def skipped_in(batch_range: ReadRange) -> set[tuple[str, int, str]]:
    """Topic, partition and base offset of the corrupt batches left out of a range.

    Tasks that share a batch have it each, so that ranges are counted together.
    """
    return {
        (*batch_range.topic_partition, batch.partition("-")[0])
        for batch in batch_range.skipped_batches.split()
    }
