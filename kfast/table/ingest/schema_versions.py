"""SchemaVersions: versions of schemas that are registered while an ingest follows its topics.

Owns the look-up of the latest version, and whether a table can take it: a version that only adds
nullable columns or widens numbers is taken between two batches, without a restart. Another one is
logged once, and records are read by the version before, as far as its rules let them.

The thread of the run; a look-up waits for the registry.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kfast._logging import Logger
from kfast.errors import ConfigurationError, KafkaError
from kfast.table.entries import TableShape
from kfast.table.ingest.options import IngestOptions, Roots
from kfast.table.schema_changes import SchemaChange, schema_change

logger = Logger(__name__)

_LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class NewerSchema:
    """A version that a table can take."""

    options: IngestOptions
    """With deserializers that read by it."""
    roots: Roots
    change: SchemaChange


class SchemaVersions:
    """The versions of one run; ``url`` is that of the table, for messages."""

    def __init__(self, options: IngestOptions, url: str) -> None:
        self._options = options
        self._url = url
        self._refused: set[str] = set()

    @property
    def may_change(self) -> bool:
        """Whether a schema is the latest of a subject, rather than a named version or a text."""
        readers = (each.reader for each in self._options.typed.values())
        return any(reader is not None and reader.endswith(_LATEST) for reader in readers)

    def newer(self, topics: Collection[str], roots: Roots, shape: TableShape) -> NewerSchema | None:
        """Return the latest version if the table gets columns or wider types by it.

        ``roots`` and ``shape`` are those of the version that is read by now. A registry that cannot
        be asked is no error: the next look-up may succeed.
        """
        if not self.may_change:
            return None
        try:
            options = self._options.with_new_deserializers()
            latest = options.look_up_roots(topics)
            if all(latest[name].type == root.type for name, root in roots.items()):
                return None
            wanted = options.shape(options.of_table(options.projection(latest)))
            change = schema_change(shape.schema, wanted.schema, self._url, shape.format)
        except ConfigurationError as error:
            self._refuse(error)
            return None
        except KafkaError as error:
            logger.warning("cannot look for newer schemas: %s", error)
            return None
        return NewerSchema(options, latest, change) if change.is_of_table else None

    def _refuse(self, error: ConfigurationError) -> None:
        """Log once why a version is not taken."""
        text = str(error)
        if text not in self._refused:
            self._refused.add(text)
            logger.warning("a newer schema is not used, and records are read as before: %s", error)

    def __repr__(self) -> str:
        return f"<SchemaVersions of {self._url}>"
