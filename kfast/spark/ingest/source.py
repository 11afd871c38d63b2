"""Source and sink of an ingest: subclasses of pyspark's classes.

Owns three classes over ``task`` and ``publish``. Not records but one row per range (``PARTS``) pass
through Spark from the reader to the writer: tasks write their records themselves. So may the plan
of a batch, where columns were added since the query has started (``newer_schema``). Offsets,
triggers and checkpoints are those of ``stream_reader``. Every process loads all three, that of each
batch's commit too, so a method imports what only its process needs.

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
from kfast.spark.ingest.plan import PARTS, IngestPlan, plan_of, plan_of_text, source_options
from kfast.spark.source.batch_reader import ranges_of
from kfast.spark.source.stream_reader import KafkaStreamReader
from kfast.spark.source.worker_check import checked_reduce
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

    from kfast.spark.ingest.newer_schema import NewerSchema
    from kfast.spark.source.options import SourceOptions
    from kfast.types import TopicPartition

FORMAT: Final = "kfast_ingest"
_PLAN: Final = "plan"
"""The member of a row that has the plan of its batch, where that is not the query's."""


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
        self._newer: NewerSchema | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_newer": None}

    def initialOffset(self) -> OffsetsByTopic:
        """Return where the first batch begins: not before the offsets that the table has."""
        starts = from_json_dict(super().initialOffset())
        begins = {tp: max(at, self._plan.ends.get(tp, 0)) for tp, at in starts.items()}
        checkpoint = self._plan.open_folder(self._plan.checkpoint)
        return to_json_dict(first_offsets(checkpoint, begins))

    def partitions(self, start: OffsetsByTopic, end: OffsetsByTopic) -> list[InputPartition]:
        """Plan a micro-batch, with a part for each partition that begins anew or is gone."""
        begins, ends = from_json_dict(start), from_json_dict(end)
        back, anew = self._back_again(ends.keys() - begins.keys())
        begins |= {tp: min(at, ends[tp]) for tp, at in back.items()}
        planned = super().partitions(to_json_dict(begins), end)
        parts: list[BatchPart] = [
            # Read up to its end before, also by this batch if it is repeated.
            ReadRange(*tp, ends[tp], ends[tp])
            for tp in back
            if begins[tp] == ends[tp]
        ]
        parts += [
            PartitionRestart(*tp, begins[tp], at)
            for tp, at in ends.items()
            if at < begins.get(tp, at)
        ]
        firsts: dict[TopicPartition, int] = {}
        for offset_range in (
            offset_range for partition in planned for offset_range in ranges_of(partition)
        ):
            tp = offset_range.topic_partition
            firsts[tp] = min(offset_range.from_offset, firsts.get(tp, offset_range.from_offset))
        parts += [PartitionRestart(*tp, anew[tp], firsts.get(tp, ends[tp])) for tp in sorted(anew)]
        parts += [PartitionGone(*tp, begins[tp]) for tp in begins.keys() - ends.keys()]
        if not planned and not parts and ends and not self._plan.has_files():
            tp, at = min(ends.items())  # for the file with the columns
            parts.append(ReadRange(*tp, at, at))
        plan = self._batch_plan()
        return [
            *(PlannedRanges(ranges_of(partition), (), plan) for partition in planned),
            *([PlannedRanges((), tuple(parts), plan)] if parts else []),
        ]

    def _batch_plan(self) -> str:
        """Return the plan of the batch in JSON, "" for that of the query's start."""
        if not self._plan.follows_schema:
            return ""
        if self._newer is None:
            from kfast.spark.ingest.newer_schema import NewerSchema  # noqa: PLC0415 - decoders

            self._newer = NewerSchema(self._options, self._plan)
        plan = self._newer.plan()
        return "" if plan is self._plan else plan.text

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
        before = {tp: last.ends[tp] for tp in partitions if last.ends.get(tp)}
        anew = {
            tp: at
            for tp, at in before.items()
            if ids.get(tp.topic, "") != last.topic_ids.get(tp.topic, ids.get(tp.topic, ""))
        }
        return {tp: at for tp, at in before.items() if tp not in anew}, anew

    def _topic_ids(self) -> TopicIds:
        return TopicIds(self._plan.open_folder(self._plan.checkpoint), self._plan.topic_ids)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write one task's records, on a worker, and yield a row per range."""
        from kfast.spark.ingest.task import (  # noqa: PLC0415 - workers only
            part_rows,
            rows_of,
            write_ranges,
        )

        if not isinstance(partition, PlannedRanges):  # Spark's, of a batch without any
            return
        plan = self._plan
        if partition.plan:
            plan = plan_of_text(partition.plan, plan.storage_options)
            yield rows_of([json.dumps({_PLAN: partition.plan})])
        if partition.parts:
            yield part_rows(partition.parts)
        yield from write_ranges(ranges_of(partition), self._options, plan, self._accumulator)


