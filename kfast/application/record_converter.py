"""RecordConverter: what a poll makes of decoded chunks, `ConsumerRecords` of `PartitionRecords`.

Owns the settings for the form of records: deserializers, ``on_deserialization_error`` and the
selected columns. Runs on the application thread, because a deserializer may be the user's own
callable; with native deserializers only also on decode threads, ahead of it. A consumer is given
it, or another with its methods, when it is made: the command line's makes no columns, and does not
import NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kfast.deserializers import as_deserializer, is_native
from kfast.errors import ConfigurationError
from kfast.records.building import build_chunk, empty_partition_records
from kfast.records.chunk_rows import ChunkRows
from kfast.records.consumer_records import ConsumerRecords
from kfast.records.row_columns import selected_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from kfast._native.record_batch import RecordIndex
    from kfast.config import ConsumerConfig
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.deserializers.typed import TypedDeserializer
    from kfast.records.building import BuildResult
    from kfast.records.deserializing import OnError
    from kfast.records.partition_records import PartitionRecords
    from kfast.registry.registered_schema import SchemaKey, SchemaRequest
    from kfast.types import TopicPartition

MOST_COLUMN_BYTES: Final = 16 << 20
"""Memory of typed columns at which a chunk is cut; the rest is decoded later."""


_CHOOSABLE: Final = frozenset({"key", "value", "headers"})
_ALWAYS: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestamp_type"})
"""Columns that need no choosing: they cost nothing to make."""


class RecordConverter:
    """Called by ``FetchCollector`` once per decoded chunk.

    ``wake`` is called by another thread when what a conversion has waited for is there.
    """

    def __init__(self, config: ConsumerConfig, wake: Callable[[], object] | None = None) -> None:
        self._key_deserializer = as_deserializer(config.key_deserializer)
        self._value_deserializer = as_deserializer(config.value_deserializer)
        self._on_error = cast("OnError", config.on_deserialization_error)
        deserializers = [self._key_deserializer, self._value_deserializer]
        are_native = [is_native(chosen) for chosen in deserializers if chosen is not None]
        self.runs_ahead = bool(are_native) and all(are_native)
        """Whether decode threads may convert: what there is is compiled, and takes time."""
        self._has_native = any(are_native)  # and may need schemas of a registry
        self._wake = wake
        self._requests: dict[tuple[str, frozenset[SchemaKey]], SchemaRequest] = {}
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

    def __call__(self, fetch: CompletedFetch, chunk: RecordIndex) -> BuildResult | None:
        """Return the rows up to the first that cannot be deserialized, and its error.

        None while schemas that they need are being looked up.

        Raises
        ------
        SchemaRegistryError
            They cannot be looked up. The next call tries again.
        """
        if self._has_native and not self._has_schemas(fetch, chunk):
            return None
        return self._build(fetch, chunk, MOST_COLUMN_BYTES)

    def ahead(
        self, fetch: CompletedFetch, chunk: RecordIndex, most_bytes: int
    ) -> BuildResult | None:
        """Do the same on a decode thread; None if there is not enough memory, or no schema."""
        if most_bytes < _estimate(chunk) or any(self._missing(fetch, chunk)):
            return None
        return self._build(fetch, chunk, min(most_bytes, MOST_COLUMN_BYTES))

    def _missing(
        self, fetch: CompletedFetch, chunk: RecordIndex
    ) -> Iterator[tuple[str, TypedDeserializer, frozenset[SchemaKey]]]:
        """Yield the schemas that are not known."""
        rows: ChunkRows | None = None
        for name, deserializer in (
            ("key", self._key_deserializer),
            ("value", self._value_deserializer),
        ):
            if name not in self._selected or getattr(deserializer, "registry", None) is None:
                continue
            typed = cast("TypedDeserializer", deserializer)
            if rows is None:
                tp = fetch.topic_partition
                rows = ChunkRows(tp.topic, tp.partition, chunk, self._selected)
            headers = rows.all_headers() if typed.needs_headers else None
            missing = frozenset(typed.prepare(rows.bytes_of(name), headers))
            if missing:
                yield name, typed, missing

    def _has_schemas(self, fetch: CompletedFetch, chunk: RecordIndex) -> bool:
        """Return whether all schemas are known; others are looked up."""
        answered: set[tuple[str, SchemaKey]] = set()
        is_complete = False
        while not is_complete:  # a writer's schema may ask for a reader's
            is_complete = True
            for name, typed, missing in self._missing(fetch, chunk):
                keys = {(name, key) for key in missing}
                if keys <= answered:
                    continue  # the registry does not have them
                request = self._requests.pop((name, missing), None)
                if request is None:
                    assert typed.registry is not None  # where the keys come from
                    request = typed.registry.lookup(
                        missing, self._wake, is_serialized=typed.is_serialized
                    )
                answers = request.answers()
                if answers is None:
                    self._requests[name, missing] = request
                    return False
                if answers.error is not None:
                    raise answers.error
                typed.learn(answers)
                answered |= keys
                is_complete = False
        return True

    def _build(self, fetch: CompletedFetch, chunk: RecordIndex, most_bytes: int) -> BuildResult:
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
            topic_id=fetch.topic_id,
            first_row=fetch.first_row,
            most_bytes=most_bytes,
        )

    def __repr__(self) -> str:
        return f"<RecordConverter on_error={self._on_error}>"


def _estimate(chunk: RecordIndex) -> int:
    """Return the memory that typed columns of a chunk are expected to take.

    Text and numbers together take about as much as the values.
    """
    return int(chunk.nbytes)
