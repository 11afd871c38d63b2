"""DeltaLog: the log of a Delta table is the log of its ingest.

Owns what an ingest writes to ``_delta_log``, through the ``deltalake`` package. Each batch is one
commit, which readers see as a whole or not at all. It has

* the files of the batch (``add``), under the names that they have had since just before
  (`PendingFiles`);
* in its ``commitInfo``, under ``kfast``, the whole entry: the offsets of all partitions, writer,
  counts, ids of topics;
* transactions (``txn``): ``kfast`` with the number of the entry, which lets Delta refuse a second
  commit with it, and ``kfast:TOPIC:PARTITION`` with the next offset of each partition that the
  batch has moved, -1 where the table has none any more. They are read only when the commits were
  removed, which Delta does once a checkpoint has them and they are older than the table's retention
  time; writer and ids of topics are gone then.

So what the table has is read from the table, whatever was done to it: restored (`DeltaCommits`),
copied as a folder, dropped. Each try of a commit begins with that, and a commit that any other one
has overtaken is refused (no retries of the package's own): it was for another version.

An entry without files is committed only for the beginning of a query of Spark, and together with
the table itself. Runs of ``kfast ingest`` begin without one.

Used by the process that publishes; one thread at a time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError, KafkaError
from kfast.schemas.ddl import field_of_ddl
from kfast.table.batches import DataFile, PartitionGone
from kfast.table.delta_commits import DELTA_LOG, ENTRY, DeltaCommits, commit_path
from kfast.table.delta_history import GONE, DeltaHistory, NewestEntry, transaction_id
from kfast.table.delta_schema import DeltaShape, Field, delta_columns, folder_names, schema_json
from kfast.table.delta_storage import (
    delta_errors,
    delta_options,
    delta_url,
    import_deltalake,
    plain_text,
)
from kfast.table.entries import (
    Entry,
    TableShape,
    Writer,
    encode_entry,
    first_entry,
)
from kfast.table.file_formats import bounded_columns
from kfast.table.file_names import parts_of
from kfast.table.fsspec_store import open_store
from kfast.table.pending import PendingFiles
from kfast.table.projection import Projection
from kfast.table.row_changes import check_keys
from kfast.table.staged_files import StagedFiles
from kfast.table.store import TableStore
from kfast.table.table_log import FOLDER, OpenFolder, OpenTable, is_hidden
from kfast.table.value_types import json_of
from kfast.types import TopicPartition

logger = get_logger(__name__)

_TRIES: Final = 20
"""Commits of others that may come first, one after the other, while a batch is published."""
_BOUNDED: Final = "delta.dataSkippingStatsColumns"
_BOUNDED_COUNT: Final = "delta.dataSkippingNumIndexedCols"


class DeltaWrites(Protocol):
    """How an entry changes the rows of a table: `AddedFiles`, or ``DeltaUpserts``."""

    def check(
        self, table: Any, shape: TableShape, projection: Projection, last: Entry | None
    ) -> None:
        """Check that a table takes it.

        Raises ``ConfigurationError``.
        """
        ...

    def bounded(self, projection: Projection, shape: TableShape) -> list[str]:
        """The columns that have bounds in every file."""
        ...

    def write(self, table: Any, entry: Entry, properties: Any) -> None:
        """Commit an entry on a version, with these properties."""
        ...


class AddedFiles:
    """The files of an entry are added to the table."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._delta = import_deltalake()

    def check(
        self, table: Any, shape: TableShape, projection: Projection, last: Entry | None
    ) -> None:
        """Every table that the columns fit takes files."""

    def bounded(self, projection: Projection, shape: TableShape) -> list[str]:
        """The columns that have bounds in every file."""
        return bounded_columns(projection, folder_names(shape))

    def write(self, table: Any, entry: Entry, properties: Any) -> None:
        """Commit the files of an entry on a version."""
        table.create_write_transaction(
            [self._action(file) for file in entry.table_files],
            mode="append",
            schema=table.schema(),
            partition_by=table.metadata().partition_columns or None,
            commit_properties=properties,
        )

    def _action(self, file: DataFile) -> Any:
        stored = self._store.stat(file.path)
        return self._delta.transaction.AddAction(
            file.path,
            file.bytes,
            parts_of(file.path),
            stored.modified_ms if stored is not None else 0,
            True,
            file.stats or json.dumps({"numRecords": file.rows}),
        )