class PlannedRanges(InputPartition):
    """The ranges of a task, and parts of a batch for which nothing is read.

    The latter are partitions that begin anew or are gone. ``plan`` is that of the batch, in JSON,
    if it is not that of the query's start: columns were added.
    """

    def __init__(
        self, ranges: tuple[OffsetRange, ...], parts: tuple[BatchPart, ...] = (), plan: str = ""
    ) -> None:
        super().__init__(ranges)
        self.parts = parts
        self.plan = plan


@dataclass
class TaskParts(WriterCommitMessage):
    """The rows of one task, in JSON; Spark sends it to the driver."""

    parts: tuple[str, ...]


class IngestWriter(DataSourceStreamWriter):
    """Publishes the ranges that the tasks wrote."""

    def __init__(self, plan: IngestPlan) -> None:
        self._plan = plan

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Reduce the writer so that a process that lacks kfast is named."""
        return checked_reduce(self, protocol)

    def write(self, iterator: Iterator[Any]) -> TaskParts:
        """Collect the rows of one task, on a worker."""
        return TaskParts(tuple(row[0] for row in iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish a batch, on the driver."""
        plan = self._plan
        for row in _rows_of(messages):
            if _PLAN in row:
                plan = plan_of_text(row[_PLAN], plan.storage_options)
        with storage_errors(f"cannot publish batch {batchId} of {plan.url}"):
            if is_local(plan.checkpoint):
                fsync_batch(open_store(plan.checkpoint), batchId)
            parts = _parts_of(messages)
            ranges = ranges_in(parts)
            if ranges and not files_in(parts):
                parts += _columns(plan, max(ranges, key=lambda batch_part: batch_part.until_offset))
            topics = {
                batch_part.topic
                for batch_part in parts
                if not isinstance(batch_part, PartitionGone)
            }
            topic_ids = TopicIds(plan.open_folder(plan.checkpoint)).by_topic if topics else {}
            ids = {topic: topic_ids[topic] for topic in topics if topic in topic_ids}
            plan.publisher().publish(plan.writer, batchId, parts, ids, plan.shape)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the files of a failed batch, on the driver."""
        self._plan.publisher().abort(
            self._plan.writer,
            batchId,
            files_in(_parts_of(messages)),
            is_complete=None not in messages,
        )


def _columns(plan: IngestPlan, last: ReadRange) -> list[BatchPart]:
    """Write a file without rows if the table has no file yet: readers need its columns."""
    if plan.has_files():
        return []
    from kfast._base.clock import SystemClock  # noqa: PLC0415 - for a table without records
    from kfast.spark.ingest.task import range_files  # noqa: PLC0415

    offsets = OffsetRange(*last.topic_partition, last.until_offset, last.until_offset)
    files = range_files(open_store(plan.url, plan.storage_options), offsets, plan, {})
    return [files.close_without_rows(SystemClock().now_ms())]


def _rows_of(messages: list[WriterCommitMessage | None]) -> list[dict[str, Any]]:
    return [
        json.loads(row)
        for message in messages
        if isinstance(message, TaskParts)
        for row in message.parts
    ]


def _parts_of(messages: list[WriterCommitMessage | None]) -> list[BatchPart]:
    return [batch_part_of(row) for row in _rows_of(messages) if _PLAN not in row]
