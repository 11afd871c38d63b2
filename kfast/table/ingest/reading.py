"""RecordReader: what a consumer reads, written to the files of its partitions.

Owns the consumer of a run, its positions, and the reasons for which records do not come: a broker
that restarts is waited for, offsets that retention has removed are an error or skipped, a topic
that was created anew is an error always. One thread, that of the run.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kfast._base.logs import get_logger
from kfast.config import ConsumerConfig
from kfast.errors import (
    ConfigurationError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from kfast.table.ingest.planning import created_anew, offsets_gone
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast.kafka_consumer import KafkaConsumer
    from kfast.records.partition_records import PartitionRecords
    from kfast.table.ingest.options import IngestOptions
    from kfast.table.ingest.partition_files import PartitionFiles
    from kfast.table.ingest.table_changes import PartitionChanges

logger = get_logger(__name__)

METADATA_MS: Final = 10_000
"""How often a follow looks for new partitions and topics."""
_FOLLOW_PATIENCE_MS: Final = 120_000
"""How long a follow goes without an answer: longer than a broker takes to restart."""
_WARN_MS: Final = 60_000
"""Least time between two warnings that no records come."""
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
        self._consumer = consumer
        self._files = files
        self._options = options
        self._url = url
        self._clock = clock
        self._patience_ms = max(timeout_ms, follow_patience_ms(is_follow=options.follow))
        self._answered_ms = self._moved_ms = clock.now_ms()
        self._warned_ms = self._answered_ms - _WARN_MS

    def assign(
        self, partitions: Collection[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Read these partitions from now on, from the ends of their files up to these ends."""
        self._consumer.assign(partitions)
        self._consumer.internals.end_fetching_at(ends)
        for tp in partitions:
            self._consumer.seek(tp, self._files[tp].position)
        self._answered_ms = self._moved_ms = self._clock.now_ms()

    def poll(self, ends: Mapping[TopicPartition, int] | None, timeout_ms: int) -> bool:
        """Write the records that come within a time; return whether a file has reached its size.

        With ``ends`` only those of its partitions, and before the end of each.
        """
        try:
            records = self._consumer.poll(timeout_ms=timeout_ms)
        except WakeupError:  # the run is stopped
            return False
        except OffsetOutOfRangeError as error:
            self._skip_lost(error)
            return False
        except NoOffsetForPartitionError as error:
            tp = TopicPartition(error.topic or "", error.partition or 0)
            raise created_anew(tp, self._url, "while it was read") from error
        except (KafkaConnectionError, KafkaTimeoutError, UnknownTopicOrPartitionError) as error:
            now_ms = self._clock.now_ms()
            if now_ms - self._answered_ms >= self._patience_ms:
                raise
            is_due = now_ms - self._warned_ms >= _WARN_MS
            self._warned_ms = now_ms if is_due else self._warned_ms
            logger.log(logging.WARNING if is_due else logging.DEBUG, "no records: %s", error)
            return False
        self._answered_ms = self._clock.now_ms()
        is_complete = False
        for tp, batch in records.last_batches():  # of one chunk each, without rows too
            if len(batch.errors) and (ends is None or tp in ends):
                self._files[tp].note_bad(batch.errors.offset)
        for tp, batch in records.items():
            if ends is None or tp in ends:
                is_complete |= self._write(batch, None if ends is None else ends[tp])
        for tp in self._files if ends is None else ends:
            files, position = self._files[tp], self._consumer.position(tp)
            if position > files.position:  # transaction markers, aborted or compacted records
                files.move_to(position if ends is None else min(position, ends[tp]))
                self._moved_ms = self._clock.now_ms()
        return is_complete

    def _write(self, batch: PartitionRecords, end: int | None) -> bool:
        if end is not None and batch.next_offset > end:
            batch = batch[: int(np.searchsorted(batch.offsets, end))]
        is_complete = self._files[batch.topic_partition].write(batch, end)
        self._moved_ms = self._clock.now_ms()
        waiting = sum(files.waiting_bytes for files in self._files.values())
        if waiting > self._options.memory_bytes // 2:
            max(self._files.values(), key=lambda files: files.waiting_bytes).spill()
        if sum(files.open_outputs for files in self._files.values()) > _MOST_OUTPUTS:
            max(self._files.values(), key=lambda files: files.open_outputs).cut()
        return is_complete

    # --- when records do not come -----------------------------------------------------------------

    def _skip_lost(self, error: OffsetOutOfRangeError) -> None:
        """Go on behind offsets that were removed before they were read, if that is allowed."""
        tp = TopicPartition(error.topic or "", error.partition or 0)
        files = self._files[tp]
        start = self._consumer.beginning_offsets([tp])[tp]
        if start <= files.position:
            cause = f"the log ends before offset {files.position}"
            raise created_anew(tp, self._url, cause) from error
        if self._options.lost != "skip":
            raise offsets_gone(tp, files.position, start) from error
        logger.info("%s: offsets %d to %d are lost", tp, files.position, start - 1)
        files.move_to(start, is_lost=True)
        self._consumer.seek(tp, start)
        self._moved_ms = self._clock.now_ms()

    def check_progress(self, ends: Mapping[TopicPartition, int]) -> None:
        """Raise if nothing came of what is before ``ends`` for longer than brokers may take."""
        silent_ms = self._clock.now_ms() - self._moved_ms
        if silent_ms < self._patience_ms:
            return
        for tp, end in sorted(self._consumer.internals.high_watermarks(ends).items()):
            if end < ends[tp]:
                cause = f"the log ends at {end}, and ended at {ends[tp]}"
                raise created_anew(tp, self._url, cause)
        raise KafkaTimeoutError(
            f"no records for {silent_ms} ms, though the logs have more",
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
    given = {**configs}
    settings: dict[str, object] = {**(given.pop("config", None) or {}), **given}
    settings |= {"auto.offset.reset": "none", "enable.auto.commit": False}
    if is_follow and not config.was_given("metadata_max_age_ms"):
        settings["metadata.max.age.ms"] = METADATA_MS
    return config, settings
