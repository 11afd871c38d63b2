"""RecordConverter: what a poll makes of decoded chunks, `ConsumerRecords` of `PartitionRecords`.

Owns the settings for the form of records: deserializers, ``on_deserialization_error`` and the
selected columns. Runs on the application thread, because a deserializer may be the user's own
callable. A consumer is given it, or another with its methods, when it is made: the command line's
makes no columns, and does not import NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, cast

from kfast.deserializers import as_deserializer, needs_headers
from kfast.errors import ConfigurationError
from kfast.records.building import build_chunk, empty_partition_records
from kfast.records.consumer_records import ConsumerRecords
from kfast.records.row_columns import selected_columns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kfast._native.record_batch import RecordIndex
    from kfast.config import ConsumerConfig
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.records.building import BuildResult
    from kfast.records.partition_records import PartitionRecords
    from kfast.types import TopicPartition

OnError = Literal["raise", "null", "skip"]

_CHOOSABLE: Final = frozenset({"key", "value", "headers"})
_ALWAYS: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestamp_type"})
"""Columns that need no choosing: they cost nothing to make."""


class RecordConverter:
    """Called by ``FetchCollector`` once per decoded chunk."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._key_deserializer = as_deserializer(config.key_deserializer)
        self._value_deserializer = as_deserializer(config.value_deserializer)
        self._on_error = cast("OnError", config.on_deserialization_error)
        self.runs_users_code = any(
            each is not None and needs_headers(each)
            for each in (self._key_deserializer, self._value_deserializer)
        )
        """Whether a deserializer is not one of kfast's own."""
        self.select(None)

    def select(self, columns: Collection[str] | None) -> None:
        """Choose which of ``key``, ``value`` and ``headers`` are made; None means all."""
        if columns is not None and (isinstance(columns, str) or not set(columns) <= _CHOOSABLE):
            raise ConfigurationError(
                f"columns = {columns!r}: not understood",
                hint='a collection of "key", "value" and "headers"; offsets and timestamps '
                "always come",
            )
        self._selected = selected_columns(None if columns is None else _ALWAYS | set(columns))
        self.template: PartitionRecords = empty_partition_records(
            key_deserializer=self._key_deserializer,
            value_deserializer=self._value_deserializer,
            columns=self._selected,
        )
        """No rows, with the columns and types that rows will have."""

    def records(
        self, collected: Mapping[TopicPartition, PartitionRecords] | Iterable[PartitionRecords]
    ) -> ConsumerRecords:
        """Return the result of a poll."""
        return ConsumerRecords(collected, template=self.template)

    def __call__(self, fetch: CompletedFetch, chunk: RecordIndex) -> BuildResult:
        """Return the rows up to the first that cannot be deserialized, and its error."""
        tp = fetch.topic_partition
        return build_chunk(
            tp.topic,
            tp.partition,
            chunk,
            self._key_deserializer,
            self._value_deserializer,
            selected=self._selected,
            on_error=self._on_error,
            high_watermark=fetch.high_watermark,
            log_start_offset=fetch.log_start_offset,
        )

    def __repr__(self) -> str:
        return f"<RecordConverter on_error={self._on_error}>"
