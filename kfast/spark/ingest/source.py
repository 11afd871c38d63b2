"""Source and sink of an ingest: subclasses of pyspark's classes.

Owns three classes over ``task`` and ``publish``. Not records but one row per file (``FILES``) pass
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

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)

from kfast.spark.ingest.checkpoint import fsync_batch
from kfast.spark.ingest.plan import FILES, IngestPlan, plan_of, source_options
from kfast.spark.source.batch_reader import input_partitions, ranges_of
from kfast.spark.source.stream_reader import KafkaStreamReader
from kfast.table.fsspec_store import open_store
from kfast.table.location import is_local
from kfast.table.manifest import GONE, DataFile
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
        """Return the columns that describe a file."""
        return FILES

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
        return to_json_dict(self._plan.log().first_offsets(self._plan.writer, begins))

    def partitions(self, start: OffsetsByTopic, end: OffsetsByTopic) -> list[InputPartition]:
        """Plan a micro-batch, with a range that ends before it begins for a topic created anew."""
        begins, ends = from_json_dict(start), from_json_dict(end)
        known, anew = self._back_again(ends.keys() - begins.keys())
        begins |= {tp: min(at, ends[tp]) for tp, at in known.items()}
        planned = super().partitions(to_json_dict(begins), end)
        noted = [
            OffsetRange(*tp, begins[tp], at) for tp, at in ends.items() if at < begins.get(tp, at)
        ]
        for tp in sorted(anew):
            parts = (part for each in planned for part in ranges_of(each))
            first = min((part for part in parts if part.topic_partition == tp), default=None)
            noted.append(
                OffsetRange(*tp, anew[tp], ends[tp] if first is None else first.from_offset)
            )
        noted += [OffsetRange(*tp, begins[tp], GONE) for tp in begins.keys() - ends.keys()]
        if not planned and not noted and ends and not self._plan.has_files():
            tp, at = min(ends.items())  # for the file with the columns
            return input_partitions([(OffsetRange(*tp, at, at),)])
        return planned + input_partitions((each,) for each in noted)

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
        """Write one task's records, on a worker, and yield a row per file."""
        from kfast.spark.ingest.task import write_ranges  # noqa: PLC0415 - workers only

        return write_ranges(ranges_of(partition), self._options, self._plan, self._accumulator)


@dataclass
class TaskFiles(WriterCommitMessage):
    """The files one task wrote; Spark sends it to the driver."""

    files: tuple[DataFile, ...]


class IngestWriter(DataSourceStreamWriter):
    """Publishes the files that the tasks wrote."""

    def __init__(self, plan: IngestPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[Any]) -> TaskFiles:
        """Collect the rows of one task, on a worker."""
        return TaskFiles(tuple(DataFile(*row) for row in iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish a batch, on the driver."""
        plan = self._plan
        with storage_errors(f"cannot publish batch {batchId} of {plan.url}"):
            if is_local(plan.checkpoint):
                fsync_batch(open_store(plan.checkpoint), batchId)
            files = _files_of(messages)
            if files and not any(file.staged for file in files):
                files += self._columns(max(files, key=lambda file: file.until_offset))
            topics = {file.topic for file in files if not file.is_gone}
            known = TopicIds(plan.open_folder(plan.checkpoint)).known if topics else {}
            ids = {topic: known[topic] for topic in topics if topic in known}
            plan.publisher().publish(plan.writer, batchId, files, ids, plan.shape)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the files of a failed batch, on the driver."""
        self._plan.publisher().abort(
            self._plan.writer,
            batchId,
            _files_of(messages),
            is_complete=None not in messages,
        )

    def _columns(self, last: DataFile) -> list[DataFile]:
        """Write a file without rows if the table has no file yet: readers need its columns."""
        if self._plan.has_files():
            return []
        from kfast._clock import SystemClock  # noqa: PLC0415 - for a table without records
        from kfast.spark.ingest.task import range_files  # noqa: PLC0415

        wanted = OffsetRange(*last.topic_partition, last.until_offset, last.until_offset)
        made = range_files(open_store(self._plan.url, self._plan.storage_options), wanted,
                           self._plan, {})  # fmt: skip
        return made.close_without_rows(SystemClock().now_ms())


def _files_of(messages: list[WriterCommitMessage | None]) -> list[DataFile]:
    return [
        file for message in messages if isinstance(message, TaskFiles) for file in message.files
    ]
