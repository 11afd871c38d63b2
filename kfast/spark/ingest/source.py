"""Source and sink of an ingest: subclasses of pyspark's classes.

Owns three classes over ``task`` and ``publish``. Not records but one row per range (``PARTS``) pass
through Spark from the reader to the writer: tasks write their records themselves. Offsets, triggers
and checkpoints are those of ``stream_reader``. Every process loads all three, that of each batch's
commit too, so a method imports what only its process needs.

==========================  =====================================================================
where                       what runs there
==========================  =====================================================================
driver, one Python process  `IngestReader`'s offsets
workers                     `IngestReader.read`, `IngestWriter.write`, in the same task
driver, a Python process    `IngestWriter.commit` and `abort`: a new writer for each batch, made
per batch                   from the plan alone
==========================  =====================================================================

Imports pyspark: only ``query`` and Spark's processes import this module.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)

from kfast.spark.ingest.checkpoint import first_offsets, fsync_batch
from kfast.spark.ingest.plan import PARTS, IngestPlan, plan_of, source_options
from kfast.spark.source.batch_reader import ranges_of
from kfast.spark.source.checked_pickle import checked_reduce
from kfast.spark.source.stream_reader import KafkaStreamReader
from kfast.table.batches import (
    BatchPart,
    PartitionGone,
    PartitionRestart,
    ReadRange,
    batch_part_of,
    files_in,
    ranges_in,
)
from kfast.table.fsspec_store import open_store
from kfast.table.location import is_local
from kfast.table.offset_ranges import OffsetRange
from kfast.table.offsets_json import OffsetsByTopic, from_json_dict, to_json_dict
from kfast.table.store import storage_errors
from kfast.table.topic_ids import TopicIds

if TYPE_CHECKING:
    import pyarrow as pa

    from kfast.spark.source.options import SourceOptions
    from kfast.types import TopicPartition

FORMAT: Final = "kfast_ingest"


class IngestSource(DataSource):
    """Kafka topics as files of a table; used by ``kfast.spark.ingest`` only."""

    counts: ClassVar[object] = None
    """What tasks count into, as in `KafkaDataSource`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return FORMAT

    def schema(self) -> str:
        """Return the column that describes a part of a batch."""
        return PARTS

    def streamReader(self, schema: Any) -> IngestReader:  # noqa: ARG002 - Spark's
        """Return the reader, which writes the files."""
        from kfast.spark.source.options import parse_options  # noqa: PLC0415 - readers only

        options = parse_options(source_options(self.options), is_stream=True)
        return IngestReader(options, plan_of(self.options), self.counts)

    def streamWriter(self, schema: Any, overwrite: bool) -> IngestWriter:  # noqa: ARG002 - Spark's
        """Return the sink, which publishes the files."""
        return IngestWriter(plan_of(self.options))


