"""IngestConsumer: a consumer whose threads make the typed columns of a table ahead of it.

Which deserializers there are is known once the schemas were looked up, with the same consumer. What
the others make, a poll leaves as bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from kfast.application.record_converter import RecordConverter
from kfast.kafka_consumer import KafkaConsumer
from kfast.schemas.types import Kind

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig
    from kfast.deserializers.typed import TypedDeserializer
    from kfast.records.deserializing import OnError
    from kfast.table.ingest.options import IngestOptions, Roots

_ON_ERROR: Final = {"fail": "raise"}
_NESTED: Final = frozenset({Kind.STRUCT, Kind.LIST, Kind.MAP})
"""Roots whose columns keep what a decoder has made; those of others become arrays."""


class TableConverter(RecordConverter):
    """Makes records whose keys and values are columns of the table, if they are nested."""

    def __init__(self, config: ConsumerConfig, options: IngestOptions) -> None:
        super().__init__(config)
        # Dead letters and rescued fields are of the bytes of values: the files decode them.
        is_typed = options.dead_letter is None and not options.has_rescued
        self._typed: Mapping[str, TypedDeserializer] = options.typed if is_typed else {}
        self._on_error = cast("OnError", _ON_ERROR.get(options.on_error, options.on_error))
        self.runs_ahead = self.has_native = bool(self._typed)

    def begin(self, roots: Roots, options: IngestOptions | None = None) -> None:
        """Decode from now on; ``roots`` are those of keys and values, as far as they are typed.

        ``options`` have other deserializers than before. What was decoded with those is dropped by
        a seek, which has to follow.
        """
        if options is not None and self._typed:
            self._typed = options.typed
        made = {
            name: each for name, each in self._typed.items() if roots[name].type.kind in _NESTED
        }
        self._key_deserializer = made.get("key")
        self._value_deserializer = made.get("value")
        self.select(None)


class IngestConsumer(KafkaConsumer):
    """The consumer of an ingest; ``begin`` of its converter is called before it is assigned."""

    def __init__(self, options: IngestOptions, settings: Mapping[str, Any]) -> None:
        self._options = options
        super().__init__(config=settings)

    def _converter(self) -> TableConverter:
        self.converter = TableConverter(self._config, self._options)
        return self.converter
