"""IngestTotals: what the batches of one ingest have in all.

Owns the sums of manifests that lines, metrics and warnings show. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfast.table.manifest import DataFile, Entry


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

    def add(self, entry: Entry) -> None:
        """Add a batch."""
        self.rows += entry.batch_rows
        self.bytes += entry.batch_bytes
        self.files += len(entry.written)
        self.batches += 1
        self.partitions = len(entry.ends)
        self.lost_offsets += entry.batch_lost_offsets
        self.bad_records += entry.batch_bad_records
        self.dead_letters += entry.batch_dead_letters
        self.skipped_batches += len({batch for file in entry.files for batch in skipped_in(file)})

    @property
    def losses(self) -> list[str]:
        """What is not as it is in Kafka, zeros too."""
        return [
            f"{self.lost_offsets:,} lost offsets",
            f"{self.bad_records:,} malformed records",
            f"{self.skipped_batches:,} skipped batches",
            f"{self.dead_letters:,} dead letters",
        ]


def skipped_in(file: DataFile) -> set[tuple[str, int, str]]:
    """Return topic, partition and base offset of the corrupt batches left out of a file.

    Tasks that share a batch have it each, so that files are counted together.
    """
    return {
        (file.topic, file.partition, batch.partition("-")[0])
        for batch in file.skipped_batches.split()
    }