class IngestReader(KafkaStreamReader):
    """Reads a stream and writes it to the staging folder."""

    def __init__(
        self, options: SourceOptions, plan: IngestPlan, accumulator: object = None
    ) -> None:
        super().__init__(options, plan.projection, accumulator)
        self._plan = plan

    def initialOffset(self) -> OffsetsByTopic:
        """Return where the first batch begins: not before the offsets that the table has."""
        wanted = from_json_dict(super().initialOffset())
        begins = {tp: max(at, self._plan.ends.get(tp, 0)) for tp, at in wanted.items()}
        checkpoint = self._plan.open_folder(self._plan.checkpoint)
        return to_json_dict(first_offsets(checkpoint, begins))

    def partitions(self, start: OffsetsByTopic, end: OffsetsByTopic) -> list[InputPartition]:
        """Plan a micro-batch, with a part for each partition that begins anew or is gone."""
        begins, ends = from_json_dict(start), from_json_dict(end)
        known, anew = self._back_again(ends.keys() - begins.keys())
        begins |= {tp: min(at, ends[tp]) for tp, at in known.items()}
        planned = super().partitions(to_json_dict(begins), end)
        parts: list[BatchPart] = [
            # Read up to its end before, also by this batch if it is repeated.
            ReadRange(*tp, ends[tp], ends[tp])
            for tp in known
            if begins[tp] == ends[tp]
        ]
        parts += [
            PartitionRestart(*tp, begins[tp], at)
            for tp, at in ends.items()
            if at < begins.get(tp, at)
        ]
        firsts: dict[TopicPartition, int] = {}
        for offsets in (each for partition in planned for each in ranges_of(partition)):
            tp = offsets.topic_partition
            firsts[tp] = min(offsets.from_offset, firsts.get(tp, offsets.from_offset))
        parts += [PartitionRestart(*tp, anew[tp], firsts.get(tp, ends[tp])) for tp in sorted(anew)]
        parts += [PartitionGone(*tp, begins[tp]) for tp in begins.keys() - ends.keys()]
        if not planned and not parts and ends and not self._plan.has_files():
            tp, at = min(ends.items())  # for the file with the columns
            parts.append(ReadRange(*tp, at, at))
        return planned + ([KnownParts(tuple(parts))] if parts else [])

    def _back_again(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the table's ends of partitions that were gone, and of those of another topic now.

        What the table has of the former must not be read again.
        """
        last = self._plan.log().last() if partitions else None
        if last is None:
            return {}, {}
        ids = self._offsets.topic_ids
        known = {tp: last.ends[tp] for tp in partitions if last.ends.get(tp)}
        anew = {
            tp: at
            for tp, at in known.items()
            if ids.get(tp.topic, "") != last.topic_ids.get(tp.topic, ids.get(tp.topic, ""))
        }
        return {tp: at for tp, at in known.items() if tp not in anew}, anew

    def _topic_ids(self) -> TopicIds:
        return TopicIds(self._plan.open_folder(self._plan.checkpoint), self._plan.topic_ids)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write one task's records, on a worker, and yield a row per range."""
        from kfast.spark.ingest.task import part_rows, write_ranges  # noqa: PLC0415 - workers only

        if isinstance(partition, KnownParts):
            return iter((part_rows(partition.parts),))
        return write_ranges(ranges_of(partition), self._options, self._plan, self._accumulator)


class KnownParts(InputPartition):
    """Parts of a batch for which nothing is read: partitions that begin anew or are gone."""

    def __init__(self, parts: tuple[BatchPart, ...]) -> None:
        super().__init__(None)
        self.parts = parts


@dataclass
class TaskParts(WriterCommitMessage):
    """The ranges that one task wrote, in JSON; Spark sends it to the driver."""

    parts: tuple[str, ...]


class IngestWriter(DataSourceStreamWriter):
    """Publishes the ranges that the tasks wrote."""

    def __init__(self, plan: IngestPlan) -> None:
        self._plan = plan

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Return what makes the writer in a process that may lack kfast, which is named then."""
        return checked_reduce(self, protocol)

    def write(self, iterator: Iterator[Any]) -> TaskParts:
        """Collect the rows of one task, on a worker."""
        return TaskParts(tuple(row[0] for row in iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish a batch, on the driver."""
        plan = self._plan
        with storage_errors(f"cannot publish batch {batchId} of {plan.url}"):
            if is_local(plan.checkpoint):
                fsync_batch(open_store(plan.checkpoint), batchId)
            parts = _parts_of(messages)
            ranges = ranges_in(parts)
            if ranges and not files_in(parts):
                parts += self._columns(max(ranges, key=lambda part: part.until_offset))
            topics = {part.topic for part in parts if not isinstance(part, PartitionGone)}
            known = TopicIds(plan.open_folder(plan.checkpoint)).known if topics else {}
            ids = {topic: known[topic] for topic in topics if topic in known}
            plan.publisher().publish(plan.writer, batchId, parts, ids, plan.shape)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the files of a failed batch, on the driver."""
        self._plan.publisher().abort(
            self._plan.writer,
            batchId,
            files_in(_parts_of(messages)),
            is_complete=None not in messages,
        )

    def _columns(self, last: ReadRange) -> list[BatchPart]:
        """Write a file without rows if the table has no file yet: readers need its columns."""
        if self._plan.has_files():
            return []
        from kfast._base.clock import SystemClock  # noqa: PLC0415 - for a table without records
        from kfast.spark.ingest.task import range_files  # noqa: PLC0415

        wanted = OffsetRange(*last.topic_partition, last.until_offset, last.until_offset)
        made = range_files(open_store(self._plan.url, self._plan.storage_options), wanted,
                           self._plan, {})  # fmt: skip
        return [made.close_without_rows(SystemClock().now_ms())]


def _parts_of(messages: list[WriterCommitMessage | None]) -> list[BatchPart]:
    return [
        batch_part_of(json.loads(part))
        for message in messages
        if isinstance(message, TaskParts)
        for part in message.parts
    ]
