"""RecordReader: what a consumer reads, written to the files of its partitions.

Owns the policy of an ingest where records do not come, and its errors: a broker that restarts is
waited for, offsets that retention has removed are an error or skipped, a topic that was created
anew is an error always. How partitions are read is `BoundedRead`'s. One thread, that of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kfast._base.logs import get_logger
from kfast.config import ConsumerConfig
from kfast.errors import (
    ConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    WakeupError,
)
from kfast.internals import BoundedRead, Loss, LossKind, ReadPolicy
from kfast.table.ingest.planning import created_anew, offsets_gone
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast.internals import KafkaConsumer
    from kfast.records.partition_records import PartitionRecords
    from kfast.table.ingest.options import IngestOptions
    from kfast.table.ingest.partition_files import PartitionFiles
    from kfast.table.ingest.table_changes import PartitionChanges

logger = get_logger(__name__)

METADATA_MS: Final = 10_000
"""How often a follow looks for new partitions and topics."""
_FOLLOW_PATIENCE_MS: Final = 120_000
"""How long a follow goes without an answer: longer than a broker takes to restart."""
_MOST_OUTPUTS: Final = 256
"""Most open files."""


class RecordReader:
    """Reads the partitions of ``files``, to which the caller may add some."""

    def __init__(
        self,
        consumer: KafkaConsumer,
        files: Mapping[TopicPartition, PartitionFiles | PartitionChanges],
        options: IngestOptions,
        url: str,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        self._files = files
        self._options = options
        self._url = url
        self._read: BoundedRead[PartitionRecords] = BoundedRead(
            consumer,
            ReadPolicy(
                skips_lost=options.lost == "skip",
                waits_for_brokers=True,
                silence_ms=max(timeout_ms, follow_patience_ms(is_follow=options.follow)),
            ),
            self._error_of,
            self._skip_lost,
            clock=clock,
            watch=self._note_bad,
        )

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """Of the partitions that are not read to their end yet."""
        return self._read.ends

    def begin(self, ends: Mapping[TopicPartition, int]) -> None:
        """Read from the ends of the files to these ends."""
        self._read.begin({tp: (self._files[tp].position, end) for tp, end in ends.items()})

    def follow(self) -> None:
        """Read all partitions from the ends of their files on."""
        self._read.follow({tp: files.position for tp, files in self._files.items()})

    def add(self, starts: Mapping[TopicPartition, int]) -> None:
        """Follow more partitions, from these offsets."""
        self._read.add(starts)

    def poll(self, timeout_ms: int) -> bool:
        """Write the records that come within a time; return whether a file has reached its size."""
        try:
            batches = self._read.poll(timeout_ms)
        except WakeupError:  # the run is stopped
            return False
        is_complete = False
        for tp, batch in batches:
            if len(batch):
                is_complete |= self._write(tp, batch)
        for tp, position in self._read.positions.items():
            if position > self._files[tp].position:  # markers, aborted or compacted records
                self._files[tp].move_to(position)
        return is_complete

    def _write(self, tp: TopicPartition, batch: PartitionRecords) -> bool:
        is_complete = self._files[tp].write(batch, self._read.positions[tp])
        waiting = sum(files.waiting_bytes for files in self._files.values())
        if waiting > self._options.memory_bytes // 2:
            max(self._files.values(), key=lambda files: files.waiting_bytes).spill()
        if sum(files.open_outputs for files in self._files.values()) > _MOST_OUTPUTS:
            max(self._files.values(), key=lambda files: files.open_outputs).cut()
        return is_complete

    def _note_bad(self, tp: TopicPartition, batch: PartitionRecords) -> None:
        if len(batch.errors):
            self._files[tp].note_bad(batch.errors.offset)

    # --- when records do not come -----------------------------------------------------------------

    def _skip_lost(self, loss: Loss, _error: KafkaError) -> None:
        """Go on behind offsets that were removed before they were read."""
        assert loss.until is not None  # of what is skipped
        tp = loss.topic_partition
        logger.info("%s: offsets %d to %d are lost", tp, loss.position, loss.until - 1)
        self._files[tp].move_to(loss.until, is_lost=True)

    def _error_of(self, loss: Loss) -> KafkaError:
        tp, position, cause = loss.topic_partition, loss.position, loss.cause
        if loss.kind is LossKind.GONE:
            return offsets_gone(tp, position, loss.log_start or 0)
        if loss.kind is LossKind.CREATED_ANEW:
            return created_anew(tp, self._url, "while it was read")
        if loss.kind is LossKind.SHORTENED:
            reason = f"the log ends before offset {position}"
            if loss.log_end is not None:
                reason = f"the log ends at {loss.log_end}, and ended at {loss.until}"
            return created_anew(tp, self._url, reason)
        return cause or KafkaTimeoutError(
            f"no records for {loss.silent_ms} ms, though the logs have more",
            hint="check the brokers, or raise --timeout (default_api_timeout_ms)",
        )

    def __repr__(self) -> str:
        return f"<RecordReader of {len(self._files)} partitions>"


def follow_patience_ms(*, is_follow: bool) -> int:
    """Return the least time that brokers have to answer, ms."""
    return _FOLLOW_PATIENCE_MS if is_follow else 0


def consumer_settings(
    configs: Mapping[str, Any], *, is_follow: bool
) -> tuple[ConsumerConfig, dict[str, object]]:
    """Return the settings as given, and those of the consumer that reads."""
    config = ConsumerConfig(**configs)
    for name, hint in (
        ("auto_offset_reset", "--lost skip (lost=) says what happens to offsets that are gone"),
        ("key_deserializer", "--key (key=) says what keys are"),
        ("value_deserializer", "--value (value=) says what values are"),
        ("on_deserialization_error", "use --on-error (on_error=)"),
    ):
        if config.was_given(name):
            raise ConfigurationError(f"{config.spelling(name)} is not for an ingest", hint=hint)
    if config.was_given("enable_auto_commit") and config.enable_auto_commit:
        raise ConfigurationError(
            f"{config.spelling('enable_auto_commit')} is not for an ingest",
            hint="with a group.id it commits what is published",
        )
    arguments = {**configs}
    settings: dict[str, object] = {**(arguments.pop("config", None) or {}), **arguments}
    settings |= {"auto.offset.reset": "none", "enable.auto.commit": False}
    if is_follow and not config.was_given("metadata_max_age_ms"):
        settings["metadata.max.age.ms"] = METADATA_MS
    return config, settings
