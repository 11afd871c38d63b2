"""Ingest: reads topics and publishes their records as files of a table, each exactly once.

Owns one run: the lock, the end of what an earlier run left, the reading of all partitions with one
consumer, and when files are published. The log of the table is the checkpoint: its ends say where
the next run goes on, so that a run may be killed at any instant. What it had read and not published
is read again, and its staged files are removed by the next run.

Files are written on the calling thread while the consumer's threads fetch and decode ahead, typed
columns included: encoding releases the GIL. They are flushed to disk by threads of their own
meanwhile.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from kfast._base.clock import Clock, SystemClock
from kfast._base.logs import get_logger
from kfast._base.optional import optional_package
from kfast.errors import (
    ConfigurationError,
    DeserializationError,
    KafkaError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from kfast.internals import KafkaConsumer, internals_of
from kfast.table.batches import ReadRange
from kfast.table.dead_letter_sink import DeadLetterSink
from kfast.table.dead_letter_topic import DeadLetterTopic, check_letter_topic
from kfast.table.dead_letters import DeadLetters, check_can_be_bad, check_dead_letters
from kfast.table.entries import KFAST_INGEST, Entry, TableShape, Writer
from kfast.table.fsspec_store import open_store
from kfast.table.group_commits import GroupCommits
from kfast.table.ingest.consuming import IngestConsumer
from kfast.table.ingest.options import IngestOptions, Roots
from kfast.table.ingest.partition_files import PartitionFiles
from kfast.table.ingest.planning import (
    FindBounds,
    PlannedRange,
    Topics,
    check_ids,
    find_topics,
    plan_ranges,
)
from kfast.table.ingest.reading import (
    METADATA_MS,
    RecordReader,
    consumer_settings,
    follow_patience_ms,
)
from kfast.table.ingest.run import IngestRun
from kfast.table.ingest.schema_versions import SchemaVersions
from kfast.table.ingest.summary import IngestSummary
from kfast.table.ingest.table_changes import PartitionChanges, TableChanges
from kfast.table.ingest_metrics import serve_metrics
from kfast.table.ingest_totals import IngestTotals
from kfast.table.ingest_warnings import IngestWarnings
from kfast.table.ingest_watcher import IngestStart, IngestWatcher
from kfast.table.leftovers import probe_store
from kfast.table.lock import table_lock
from kfast.table.log_formats import open_log
from kfast.table.offset_ranges import OffsetRange
from kfast.table.projection import Projection
from kfast.table.publish import ALL, Publisher
from kfast.table.range_files import RangeFiles
from kfast.table.row_changes import check_keys
from kfast.table.schema_changes import as_table, schema_change
from kfast.table.store import TableStore, storage_errors
from kfast.table.table_log import STAGING, OpenTable, TableLog
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast.deserializers import Deserializer
    from kfast.table.delta_upserts import DeltaUpserts
    from kfast.table.row_changes import UpsertColumns

logger = get_logger(__name__)

_POLL_MS: Final = 1_000
_PARTITIONS_AT_ONCE: Final = 64
"""Most partitions that are read at the same time up to their ends: each has a file in work."""
_TRIES: Final = 5
_LAG_MS: Final = 1_000
"""How often the lag is measured, if metrics are served."""


class Ingest:
    """One run; ``stop`` ends it after what is complete is published.

    ``bounds`` says where partitions begin that the table does not have, and where the run ends;
    ``published`` is called with the manifest of each batch, and ``watchers`` report on the run.
    """

    def __init__(
        self,
        options: IngestOptions,
        configs: Mapping[str, Any],
        *,
        bounds: FindBounds | None = None,
        published: Callable[[Entry], object] | None = None,
        watchers: Sequence[IngestWatcher] = (),
        clock: Clock | None = None,
    ) -> None:
        optional_package("pyarrow", "an ingest")
        self._options = options
        self._bounds = bounds
        self._published = published
        self._clock = clock or SystemClock()
        self._watchers: Sequence[IngestWatcher] = (IngestWarnings(self._clock), *watchers)
        self._shape = TableShape()
        self._columns = self._projection = Projection(())
        self._read_projection = Projection(())
        """The columns that are read, from which those of a table with keys are made."""
        self._upserted: UpsertColumns | None = None
        self._changes: TableChanges | None = None
        self._deserializers: Mapping[str, Deserializer] = {}
        self._roots: Roots = {}
        roots = options.known_roots()
        if roots is not None:
            self._define(roots)
        self._store = open_store(options.to, options.storage_options)
        config, self._settings = consumer_settings(configs, is_follow=options.follow)
        self._timeout_ms = int(config.default_api_timeout_ms)
        self._letters: DeadLetterTopic | None = None
        if options.letter_topic:
            check_letter_topic(options.letter_topic, is_read=options.reads(options.letter_topic))
            patience_ms = max(self._timeout_ms, follow_patience_ms(is_follow=options.follow))
            self._letters = DeadLetterTopic(options.letter_topic, config, patience_ms)
        self._commits: GroupCommits | None = None
        if config.group_id is not None:
            self._commits = GroupCommits(self._settings, config.group_id)
        self._consumer: KafkaConsumer | None = None
        self._is_stopping = False
        self._topics = Topics(frozenset(), {})
        self._files: dict[TopicPartition, PartitionFiles | PartitionChanges] = {}
        self._totals = IngestTotals()
        self._cut_ms = self._clock.now_ms() + options.every_ms
        self._known_ends: Mapping[TopicPartition, int] = {}
        self._known_bytes = 0
        self._lag: Mapping[TopicPartition, int] = {}
        """Offsets that are not in the table; replaced as a whole, read by another thread."""
        self._lag_ms = 0
        self._ends: dict[TopicPartition, int] = {}
        """Ends of the logs, as far as they are known."""
        self._begins: dict[TopicPartition, int] = {}
        self._dead_letters = ""

    def _define(self, roots: Roots) -> None:
        """Take the schemas of typed columns, from which the columns of the table follow."""
        self._roots = roots
        read = self._read_projection = self._options.projection(roots)
        self._upserted = self._options.upserted(read)
        self._take_columns(self._options.of_table(read))
        self._deserializers = self._options.deserializers(read)
        if self._changes is not None and self._upserted is not None:
            self._changes.define(self._upserted, read, self._deserializers)
        if self._options.dead_letter is not None:
            check_can_be_bad(read, self._options.partition_by)

    def _take_columns(self, projection: Projection) -> None:
        self._columns = projection
        self._shape = self._options.shape(projection)
        self._projection = self._shape.in_files(projection)

    def _fit(self, schema: str) -> None:
        """Write with the types of a table that has these columns where they are wider."""
        change = schema_change(schema, self._shape.schema, self._store.url, self._shape.format)
        self._take_columns(as_table(self._columns, change))

    def _find_topics(self, consumer: KafkaConsumer) -> None:
        """Find the topics, and the schema of the table if that is looked up."""
        self._topics = find_topics(consumer, self._options.topics)
        if self._letters is not None:  # which must be there: no topic is made
            internals_of(consumer).required_partitions(self._letters.topic)
        if not self._projection.columns:
            self._define(self._options.look_up_roots(self._topic_names))

    def stop(self) -> None:
        """End the run soon. Any thread, and signal handlers."""
        self._is_stopping = True
        consumer = self._consumer  # the run may end meanwhile
        if consumer is not None:
            consumer.wakeup()

    def plan(self) -> list[PlannedRange]:
        """Return the ranges that a run would write now; nothing is written."""
        with KafkaConsumer(config=self._settings) as consumer:
            self._find_topics(consumer)
            return self._planned(consumer, self._last(self._open_log()))

    def _open_log(self) -> TableLog:
        return open_log(self._store, self._shape, self._open_folder)

    def _last(self, log: TableLog) -> Entry | None:
        """The newest entry of a table that this run may write."""
        last = log.last()
        if last is not None:
            check_keys(self._store.url, last.shape, self._shape)
        if last is not None and last.shape.schema:
            self._fit(last.shape.schema)
        log.check(self._shape, self._projection, last)
        self._check_writer(last)
        return last

    def run(self) -> IngestSummary:
        """Write and publish; see `kfast.ingest` for what it raises."""
        began_ms = self._clock.now_ms()
        is_complete = False
        with IngestConsumer(self._options, self._settings) as consumer:
            self._consumer = consumer
            try:
                self._find_topics(consumer)
                consumer.converter.begin(self._roots)
                with table_lock(self._store), self._serving():
                    self._run(consumer)
                is_complete = True
            except WakeupError:
                if not self._is_stopping:
                    raise
                is_complete = True
            except DeserializationError as error:
                self._options.correct_hint(error)
                raise
            finally:
                self._consumer = None
                if self._commits is not None:
                    self._commits.close()
                for watcher in self._watchers:
                    watcher.close(is_complete=is_complete)
        return self._summary((self._clock.now_ms() - began_ms) / 1000)

    def _serving(self) -> AbstractContextManager[object]:
        """Serve the metrics meanwhile, if that is asked for."""
        if self._options.metrics is None:
            return contextlib.nullcontext()
        return serve_metrics(self._options.metrics, self._open_log(), lambda: self._lag)

    def _run(self, consumer: IngestConsumer) -> None:
        upserts: DeltaUpserts | None = None
        if self._upserted is not None:
            from kfast.table import delta_upserts  # noqa: PLC0415 - rarely used

            upserts = delta_upserts.DeltaUpserts(self._store)
        log = open_log(self._store, self._shape, self._open_folder, upserts)
        publisher = Publisher(log, self._open_folder)
        if self._options.dead_letter is not None and self._letters is None:
            self._dead_letters = check_dead_letters(
                self._options.dead_letter, self._store.url, self._options.storage_options
            )
        with storage_errors(f"cannot open {self._store.url}"):
            now_ms = probe_store(self._store)
            table, planned = self._open(consumer, log)
            publisher.sweep(now_ms, ALL, self._dead_letters)
        self._known_ends, self._known_bytes = table.last.ends, table.last.bytes
        self._lag = {plan.topic_partition: plan.offsets for plan in planned}
        start = IngestStart(
            self._store.url,
            ", ".join(self._options.topics),
            {plan.topic_partition: plan.start_offset for plan in planned},
            sum(self._lag.values()),
            table.last.rows,
        )
        for watcher in self._watchers:
            watcher.begin(start)
        reader = RecordReader(
            consumer,
            self._files,
            self._options,
            self._store.url,
            self._clock,
            self._timeout_ms,
        )
        run = IngestRun(consumer, reader, publisher, log, table, table.last, upserts)
        if self._upserted is not None:
            self._changes = TableChanges(
                self._options,
                # Whether all records of the table are in one partition.
                lambda: len(self._topics.partitions | self._known_ends.keys()) == 1,
            )
            self._changes.define(self._upserted, self._read_projection, self._deserializers)
        try:
            for plan in planned:
                self._add(plan, run)
            if self._bounds is not None:  # kept before anything is read
                for plan in planned:
                    if plan.topic_partition not in self._known_ends:
                        self._files[plan.topic_partition].done.append(plan.without_offsets)
                self._publish(run)
            self._read_to_ends(planned, run)
            self._publish_columns(planned, run)
            if self._options.follow and not self._is_stopping:
                self._follow(run)
        finally:
            with contextlib.suppress(Exception):  # the next run removes what is left
                for files in self._files.values():
                    files.discard()
                run.abort(self._complete)
                self._store.remove_empty_folders(STAGING)
            if self._letters is not None:
                self._letters.close()

    def _open_folder(self, url: str) -> TableStore:
        return open_store(url, self._options.storage_options)

    # --- the table --------------------------------------------------------------------------------

    def _open(self, consumer: KafkaConsumer, log: TableLog) -> tuple[OpenTable, list[PlannedRange]]:
        """Begin a writer behind the last entry, whose batch is finished first."""
        for _ in range(_TRIES):
            last = self._last(log)
            planned = self._planned(consumer, last)
            log.recover(last)
            begin = 0 if last is None else last.sequence + 1
            writer = Writer(uuid.uuid4().hex, KFAST_INGEST, begin)
            table = log.begin(writer, self._shape, self._projection, last)
            if table is not None:
                logger.info("%s: this run follows entry %d", log.store.url, table.last.sequence)
                return table, planned
        raise KafkaError(
            f"other ingests begin to write {log.store.url} all the time",
            hint="start only one of them",
        )

    def _check_writer(self, last: Entry | None) -> None:
        if last is None or last.writer.is_run or self._options.take_over:
            return
        raise ConfigurationError(
            f"{self._store.url} is written by {last.writer}",
            found=f"this is {KFAST_INGEST}",
            hint="--take-over (take_over=True) if that query has ended",
        )

    def _planned(self, consumer: KafkaConsumer, last: Entry | None) -> list[PlannedRange]:
        """Return the ranges to write, without topics of globs that are deleted meanwhile."""
        topics = find_topics(consumer, self._options.topics)
        while True:
            self._topics = topics
            try:
                return plan_ranges(
                    consumer,
                    topics,
                    last,
                    self._store.url,
                    self._bounds,
                    skips_lost=self._options.lost == "skip",
                )
            except UnknownTopicOrPartitionError:
                topics = find_topics(consumer, self._options.topics)
                if topics.partitions >= self._topics.partitions:
                    raise

    @property
    def _complete(self) -> list[ReadRange]:
        return [done for files in self._files.values() for done in files.done]

    def _publish(self, run: IngestRun) -> None:
        """Publish the ranges that are complete."""
        if self._changes is not None:
            self._cut_all()
        complete = self._complete
        if not complete:
            return
        if self._changes is not None and run.upserts is not None:
            run.upserts.put(self._changes.take(), self._options.compression)
        with storage_errors(f"cannot publish files of {self._store.url}"):
            entry = run.publish(complete, self._topics.ids, self._shape)
        for files in self._files.values():
            files.done.clear()
        self._totals.add(entry)
        self._known_ends = entry.ends
        for watcher in self._watchers:
            watcher.add(entry)
        if self._commits is not None:
            ends = {tp: at for tp, at in entry.ends.items() if tp in self._files}
            self._commits.commit(ends, self._topics.ids)
        if self._published is not None:
            self._published(entry)

    def _publish_columns(self, planned: Sequence[PlannedRange], run: IngestRun) -> None:
        """Publish a file without rows if the table has no file yet: readers need its columns."""
        has_files = self._known_bytes or self._totals.files
        if has_files or self._shape.has_catalog or not planned or self._is_stopping:
            return
        tp = planned[0].topic_partition
        files = self._files[tp]
        empty = self._make_files(OffsetRange(*tp, files.position, files.position), run)
        files.done.append(empty.close_without_rows(self._clock.now_ms()))
        self._publish(run)

    # --- reading ----------------------------------------------------------------------------------

    def _make_files(self, offset_range: OffsetRange, run: IngestRun) -> RangeFiles:
        options = self._options
        letters: DeadLetterSink | None = None
        if self._letters is not None:
            letters = self._letters.of_range(offset_range)
        elif self._dead_letters:
            folder = self._open_folder(self._dead_letters)
            letters = DeadLetters(folder, offset_range, run.table.writer.id)
        return RangeFiles(
            self._store,
            self._projection,
            offset_range,
            run.table.writer.id,
            table_format=options.format,
            partition_by=options.partition_by,
            compression=options.compression,
            group_bytes=options.bytes_per_file,
            deserializers=self._deserializers,
            field_ids=run.table.field_ids,
            partition_fields=run.table.partition_fields,
            dead_letters=letters,
        )

    def _add(self, planned: PlannedRange, run: IngestRun) -> None:
        options = self._options
        tp = planned.topic_partition
        self._begins[tp] = planned.from_offset
        self._ends[tp] = planned.until_offset
        files: PartitionFiles | PartitionChanges
        if self._changes is not None:
            files = self._changes.partition(tp, planned.from_offset)
        else:
            files = PartitionFiles(
                tp,
                planned.from_offset,
                lambda offset_range: self._make_files(offset_range, run),
                rows_per_file=options.rows_per_file,
                bytes_per_file=options.bytes_per_file,
            )
        self._files[tp] = files
        if planned.lost_offsets:
            logger.info("%s: %d offsets are lost", tp, planned.lost_offsets)
            files.move_to(planned.start_offset, is_lost=True)

    def _read_to_ends(self, planned: Sequence[PlannedRange], run: IngestRun) -> None:
        """Read up to the ends of the plan, some partitions at a time, and publish the rest."""
        due = [plan for plan in planned if plan.offsets > 0 or plan.lost_offsets]
        for first in range(0, len(due), _PARTITIONS_AT_ONCE):
            some = due[first : first + _PARTITIONS_AT_ONCE]
            self._read(
                {plan.topic_partition: plan.until_offset for plan in some},
                run,
            )
            if self._is_stopping:
                break
        self._publish(run)

    def _read(self, ends: dict[TopicPartition, int], run: IngestRun) -> None:
        run.reader.begin(ends)
        while True:
            for tp in ends.keys() - run.reader.ends.keys():
                self._files[tp].cut()
                del ends[tp]
            if not ends or self._is_stopping:
                return
            self._turn(run)

    def _follow(self, run: IngestRun) -> None:
        """Read what is written from now on, until `stop`."""
        run.reader.follow()
        look_ms = self._clock.now_ms() + METADATA_MS
        versions = SchemaVersions(self._options, self._store.url, self._clock)
        run.consumer.converter.watch(self._options)
        while not self._is_stopping:
            self._turn(run)
            self._take_newer_schema(versions, run)
            if self._clock.now_ms() >= look_ms:
                self._look(run)
                versions.begin(self._topic_names)
                look_ms = self._clock.now_ms() + METADATA_MS
        versions.close()
        self._cut_all()
        self._publish(run)

    def _turn(self, run: IngestRun) -> None:
        """Poll once, and publish if a file is complete or ``every_ms`` is over."""
        wait_ms = _POLL_MS
        if self._options.follow:
            wait_ms = max(0, min(wait_ms, self._cut_ms - self._clock.now_ms()))
        try:
            is_complete = run.reader.poll(wait_ms)
        except WakeupError:
            if not self._is_stopping:
                raise
            return
        if self._options.follow and self._clock.now_ms() >= self._cut_ms:
            self._cut_all()
            self._cut_ms = self._clock.now_ms() + self._options.every_ms
            is_complete = True
        if is_complete:
            self._publish(run)
        if self._options.metrics is not None and self._clock.now_ms() >= self._lag_ms:
            self._measure_lag(run)
        for watcher in self._watchers:
            watcher.tick(lambda: self._measure_lag(run))

    def _measure_lag(self, run: IngestRun) -> int:
        ends = self._known_ends
        for tp in self._begins:
            high = run.consumer.highwater(tp)
            self._ends[tp] = self._ends[tp] if high is None else high
        self._lag = {
            tp: max(0, self._ends[tp] - ends.get(tp, begin)) for tp, begin in self._begins.items()
        }
        self._lag_ms = self._clock.now_ms() + _LAG_MS
        return sum(self._lag.values())

    def _cut_all(self) -> None:
        for files in self._files.values():
            if files.has_records:
                files.cut()

    def _look(self, run: IngestRun) -> None:
        """Look for partitions and topics that are new, which are read from their beginning.

        A topic that is gone stays one of the run: if it returns, it is another one.
        """
        try:
            topics = find_topics(run.consumer, self._options.topics, must_exist=False)
            positions = {tp: files.position for tp, files in self._files.items()}
            check_ids(topics, self._topics.ids, positions, self._store.url)
            new = topics.partitions - self._topics.partitions
            begins = run.consumer.beginning_offsets(new) if new else {}
        except WakeupError:
            return
        except KafkaError as error:
            if not error.retriable:
                raise
            logger.warning("cannot look for new partitions: %s", error)
            return
        self._topics = Topics(
            self._topics.partitions | topics.partitions, {**self._topics.ids, **topics.ids}
        )
        if not new:
            return
        for tp in sorted(new):
            logger.info("%s is new", tp)
            self._add(PlannedRange(tp, begins[tp], begins[tp]), run)
        run.reader.add(begins)

    @property
    def _topic_names(self) -> set[str]:
        return {tp.topic for tp in self._topics.partitions}

    def _take_newer_schema(self, versions: SchemaVersions, run: IngestRun) -> None:
        """Read by newer versions of schemas from here on, if the table can take their columns."""
        converter = run.consumer.converter
        if converter.held - versions.checked:
            versions.begin(self._topic_names, converter.held)
        newer = versions.newer(self._roots, self._shape)
        if newer is None:
            converter.release(versions.checked)
            return
        self._cut_all()
        self._publish(run)
        before = self._shape.schema
        self._options = newer.options
        self._define(newer.roots)
        self._fit(before)
        run.begin_again(self._shape, self._projection)
        converter.begin(newer.roots, newer.options)
        run.reader.follow()  # what was decoded by the version before is dropped
        logger.info("%s: a newer schema is registered: %s", self._store.url, newer.change)

    # --- the end ----------------------------------------------------------------------------------

    def _summary(self, seconds: float) -> IngestSummary:
        names = self._topic_names
        ends = {tp: at for tp, at in self._known_ends.items() if tp.topic in names}
        return IngestSummary.of(self._totals, seconds, ends)

    def __repr__(self) -> str:
        return f"<Ingest of {', '.join(self._options.topics)} to {self._store.url}>"
