"""IngestConsumer: a consumer whose threads make the typed columns of a table ahead of it.

Which deserializers there are is known once the schemas were looked up, with the same consumer. What
the others make, a poll leaves as bytes.

Where an ingest reads by the latest version of a schema, values that name a schema for the first
time are held until it has asked for the latest version: as a rule they are written with a newer
one, and the version before may not be able to read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, cast

from kfast.internals import KafkaConsumer, RecordConverter
from kfast.records.chunk_rows import ChunkRows
from kfast.registry.registered_schema import KeyKind
from kfast.schemas.types import Kind

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig
    from kfast.deserializers.typed import TypedDeserializer
    from kfast.internals import CompletedFetch, RecordIndex
    from kfast.records.building import BuildResult
    from kfast.records.deserializing import OnError
    from kfast.registry.registered_schema import SchemaKey
    from kfast.table.ingest.options import IngestOptions, Roots

_ON_ERROR: Final = {"fail": "raise"}
_NESTED: Final = frozenset({Kind.STRUCT, Kind.LIST, Kind.MAP})
"""Roots whose columns keep what a decoder has made; those of others become arrays."""


class TableConverter(RecordConverter):
    """Makes records whose keys and values are columns of the table, if they are nested."""

    def __init__(
        self, config: ConsumerConfig, options: IngestOptions, wake: Callable[[], object]
    ) -> None:
        super().__init__(config, wake)
        # Dead letters and rescued fields are of the bytes of values: the files decode them.
        is_typed = options.dead_letter is None and not options.has_rescued
        self._typed: Mapping[str, TypedDeserializer] = options.typed if is_typed else {}
        self._on_error = cast("OnError", _ON_ERROR.get(options.on_error, options.on_error))
        self.runs_ahead = self._has_native = bool(self._typed)
        self._watched: Mapping[str, TypedDeserializer] = {}
        self._held: set[SchemaKey] = set()
        self._released: set[SchemaKey] = set()

    def watch(self, options: IngestOptions) -> None:
        """Hold values that name schemas which are new to the deserializers, from now on."""
        self._watched = options.of_latest
        self._held.clear()

    @property
    def held(self) -> AbstractSet[SchemaKey]:
        """The schemas of values that are held."""
        return self._held

    def release(self, keys: AbstractSet[SchemaKey]) -> None:
        """Decode values of these schemas by the version that is read by now."""
        self._released |= keys
        self._held -= keys

    def __call__(self, fetch: CompletedFetch, chunk: RecordIndex) -> BuildResult | None:
        """Return the rows, None while they are held or their schemas are being looked up."""
        new = self._new_keys(fetch, chunk) if self._watched else ()
        if new:
            self._held |= new
            return None
        return super().__call__(fetch, chunk)

    def _new_keys(self, fetch: CompletedFetch, chunk: RecordIndex) -> AbstractSet[SchemaKey]:
        """Return the schemas that values name, and that are new."""
        tp = fetch.topic_partition
        rows = ChunkRows(tp.topic, tp.partition, chunk, self._selected)
        keys: set[SchemaKey] = set()
        for name, deserializer in self._watched.items():
            headers = rows.all_headers() if deserializer.needs_headers else None
            keys.update(deserializer.prepare(rows.bytes_of(name), headers))
        return {key for key in keys if key.kind is not KeyKind.VERSION} - self._released

    def begin(self, roots: Roots, options: IngestOptions | None = None) -> None:
        """Decode from now on; ``roots`` are those of keys and values, as far as they are typed.

        ``options`` have other deserializers than before. What was decoded with those is dropped by
        a seek, which has to follow.
        """
        if options is not None:
            self._typed = options.typed if self._typed else self._typed
            self.watch(options)
        nested = {
            name: deserializer
            for name, deserializer in self._typed.items()
            if roots[name].type.kind in _NESTED
        }
        self._key_deserializer = nested.get("key")
        self._value_deserializer = nested.get("value")
        self.select(None)


class IngestConsumer(KafkaConsumer):
    """The consumer of an ingest; ``begin`` of its converter is called before it is assigned."""

    def __init__(self, options: IngestOptions, settings: Mapping[str, Any]) -> None:
        self._options = options
        super().__init__(config=settings)

    def _converter(self, wake: Callable[[], object]) -> TableConverter:
        self.converter = TableConverter(self._config, self._options, wake)
        return self.converter
