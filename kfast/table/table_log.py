"""TableLog: the one place where a table says what was published, for each format of tables.

Owns the interface; `open_log` chooses the log for a format. A log is the authority on its table:
``last`` reads the table itself, so that a table which was restored, rolled back, dropped or written
by another program is seen as it is, and ``append`` makes files and offsets part of it in one step.

================  ==============================================================================
format            where the entries are
================  ==============================================================================
parquet, arrow    ``_kfast/log`` in the table's folder (`ManifestLog`)
delta             the commits of the Delta log that add the files (`DeltaLog`)
iceberg           the summaries of the snapshots that add the files (`IcebergLog`)
================  ==============================================================================

Used by the process that publishes, with Spark the driver; one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from kfast.table.entries import Entry, TableShape, Writer
    from kfast.table.iceberg_partitions import IcebergField
    from kfast.table.projection import Projection
    from kfast.table.store import TableStore

FOLDER: Final = "_kfast"
"""In the folder of a table: readers ignore names that begin with ``_``."""
STAGING: Final = f"{FOLDER}/staging"


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table opened by a writer."""

    writer: Writer
    last: Entry
    """The entry that the writer's next batch follows."""
    field_ids: Mapping[str, int] = field(default_factory=dict)
    """Of the columns of the files, by path, which Parquet files get; for Iceberg tables."""
    partition_fields: tuple[IcebergField, ...] = ()
    """What the table is partitioned by; for Iceberg tables."""


class TableLog(Protocol):
    """The log of one table.

    Every method may raise ``TableError`` or another ``KafkaError`` with the table's name if the
    table cannot be read, and ``OSError`` of its store.
    """

    store: TableStore

    def last(self) -> Entry | None:
        """The newest entry, None for a table that no ingest has written, or that does not exist."""
        ...

    def check(self, shape: TableShape, projection: Projection, last: Entry | None) -> None:
        """Check that files of a shape can be added; nothing is changed.

        ``projection`` has the columns of the files. Raises ``ConfigurationError`` with table,
        column and difference.
        """
        ...

    def begin(
        self, writer: Writer, shape: TableShape, projection: Projection, last: Entry | None
    ) -> OpenTable | None:
        """Begin a writer after the entry ``last``, None if there is a later one by now.

        Creates the table, or adds the columns that it does not have (after `check`). The writer of
        ``last`` goes on without an entry of its own.
        """
        ...

    def published(self, writer: Writer, batch_id: int) -> Entry | None:
        """The entry that has a batch of a writer, or its number; None if there is none."""
        ...

    def append(self, entry: Entry) -> bool:
        """Publish an entry; return False, with the table unchanged, if another has its number.

        Its files are in the staging folder, flushed to disk. From this step on they are part of the
        table, those of dead letters of their folder, all of them or none.
        """
        ...

    def recover(self, last: Entry | None) -> None:
        """Finish, or undo, what a process that was killed inside of `append` has left."""
        ...

    def claimed(self) -> set[str]:
        """The staged files that must not be swept: an entry has them, or may get them yet."""
        ...

    def after(self, last: Entry | None) -> list[tuple[Entry, int | None]]:
        """The entries after one, the oldest first, each with its time in ms if that is known."""
        ...


OpenFolder = Callable[[str], "TableStore"]
"""Opens the folder with a URL."""


def is_hidden(path: str) -> bool:
    """Whether readers of a table ignore a file."""
    return any(name.startswith(("_", ".")) for name in path.split("/"))
