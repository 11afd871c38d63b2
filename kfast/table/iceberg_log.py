"""IcebergLog: the log of an Iceberg table, in the table itself.

Owns how an entry becomes part of the table: its files and its offsets are one snapshot
(`SnapshotEntries`), which the catalog accepts only if the table is still as it was read. What the
table says is the truth, whatever is in the folder: after a rollback the ingest goes on from there,
and for a table that was dropped and created again it begins anew.

Commits:

- pyiceberg would try a commit again that another one has overtaken, without looking what that one
  was. So its retries are off for these commits, and each try here begins with the newest entry:
  one with this number is of this process (its answer was lost), or another writer has been first.
- A commit of another program, such as a compaction, is no reason to stop: the next try follows it.
- Files have their names before the commit (`PendingFiles`), with the field ids of the table in
  them, so that columns may be renamed there; they are listed with the statistics of their footers.

Partitions are those of the table's current spec. Used by the process that publishes; one thread at
a time.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any, Final

from kfast._base.clock import ExponentialBackoff, SystemClock
from kfast._base.logs import get_logger
from kfast._base.optional import optional_package
from kfast.errors import ConfigurationError, KafkaError, TableError
from kfast.table.entries import Entry, TableShape, Writer, first_entry
from kfast.table.fsspec_store import open_store
from kfast.table.iceberg_catalog import CatalogTable
from kfast.table.iceberg_entries import SnapshotEntries, properties_of, summary_of
from kfast.table.iceberg_files import data_files
from kfast.table.iceberg_partitions import IcebergField
from kfast.table.iceberg_schema import (
    COLUMNS,
    SchemaMatch,
    columns_of,
    iceberg_schema,
    match_schema,
)
from kfast.table.iceberg_specs import check_spec, partition_fields, spec_of
from kfast.table.pending import PendingFiles
from kfast.table.projection import Projection
from kfast.table.staged_files import StagedFiles
from kfast.table.store import TableStore
from kfast.table.table_log import FOLDER, OpenFolder, OpenTable

logger = get_logger(__name__)

_TRIES: Final = 8
_BACKOFF: Final = ExponentialBackoff(50, 5_000)
_RETRIES: Final = "commit.retry.num-retries"
_FORMATS: Final = (1, 2)
_OTHER_TABLES: Final = (("_delta_log", "a Delta table"), (f"{FOLDER}/log", "a table of files"))


class IcebergLog:
    """The log of one table; see `TableLog`. ``store`` is the folder of its files."""

    def __init__(
        self, store: TableStore, catalog_table: str, open_folder: OpenFolder = open_store
    ) -> None:
        self.store = store
        self._name = catalog_table
        self._catalog = CatalogTable(catalog_table)
        self._pending = PendingFiles(store, StagedFiles(store, open_folder))
        self._uuid: Any = None

    # --- entries ----------------------------------------------------------------------------------

    def last(self) -> Entry | None:
        """The newest entry, None for a table that no ingest has written, or that does not exist."""
        table = self._catalog.load()
        return None if table is None else self._entries(table).last()

    def published(self, writer: Writer, batch_id: int) -> Entry | None:
        """The entry that has a batch of a writer; with its files while these are pending."""
        table = self._catalog.load()
        if table is None:
            return None
        for entry, _ in self._entries(table).entries():
            if entry.writer != writer or (entry.batch_id or 0) < batch_id:
                break
            if entry.batch_id == batch_id:
                return self._pending.entry(entry)
        return None

    def after(self, last: Entry | None) -> list[tuple[Entry, int | None]]:
        """The entries after one, the oldest first, with the times of their snapshots."""
        table = self._catalog.load()
        entries: list[tuple[Entry, int | None]] = []
        if table is not None:
            for entry, time_ms in self._entries(table).entries():
                if last is not None and entry.sequence <= last.sequence:
                    break
                entries.append((entry, time_ms))
        return entries[::-1]

    def _entries(self, table: Any) -> SnapshotEntries:
        return SnapshotEntries(table, self._name)

    # --- opening ----------------------------------------------------------------------------------

    def check(
        self,
        shape: TableShape,
        projection: Projection,
        last: Entry | None,  # noqa: ARG002 - the table itself says more
    ) -> None:
        """Check that files of a shape can be added to the table, or that it can be created."""
        for folder, kind in _OTHER_TABLES:
            if self.store.files(folder):
                raise ConfigurationError(
                    f"{self.store.url} is the folder of {kind}",
                    hint="write the files of the Iceberg table to a folder of their own",
                )
        table = self._catalog.load()
        if table is None:
            spec_of(shape.partition_by, iceberg_schema(projection), self._name)
            return
        self._check_format(table)
        self._match(table, projection)
        self._fields(table, shape, projection)

    def _check_format(self, table: Any) -> None:
        properties = table.properties
        for is_refused, has, hint in (
            (
                table.format_version not in _FORMATS,
                f"has the format version {table.format_version}",
                "pyiceberg writes versions 1 and 2: write to another table",
            ),
            (
                "encryption.key-id" in properties,
                "is encrypted",
                "pyiceberg does not encrypt: write to another table",
            ),
        ):
            if is_refused:
                raise ConfigurationError(f"the Iceberg table {self._name} {has}", hint=hint)

    def _match(self, table: Any, projection: Projection) -> SchemaMatch:
        columns = columns_of(table.properties, self._name)
        return match_schema(table.schema(), projection, columns, self._name)

    def _fields(
        self, table: Any, shape: TableShape, projection: Projection
    ) -> tuple[IcebergField, ...]:
        """The partition fields of a table, which must be those of the shape if it has any."""
        ids = self._match(table, projection).ids
        fields = partition_fields(table.spec(), table.schema(), ids, projection, self._name)
        if shape.partition_by:
            check_spec(shape.partition_by, fields, self._name)
        return fields

    def begin(
        self, writer: Writer, shape: TableShape, projection: Projection, last: Entry | None
    ) -> OpenTable | None:
        """Begin a writer after the entry ``last``, None if there is a later one by now.

        A run of ``kfast ingest`` has no entry of its own, and neither has a writer that goes on.
        """
        table = self._catalog.load()
        if table is None:
            schema = iceberg_schema(projection)
            table = self._catalog.create(schema, spec_of(shape.partition_by, schema, self._name))
        ids = self._evolve(projection)
        table = self._loaded()
        if not _is_same(self._entries(table).last(), last):
            return None
        self._uuid = table.metadata.table_uuid
        fields = self._fields(table, shape, projection)
        if last is None:
            entry = first_entry(writer, shape)
        elif writer.is_run or last.writer == writer:
            return OpenTable(writer, last, ids, fields)
        else:
            entry = last.beginning(writer, shape)
        if not writer.is_run and not self._commit(entry):
            return None
        return OpenTable(writer, entry, ids, fields)

    def _evolve(self, projection: Projection) -> dict[str, int]:
        """Add and widen columns; the ids of all that the files have, which the table remembers."""
        for pause in _pauses():
            table = self._loaded()
            match = self._match(table, projection)
            columns = columns_of(table.properties, self._name)
            if match.is_complete and match.ids.items() <= columns.items():
                return match.ids
            with self._catalog.errors("change"), suppress(_conflict()):
                self._change(table, match, projection, columns)
                continue
            time.sleep(pause)
        raise self._busy("the columns of the ingest")

    def _change(
        self, table: Any, match: SchemaMatch, projection: Projection, columns: dict[str, int]
    ) -> None:
        """Commit columns, and their ids beside them."""
        with table.transaction() as transaction:
            if not match.is_complete:
                with transaction.update_schema() as update:
                    for column in match.added:
                        above = () if column.parent_id is None else (
                            table.schema().find_column_name(column.parent_id),)  # fmt: skip
                        update.add_column((*above, column.name), column.type)
                    for field_id, kind in match.widened:
                        update.update_column((table.schema().find_column_name(field_id),), kind)
                    logger.info(
                        "the Iceberg table %s gets %s", self._name,
                        ", ".join([column.path for column in match.added]
                                  + [f"{kind}" for _, kind in match.widened]),
                    )  # fmt: skip
            schema = transaction.table_metadata.schema()
            ids = match_schema(schema, projection, columns, self._name).ids
            text = json.dumps({**columns, **ids}, separators=(",", ":"), ensure_ascii=False)
            transaction.set_properties({COLUMNS: text})

    def _loaded(self) -> Any:
        table = self._catalog.load()
        if table is None:
            raise TableError(
                f"the Iceberg table {self._name} is gone",
                cause="it was dropped, or renamed, while it was written",
                hint="start the ingest again, as the table is now",
            )
        return table

    # --- publishing -------------------------------------------------------------------------------

    def append(self, entry: Entry) -> bool:
        """Publish an entry as one snapshot; False if there is one with its number."""
        if not _follows(entry, self._entries(self._same_table()).last()):
            return False
        self._pending.begin(entry)
        if not self._commit(entry):
            self._pending.settle(self.last(), self._is_published)
            return False
        # Earlier attempts, whose answers were lost, are settled as well.
        self._pending.settle(entry, lambda other: other.id == entry.id or self._is_published(other))
        return True

    def _commit(self, entry: Entry) -> bool:
        """Commit an entry after the one before it; False if there is another by now."""
        cause: Exception | None = None
        for pause in _pauses():
            table = self._same_table()
            entries = self._entries(table)
            if entries.has(entry):
                return True
            if not _follows(entry, entries.last()):
                return False
            try:
                with self._catalog.errors("commit to"):
                    self._commit_snapshot(table, entry)
                return True
            except (_conflict(), KafkaError) as error:
                # Overtaken; or the answer is missing, and the next try looks for the snapshot. A
                # commit that is still on its way is refused after that of the next try.
                cause = error
                logger.info("the commit to %s: %s", self._name, error)
            time.sleep(pause)
        if self._entries(self._same_table()).has(entry):
            return True
        if isinstance(cause, KafkaError):
            raise cause
        raise self._busy(f"batch {entry.batch_id}") from cause

    def _commit_snapshot(self, table: Any, entry: Entry) -> None:
        table.metadata.properties[_RETRIES] = "0"  # of this object, not of the table
        files = data_files(self.store, entry.table_files, table.metadata, self._name)
        number = table.metadata.next_sequence_number()
        with table.transaction() as transaction:
            producer = transaction.update_snapshot(summary_of(entry)).fast_append()
            with producer as update:
                for file in files:
                    update.append_data_file(file)
            transaction.set_properties(
                properties_of(entry, table.metadata.table_uuid, producer.snapshot_id, number)
            )

    def _same_table(self) -> Any:
        """The table as it is now; it must be the one that the writer has begun with."""
        table = self._loaded()
        if self._uuid is not None and table.metadata.table_uuid != self._uuid:
            raise TableError(
                f"the Iceberg table {self._name} was dropped and created again while it was "
                "written",
                hint="start the ingest again: it begins with the new table",
            )
        return table

    def _busy(self, change: str) -> KafkaError:
        return KafkaError(
            f"cannot commit {change} to the Iceberg table {self._name}",
            cause=f"other writers of the table were faster, {_TRIES} times",
            hint="start the ingest again: it goes on where the table ends",
        )

    # --- after a crash ----------------------------------------------------------------------------

    def recover(self, last: Entry | None) -> None:  # noqa: ARG002
        """Finish, or undo, what a process that was killed inside of `append` has left."""
        if self._pending.entries():
            self._pending.recover(self.last(), self._is_published)

    def _is_published(self, entry: Entry) -> bool | None:
        table = self._catalog.load()
        return False if table is None else self._entries(table).has(entry)

    def claimed(self) -> set[str]:
        """The files of the staging folder that are part of an append."""
        return self._pending.claimed()

    def __repr__(self) -> str:
        return f"<IcebergLog {self._name}>"


def _conflict() -> type[Exception]:
    errors = optional_package("pyiceberg.exceptions", "an Iceberg table")
    conflict: type[Exception] = errors.CommitFailedException
    return conflict


def _pauses() -> list[float]:
    """Seconds to wait after each try."""
    clock = SystemClock()
    return [_BACKOFF.backoff_ms(number, clock) / 1000 for number in range(_TRIES)]


def _is_same(entry: Entry | None, other: Entry | None) -> bool:
    return (entry and entry.id) == (other and other.id)


def _follows(entry: Entry, last: Entry | None) -> bool:
    """Whether an entry is the next one of a table; a run's first batch follows no stored entry."""
    if last is None:
        return entry.sequence in (0, 1)
    return entry.sequence == last.sequence + 1
