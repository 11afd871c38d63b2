"""SchemaVersions: versions of schemas that are registered while an ingest follows its topics.

Owns the look-up of the latest version, and whether a table can take it: a version that only adds
nullable columns or widens numbers is taken between two batches, without a restart. Another one is
logged once, and records are read by the version before, as far as its rules let them.

The thread of the run, which waits for no answer of the registry: publishing goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger
from kfast.deserializers.formats import no_values
from kfast.errors import ConfigurationError, KafkaError
from kfast.table.entries import TableShape
from kfast.table.ingest.options import IngestOptions, Roots
from kfast.table.schema_changes import SchemaChange, schema_change

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast.deserializers.typed import TypedDeserializer
    from kfast.registry.registered_schema import SchemaKey, SchemaRequest

logger = get_logger(__name__)

_RETRY_MS: Final = 5_000
"""After a look-up that has failed."""


@dataclass(frozen=True, slots=True)
class NewerSchema:
    """A version that a table can take."""

    options: IngestOptions
    """With deserializers that read by it."""
    roots: Roots
    change: SchemaChange


@dataclass(frozen=True, slots=True)
class _LookUp:
    """Look-ups of the latest versions, under way or done."""

    options: IngestOptions
    """With the deserializers that get the answers."""
    topics: tuple[str, ...]
    requests: tuple[tuple[TypedDeserializer, SchemaRequest], ...]

    @classmethod
    def of(cls, options: IngestOptions, topics: Collection[str]) -> _LookUp:
        """Begin them."""
        requests = []
        for name, deserializer in options.typed.items():
            registry = deserializer.registry
            if registry is None:
                continue
            columns = [no_values(topic, name) for topic in topics]
            keys = {key for column in columns for key in deserializer.prepare(column, None)}
            if keys:
                request = registry.lookup(keys, is_serialized=deserializer.is_serialized)
                requests.append((deserializer, request))
        return cls(options, tuple(topics), tuple(requests))

    def learn(self) -> bool:
        """Give the deserializers the answers; return False while some are pending.

        Raises ``SchemaRegistryError`` if there are none.
        """
        answers = [request.answers() for _, request in self.requests]
        if any(answer is None for answer in answers):
            return False
        for (deserializer, _), answer in zip(self.requests, answers, strict=True):
            assert answer is not None
            if answer.error is not None:
                raise answer.error
            deserializer.learn(answer)
        return True


class SchemaVersions:
    """The versions of one run; ``url`` is that of the table, for messages."""

    def __init__(self, options: IngestOptions, url: str, clock: Clock) -> None:
        self._options = options
        self._url = url
        self._clock = clock
        self._refused: set[str] = set()
        self._pending: _LookUp | None = None
        self._held: AbstractSet[SchemaKey] = frozenset()
        self._not_before_ms = clock.now_ms()
        self.checked: AbstractSet[SchemaKey] = frozenset()
        """Schemas of values that were held when the last look-up began that has an answer."""

    def begin(self, topics: Collection[str], held: AbstractSet[SchemaKey] = frozenset()) -> None:
        """Begin to look up the latest versions for topics, unless that is under way.

        A look-up for schemas of values that are ``held`` begins after those were: they may have
        been registered after one that is under way was answered.
        """
        if not self._options.of_latest or self._clock.now_ms() < self._not_before_ms:
            return
        if self._pending is not None and not held <= self._held:
            self.close()
        if self._pending is None:
            self._pending = _LookUp.of(self._options.with_new_deserializers(), topics)
            self._held = frozenset(held)

    def close(self) -> None:
        """Drop a look-up that is under way."""
        if self._pending is not None:
            for _, request in self._pending.requests:
                request.cancel()
            self._pending = None

    def newer(self, roots: Roots, shape: TableShape) -> NewerSchema | None:
        """Return the latest version if it was looked up, and the table gets columns by it.

        ``roots`` and ``shape`` are those of the version that is read by now. A registry that cannot
        be asked is no error: the next look-up may succeed.
        """
        pending = self._pending
        if pending is None:
            return None
        try:
            if not pending.learn():
                return None
            self._pending = None
            self.checked = self._held
            return self._change(pending, roots, shape)
        except ConfigurationError as error:
            self._pending = None
            self.checked = self._held
            self._refuse(error)
        except KafkaError as error:
            self._pending = None
            self._not_before_ms = self._clock.now_ms() + _RETRY_MS
            logger.warning("cannot look for newer schemas: %s", error)
        return None

    def _change(self, done: _LookUp, roots: Roots, shape: TableShape) -> NewerSchema | None:
        latest = done.options.look_up_roots(done.topics, waits=False)
        if all(latest[name].type == root.type for name, root in roots.items()):
            return None
        new_shape = done.options.shape(done.options.of_table(done.options.projection(latest)))
        change = schema_change(shape.schema, new_shape.schema, self._url, shape.format)
        return NewerSchema(done.options, latest, change) if change.is_of_table else None

    def _refuse(self, error: ConfigurationError) -> None:
        """Log once why a version is not taken."""
        text = str(error)
        if text not in self._refused:
            self._refused.add(text)
            logger.warning("a newer schema is not used, and records are read as before: %s", error)

    def __repr__(self) -> str:
        return f"<SchemaVersions of {self._url}>"