class DeltaLog:
    """The log of one table; see `TableLog`. ``writes`` is how entries change its rows."""

    def __init__(
        self,
        store: TableStore,
        open_folder: OpenFolder = open_store,
        writes: DeltaWrites | None = None,
    ) -> None:
        self.store = store
        self._writes = writes or AddedFiles(store)
        self._delta = import_deltalake()
        self._url = delta_url(store)
        self._options = delta_options(store)
        self._history = DeltaHistory(store, self._open_version)
        self._pending = PendingFiles(store, StagedFiles(store, open_folder))
        self._checked: DeltaShape | None = None
        """What the files of this log's batches were checked against."""
        self._has_listed = False
        """Whether what killed processes have left was looked for after a batch."""
        self._committed = ""
        """Id of the last entry that was committed here."""

    # --- entries ----------------------------------------------------------------------------------

    def last(self) -> Entry | None:
        """The newest entry of the table's history, None for a table without any."""
        table = self._open()
        return None if table is None else self._history.newest(table).entry

    def after(self, last: Entry | None) -> list[tuple[Entry, int | None]]:
        """The entries after one, the oldest first, each with the time of its commit."""
        entries: list[tuple[Entry, int | None]] = []
        table = self._open()
        if table is None:
            return entries
        for commit in self._history.chain(int(table.version())):
            entry = self._history.entry_of(commit)
            if entry is None:
                continue
            if last is not None and (entry.id == last.id or entry.sequence <= last.sequence):
                break
            entries.append((entry, commit.time_ms))
        return entries[::-1]

    def published(self, writer: Writer, batch_id: int) -> Entry | None:
        """The entry of a batch, if no other writer has written since."""
        table = self._open()
        if table is None:
            return None
        for commit in self._history.chain(int(table.version())):
            entry = self._history.entry_of(commit)
            if entry is None:
                continue
            if entry.writer.id != writer.id or entry.batch_id is None or entry.batch_id < batch_id:
                return None
            if entry.batch_id == batch_id:
                return self._pending.entry(entry)
        return None

    def _open(self) -> Any:
        """Open the newest version of the table, None if there is none."""
        with delta_errors(f"cannot read the Delta table {self.store.url}"):
            try:
                return self._delta.DeltaTable(self._url, storage_options=self._options)
            except self._delta.exceptions.TableNotFoundError:
                return None
            except self._delta.exceptions.DeltaError as error:
                if "catalog-managed" not in str(error):
                    raise
                raise ConfigurationError(
                    f"{self.store.url} is managed by a catalog, which alone may commit to it",
                    cause=plain_text(error),
                    hint="write to another folder",
                ) from error

    def _open_version(self, version: int) -> Any:
        return self._delta.DeltaTable(self._url, version=version, storage_options=self._options)

    def _is_published(self, entry: Entry) -> bool:
        table = self._open()
        return table is not None and self._history.is_published(table, entry) is True

    def _state(self, entry: Entry) -> bool | None:
        """Whether an entry is in the table, None if its commit may have been removed since."""
        if entry.id == self._committed:
            return True
        table = self._open()
        return None if table is None else self._history.is_published(table, entry)

    # --- opening ----------------------------------------------------------------------------------

    def check(self, shape: TableShape, projection: Projection, last: Entry | None) -> None:
        """Check that the table, if there is one, can be written in a shape; see `DeltaShape`."""
        if self.store.files(f"{FOLDER}/log"):
            raise ConfigurationError(
                f"{self.store.url} is a table of files, or a Delta table of an earlier kfast",
                found=f"its log is in {FOLDER}/log",
                hint="write to another folder",
            )
        columns = delta_columns(projection, shape.partition_by)
        if last is not None:
            check_keys(self.store.url, last.shape, shape)
        table = self._open()
        if table is None:
            self._check_empty()
            return
        with delta_errors(f"cannot read the Delta table {self.store.url}"):
            delta_shape = DeltaShape.of(self.store.url, table)
        folders = folder_names(shape)
        delta_shape.check(columns, folders)
        if (
            last is not None
            and last.shape.partition_by != shape.partition_by
            and sorted(folder_names(last.shape)) == sorted(folders)
            and last.shape.schema
        ):
            raise ConfigurationError(
                f"{self.store.url} is partitioned by {', '.join(last.shape.partition_by)}",
                found=f"this ingest partitions by {', '.join(shape.partition_by)}",
                hint="use the table's, or write to another folder",
            )
        self._writes.check(table, shape, projection, last)

    def _check_empty(self) -> None:
        visible = [file.path for file in self.store.files("") if not is_hidden(file.path)]
        if visible:
            raise ConfigurationError(
                f"{self.store.url} has files, but no Delta log that lists them",
                found=visible[0] + (f" and {len(visible) - 1} more" if visible[1:] else ""),
                hint=f"write to an empty folder, or restore its folder {DELTA_LOG}",
            )

    def begin(
        self, writer: Writer, shape: TableShape, projection: Projection, last: Entry | None
    ) -> OpenTable | None:
        """Begin a writer after the entry ``last``, None if there is a later one by now."""
        columns = delta_columns(projection, shape.partition_by)
        bounded = self._writes.bounded(projection, shape)
        table = self._open()
        if table is None:
            if last is not None:
                return None
            entry = first_entry(writer, shape)
            return OpenTable(writer, entry) if self._create(entry, columns, bounded) else None
        newest = self._history.newest(table)
        if not _is_same(newest.entry, last):
            return None
        if not self._change(table, columns, bounded):
            return None
        if last is not None and (writer.is_run or last.writer.id == writer.id):
            return OpenTable(writer, last)
        entry = first_entry(writer, shape) if last is None else last.beginning(writer, shape)
        if writer.is_run:
            return OpenTable(writer, entry)
        table = self._open()
        if table is None or not _is_same(self._history.newest(table).entry, last):
            return None
        if not self._commit(table, entry, newest):
            return None
        return OpenTable(writer, entry)

    def _create(self, entry: Entry, columns: list[Field], bounded: list[str]) -> bool:
        """Create the table with its first entry; return False if another process has."""
        with delta_errors(f"cannot create the Delta table {self.store.url}"):
            try:
                self._delta.DeltaTable.create(
                    self._url,
                    schema=self._delta.Schema.from_json(schema_json(columns)),
                    mode="error",
                    partition_by=folder_names(entry.shape) or None,
                    configuration=_bounds(bounded),
                    storage_options=self._options,
                    commit_properties=self._properties(entry, {}),
                )
            except Exception:
                if self._open() is None:
                    raise
                if not self._is_published(entry):
                    return False
        self._fsync(0)
        return True

    def _change(self, table: Any, columns: list[Field], bounded: list[str]) -> bool:
        """Add the columns that a table lacks; return False if another commit was first.

        deltalake takes a column without bounds for one of nulls, in files that have them of others:
        so the table says of which columns every file has them.
        """
        with delta_errors(f"cannot change the Delta table {self.store.url}"):
            shape = DeltaShape.of(self.store.url, table)
            lacking = shape.check(columns, shape.partition_columns)
            if lacking:
                version = int(table.version())
                tops = {path.partition(".")[0] for path in lacking}
                added = [column for column in columns if column["name"] in tops]
                schema = self._delta.Schema.from_json(schema_json(added))
                try:
                    table.alter.add_columns(
                        list(schema.fields),
                        commit_properties=self._delta.CommitProperties(max_commit_retries=0),
                    )
                except self._delta.exceptions.CommitFailedError:
                    if self._is_newest(version):
                        raise
                    return False
                self._fsync(version + 1)
                logger.info("%s: added the columns %s", self.store.url, ", ".join(lacking))
                table = self._open()
            properties = _bounds_of(table, shape, bounded)
            return not properties or DeltaCommits(self.store).set_properties(table, properties)

    def _is_newest(self, version: int) -> bool:
        table = self._open()
        return table is None or int(table.version()) == version

    # --- publishing -------------------------------------------------------------------------------

    def append(self, entry: Entry) -> bool:
        """Commit a batch; return False if the table does not end where the batch begins."""
        is_begun = False
        for _ in range(_TRIES):
            table = self._open()
            newest = NewestEntry() if table is None else self._history.newest(table)
            if table is None or not _follows(entry, newest.entry):
                if is_begun and self._is_published(entry):
                    break
                if is_begun and not self.store.may_create_late:
                    self._pending.undo(entry)
                return False
            self._check_unchanged(table, entry)
            if not is_begun:
                self._pending.begin(entry)
                is_begun = True
            if self._commit(table, entry, newest):
                break
        else:
            if not self.store.may_create_late:
                self._pending.undo(entry)
            raise KafkaError(
                f"cannot commit batch {entry.batch_id} to the Delta table {self.store.url}",
                cause=f"other commits came first {_TRIES} times, up to version {table.version()}",
                hint="start the ingest again when less is written to the table",
            )
        if self._has_listed:
            self._pending.settle(entry, self._state)
        else:  # with Spark the process that publishes a batch is not the one that has begun
            self._pending.recover(entry, self._state)
            self._has_listed = True
        return True

    def _commit(self, table: Any, entry: Entry, newest: NewestEntry) -> bool:
        """Commit an entry on a version; return False if that is not the newest any more."""
        version = int(table.version())
        failure = f"cannot commit to the Delta table {self.store.url} at version {version + 1}"
        with delta_errors(failure):
            try:
                self._writes.write(table, entry, self._properties(entry, _moved(entry, newest)))
            except Exception as error:
                if self._is_published(entry):
                    logger.debug("%s: %s, but it was committed", failure, error)
                elif self._is_newest(version):
                    raise
                else:
                    return False
        self._committed = entry.id
        self._fsync(version + 1)
        return True

    def _properties(self, entry: Entry, offsets: Mapping[TopicPartition, int]) -> Any:
        transactions = [self._delta.Transaction(ENTRY, entry.sequence)]
        for tp, offset in sorted(offsets.items()):
            transactions.append(self._delta.Transaction(transaction_id(tp), offset))
        return self._delta.CommitProperties(
            custom_metadata={ENTRY: encode_entry(entry, with_files=False).decode()},
            # Retries would commit on any version: also on one that was restored meanwhile.
            max_commit_retries=0,
            app_transactions=transactions,
        )

    def _fsync(self, version: int) -> None:
        """Flush a commit to disk, which the package does not."""
        if not self.store.is_durable_on_write:
            path = commit_path(version)
            with contextlib.suppress(FileNotFoundError):  # another process's, of another version
                self.store.fsync(path)
                self.store.fsync_names([path])

    def _check_unchanged(self, table: Any, entry: Entry) -> None:
        """Check that the table still takes the files of an entry: it may have been changed."""
        with delta_errors(f"cannot read the Delta table {self.store.url}"):
            shape = DeltaShape.of(self.store.url, table)
        if shape == self._checked:
            return
        folders = folder_names(entry.shape)
        # An entry's columns are in DDL, which has no NOT NULL inside of types.
        lacking = shape.with_nulls_inside().check(_columns_of(entry.shape, shape), folders)
        if lacking:
            raise ConfigurationError(
                f"{self.store.url} has no column {lacking[0]} any more",
                cause="it was removed while the table was written",
                hint="start the ingest again, as the table is now",
            )
        self._checked = shape

    def recover(self, last: Entry | None) -> None:
        """Finish, or undo, what a process that was killed inside of `append` has left."""
        self._pending.recover(last, self._state)

    def claimed(self) -> set[str]:
        """The staged files that must not be swept."""
        return self._pending.claimed()

    def __repr__(self) -> str:
        return f"<DeltaLog {self.store.url}>"


