"""KafkaStreamReader: a ``DataSourceStreamReader`` over ``stream_offsets`` and ``read_task``.

One instance lives on the driver as long as the query runs and plans offsets; pickled copies read on
the workers. So the constructor opens nothing, connections are not pickled, and what only the driver
or only a worker needs is imported where it is used.

Admission control (``maxOffsetsPerTrigger``, Trigger.AvailableNow done by the source) exists from
pyspark 4.2 on; before, Spark calls ``latestOffset()`` without arguments.

Imports pyspark: only modules that Spark's processes load import this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError
from kfast.spark.source.batch_reader import input_partitions, read_partition
from kfast.spark.source.process_logs import log_to_stderr
from kfast.spark.source.worker_check import checked_reduce
from kfast.table.offset_ranges import bundle_ranges
from kfast.table.offsets_json import OffsetsByTopic, from_json_dict, to_json_dict

try:
    from pyspark.sql.streaming import datasource as _limits
except ImportError:  # before 4.2
    _limits = None

if TYPE_CHECKING:
    import pyarrow as pa

    from kfast.spark.source.driver import OffsetLookup
    from kfast.spark.source.options import SourceOptions
    from kfast.spark.source.stream_offsets import StreamOffsets
    from kfast.table.group_commits import GroupCommits
    from kfast.table.projection import Projection
    from kfast.table.topic_ids import TopicIds

logger = get_logger(__name__)

HAS_ADMISSION_CONTROL: Final = hasattr(_limits, "ReadMaxRows")
_BASES: Any = (DataSourceStreamReader,)
if HAS_ADMISSION_CONTROL:
    _BASES += (_limits.SupportsTriggerAvailableNow,)


class KafkaStreamReader(*_BASES):  # type: ignore[misc]
    """Reads a stream; raises ``ConfigurationError`` if an option needs a newer pyspark."""

    def __init__(
        self, options: SourceOptions, projection: Projection, accumulator: object = None
    ) -> None:
        limited = options.max_offsets_per_trigger or options.min_offsets_per_trigger
        if limited is not None and not HAS_ADMISSION_CONTROL:
            raise ConfigurationError(
                "maxOffsetsPerTrigger and minOffsetsPerTrigger need pyspark 4.2 or newer",
                hint="upgrade pyspark, or leave them out",
            )
        self._options = options
        self._projection = projection
        self._accumulator = accumulator
        self._lookup: OffsetLookup | None = None
        self._planner: StreamOffsets | None = None
        self._commits: GroupCommits | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_lookup": None, "_planner": None, "_commits": None}

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return checked_reduce(self, protocol)

    @property
    def _offsets(self) -> StreamOffsets:
        if self._planner is None:
            from kfast._base.clock import SystemClock  # noqa: PLC0415 - driver only
            from kfast.spark.source.driver import OffsetLookup  # noqa: PLC0415
            from kfast.spark.source.stream_offsets import StreamOffsets  # noqa: PLC0415

            log_to_stderr()
            self._lookup = OffsetLookup(self._options)
            self._planner = StreamOffsets(
                self._options, self._lookup, SystemClock(), self._topic_ids()
            )
        return self._planner

    def _topic_ids(self) -> TopicIds:
        """Return the ids of topics, which are kept if the query's checkpoint is known."""
        from kfast.table.fsspec_store import open_store  # noqa: PLC0415 - driver only
        from kfast.table.topic_ids import TopicIds  # noqa: PLC0415

        folder = self._options.checkpoint_location
        return TopicIds(None if folder is None else open_store(folder))

    # --- on the driver ----------------------------------------------------------------------------

    def initialOffset(self) -> OffsetsByTopic:
        """Return where a new query starts."""
        return to_json_dict(self._offsets.initial())

    def getDefaultReadLimit(self) -> Any:
        """Return the limit of one micro-batch."""
        maximum = self._options.max_offsets_per_trigger
        if maximum is None:
            return _limits.ReadAllAvailable()
        return _limits.ReadMaxRows(maximum)

    def latestOffset(
        self, start: OffsetsByTopic | None = None, limit: object = None
    ) -> OffsetsByTopic:
        """Return where the next micro-batch ends."""
        begin = None if start is None else from_json_dict(start)
        maximum = getattr(limit, "max_rows", None)
        return to_json_dict(self._offsets.next_end(begin, maximum))

    def reportLatestOffset(self) -> OffsetsByTopic | None:
        """Return the log ends, for the query's progress."""
        return to_json_dict(self._offsets.latest())

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end where the logs end now."""
        self._offsets.stop_at_present()

    def partitions(self, start: OffsetsByTopic, end: OffsetsByTopic) -> list[InputPartition]:
        """Plan a micro-batch."""
        ranges = self._offsets.ranges(from_json_dict(start), from_json_dict(end))
        return input_partitions(bundle_ranges(ranges, self._options.bundle_offsets))

    def commit(self, end: OffsetsByTopic) -> None:
        """Commit to the group of ``commitOffsets`` that all before these offsets is done.

        Under the topic ids that the batch was read under: what was read of a topic is not committed
        to the one that has been created anew under its name.
        """
        group_id = self._options.group_id
        if not self._options.commit_offsets or group_id is None:
            return
        if self._commits is None:
            from kfast.table.group_commits import GroupCommits  # noqa: PLC0415 - rarely used

            self._commits = GroupCommits(self._options.kafka, group_id)
        self._commits.commit(from_json_dict(end), self._offsets.batch_topic_ids)

    def stop(self) -> None:
        """Close the driver's connections."""
        if self._lookup is not None:
            self._lookup.close()
        if self._commits is not None:
            self._commits.close()

    # --- on workers -------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's records."""
        return read_partition(partition, self._options, self._projection, self._accumulator)
