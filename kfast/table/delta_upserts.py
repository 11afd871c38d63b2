"""DeltaUpserts: how the rows of a Delta table are inserted, updated and deleted by key.

Owns how an entry is committed there: by a merge of the changes of its ranges, which the ingest has
in memory and puts here right before the entry (`put`). The commit of the merge has the entry, so a
table has the rows of a batch with its offsets, or neither. A batch that another commit has
overtaken is merged again, into the newest version.

Used by the process that publishes; one thread at a time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from kfast.errors import ConfigurationError, IllegalStateError
from kfast.table.delta_commits import commit_path
from kfast.table.delta_log import AddedFiles
from kfast.table.delta_storage import import_deltalake
from kfast.table.entries import TableShape
from kfast.table.row_changes import check_keys
from kfast.table.upserts import ChangedRows, merge_batch

if TYPE_CHECKING:
    from kfast.table.entries import Entry
    from kfast.table.projection import Projection
    from kfast.table.store import TableStore

_REFUSED: Final = {
    "delta.appendOnly": "rows cannot be updated or deleted there",
    "delta.enableDeletionVectors": "deltalake would write rows again that are deleted there",
}


class DeltaUpserts:
    """The rows of one table; see `DeltaWrites`."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._delta = import_deltalake()
        self._files = AddedFiles(store)
        self._changes: ChangedRows | None = None
        self._compression = "zstd"

    def put(self, changes: ChangedRows | None, compression: str = "zstd") -> None:
        """Take the changes of the ranges of the next entry; None for no changes."""
        self._changes, self._compression = changes, compression

    def check(
        self, table: Any, shape: TableShape, projection: Projection, last: Entry | None
    ) -> None:
        """Check that a table has these columns and keys, and takes a merge."""
        if last is None:  # rows of others may have a key twice
            check_keys(self._store.url, TableShape(schema=shape.schema), shape)
        configuration = table.metadata().configuration
        for name, reason in _REFUSED.items():
            if str(configuration.get(name)).lower() == "true":
                raise ConfigurationError(
                    f"{self._store.url} has {name}=true",
                    cause=reason,
                    hint="change the table, or write to another folder",
                )
        names = {column.name for column in projection.columns}
        for field in table.schema().fields:
            if field.name not in names:
                raise ConfigurationError(
                    f"{self._store.url} has the column {field.name}, the rows to upsert have not",
                    found=f"they have {', '.join(column.name for column in projection.columns)}",
                    hint="drop the column, or write to another folder",
                )

    def bounded(self, projection: Projection, shape: TableShape) -> list[str]:  # noqa: ARG002 - the interface's
        """The columns with bounds in every file: a merge looks for keys by them."""
        return list(shape.keys)

    def write(self, table: Any, entry: Entry, properties: Any) -> None:
        """Merge the changes of an entry into a version."""
        changes = self._changes
        if changes is None:
            if any(batch_range.changes for batch_range in entry.ranges):
                raise IllegalStateError("an entry with changes needs them")
            self._files.write(table, entry, properties)
            return
        merge_batch(
            table,
            changes.rows,
            entry.shape.keys,
            properties,
            is_truncated=changes.is_truncated,
            writer_properties=self._writer_properties(),
        )
        self._fsync_files(int(table.version()))

    def _fsync_files(self, version: int) -> None:
        """Flush the files of a commit to disk before its entry, which the package does not."""
        if self._store.is_durable_on_write:
            return
        lines = (self._store.read(commit_path(version)) or b"").splitlines()
        actions = [json.loads(line) for line in lines]
        # Names of the package's, in no folder: no character of them is encoded.
        paths = [action["add"]["path"] for action in actions if "add" in action]
        for path in paths:
            self._store.fsync(path)
        self._store.fsync_names(paths)

    def _writer_properties(self) -> Any:
        name = "UNCOMPRESSED" if self._compression == "none" else self._compression.upper()
        return self._delta.WriterProperties(compression=name)