def _is_same(entry: Entry | None, last: Entry | None) -> bool:
    if entry is None or last is None:
        return entry is last
    return (entry.id, entry.sequence) == (last.id, last.sequence)


def _follows(entry: Entry, last: Entry | None) -> bool:
    """Whether an entry is the next one after another, and not after one that was undone."""
    if last is None:
        return entry.sequence == 1 and entry.rows == entry.counts.rows
    moved = {batch_part.topic_partition for batch_part in entry.parts}
    return (
        entry.sequence == last.sequence + 1
        and entry.rows == last.rows + entry.counts.rows
        and entry.bytes == last.bytes + entry.counts.bytes
        and entry.ends.keys() >= last.ends.keys()
        and all(entry.ends[tp] == end for tp, end in last.ends.items() if tp not in moved)
    )


def _moved(entry: Entry, newest: NewestEntry) -> dict[TopicPartition, int]:
    """The offsets that transactions do not have yet; all of them after a RESTORE."""
    if newest.is_rolled_back:
        return {**dict.fromkeys(newest.rolled_back, GONE), **entry.ends}
    moved = {
        batch_part.topic_partition
        for batch_part in entry.parts
        if not isinstance(batch_part, PartitionGone)
    }
    return {tp: entry.ends[tp] for tp in moved}


