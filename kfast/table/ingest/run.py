"""IngestRun: what one run of an ingest has open: its consumer, its table, and where that ends.

Owns the numbers of the run's batches and the entry that the next one follows. One thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfast.errors import KafkaError
from kfast.table.batches import ReadRange, files_in
from kfast.table.entries import Entry, TableShape
from kfast.table.ingest.consuming import IngestConsumer
from kfast.table.ingest.reading import RecordReader
from kfast.table.projection import Projection
from kfast.table.publish import Publisher
from kfast.table.table_log import OpenTable, TableLog

if TYPE_CHECKING:
    from kfast.table.delta_upserts import DeltaUpserts


@dataclass(slots=True)
class IngestRun:
    """What a run has open. Its batches are numbered in order; one that fails keeps its number."""

    consumer: IngestConsumer
    reader: RecordReader
    publisher: Publisher
    log: TableLog
    table: OpenTable
    last: Entry
    upserts: DeltaUpserts | None = None
    """Takes the changes of a table with keys."""
    number: int = 0

    def publish(
        self, ranges: Sequence[ReadRange], topic_ids: Mapping[str, str], shape: TableShape
    ) -> Entry:
        """Publish ranges as the next batch."""
        self.last = self.publisher.publish(
            self.table.writer, self.number, ranges, topic_ids, shape, self.last
        )
        self.number += 1
        return self.last

    def begin_again(self, shape: TableShape, projection: Projection) -> None:
        """Go on with other columns, which the table gets."""
        stored, table = self.log.last(), None
        if self.number == 0 if stored is None else stored.id == self.last.id:
            table = self.log.begin(self.table.writer, shape, projection, stored)
        if table is None:
            raise KafkaError(
                f"another ingest writes {self.log.store.url} by now", hint="stop one of them"
            )
        self.table, self.last = table, table.last

    def abort(self, ranges: Sequence[ReadRange]) -> None:
        """Remove the files of ranges that are in no batch."""
        if ranges:
            self.publisher.abort(self.table.writer, self.number, files_in(ranges), is_complete=True)