def _columns_of(shape: TableShape, delta_shape: DeltaShape) -> list[Field]:
    """The columns of an entry's files, and those of the folders as the table has them."""
    folders = set(folder_names(shape))
    columns: list[Field] = [
        {
            "name": column.name,
            "type": json_of(column.type),
            "nullable": column.is_nullable,
            "metadata": {},
        }
        for column in field_of_ddl(shape.schema).type.fields
        if column.name not in folders
    ]
    return columns + [column for column in delta_shape.columns if column["name"] in folders]


def _bounds(bounded: list[str]) -> dict[str, str]:
    """The property that says which columns have bounds in every file."""
    return {_BOUNDED: ",".join(bounded)} if bounded else {_BOUNDED_COUNT: "0"}


def _bounds_of(table: Any, shape: DeltaShape, bounded: list[str]) -> dict[str, str]:
    """The property that a table lacks for files of these columns, {} if it has a right one."""
    present = shape.configuration.get(_BOUNDED)
    if present is not None:
        names = [name.strip().strip("`") for name in present.split(",")]
        if set(names) <= set(bounded):
            return {}
    elif shape.configuration.get(_BOUNDED_COUNT) == "0":
        return {}
    actions = table.get_add_actions(flatten=True)
    if actions.num_rows:
        bounded = [
            name
            for name in bounded
            if f"min.{name}" in actions.column_names and not actions[f"min.{name}"].null_count
        ]
    return _bounds(bounded)
