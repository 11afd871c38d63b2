"""DeltaRegister: commits the published files of each batch to a Delta table.

Owns the Delta log of a table, through the ``deltalake`` package, which needs no jar. Workers write
the same Parquet files, and `TableLog` decides what is published; a published batch is then added to
the Delta log in one commit, with the number of its entry as the version of an application
transaction (``txn``). That version identifies a batch that was added before, so adding it twice has
no effect, and readers of the Delta table see a batch as a whole or not at all.

Credentials for object stores are deltalake's own (environment variables, instance profiles); those
given to kfast are used for kfast's files.

Used by the process that publishes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from kfast._optional import optional_package
from kfast.errors import MissingDependencyError
from kfast.table.arrow_types import arrow_schema, arrow_type
from kfast.table.file_formats import bounded_columns
from kfast.table.file_names import parts_of
from kfast.table.folders import check_folders, folder_columns
from kfast.table.manifest import DataFile, Entry, TableShape
from kfast.table.projection import Projection
from kfast.table.register_tries import add_once
from kfast.table.store import TableStore

if TYPE_CHECKING:
    import pyarrow as pa

_BOUNDED: Final = "delta.dataSkippingStatsColumns"


def import_deltalake() -> Any:
    """Return the package, with its module of transactions."""
    try:
        import deltalake  # noqa: PLC0415 - optional
        import deltalake.transaction  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError(
            "--format delta needs deltalake", hint='pip install "kfast[delta]"'
        ) from error
    return deltalake


class DeltaRegister:
    """Adds files to a Delta table."""

    def __init__(self, store: TableStore, shape: TableShape) -> None:
        self._store = store
        self._shape = shape
        self._delta = import_deltalake()

    def create(self, projection: Projection) -> None:
        """Create the Delta table with the columns of the files, or add those that it does not have.

        Whether columns may be added is checked before (`schema_changes`).
        """
        schema = delta_schema(projection, self._shape.partition_by)
        bounded = bounded_columns(projection, self._folders or ())
        self._delta.DeltaTable.create(
            self._store.url,
            schema=schema,
            partition_by=self._folders,
            mode="ignore",
            configuration={_BOUNDED: ",".join(bounded)} if bounded else None,
        )
        wanted = json.loads(self._delta.Schema.from_arrow(schema).to_json())
        if _lacks(json.loads(self._table().schema().to_json()), wanted):
            # Without rows: a commit of the columns only.
            self._delta.write_deltalake(
                self._store.url, schema.empty_table(), mode="append", schema_mode="merge"
            )

    @property
    def _folders(self) -> list[str] | None:
        return [column.name for column in folder_columns(self._shape.partition_by)] or None

    def add(self, entry: Entry) -> None:
        """Add a batch's files, unless it was added before."""
        add_once(
            entry,
            self._add,
            self._delta.exceptions.CommitFailedError,
            f"the Delta table {self._store.url}",
        )

    def has(self, entry: Entry) -> bool:
        """Return whether a batch was added: the table's own ``txn`` has its number."""
        return _has(self._table(), entry)

    def _table(self) -> Any:
        return self._delta.DeltaTable(self._store.url)

    def _add(self, entry: Entry) -> None:
        table = self._table()
        if not _has(table, entry):
            self._commit(table, entry)

    def _commit(self, table: Any, entry: Entry) -> None:
        transaction = self._delta.Transaction(entry.writer.id, entry.sequence)
        table.create_write_transaction(
            [self._action(file) for file in entry.written],
            mode="append",
            schema=table.schema(),
            partition_by=self._folders,
            commit_properties=self._delta.CommitProperties(app_transactions=[transaction]),
        )

    def _action(self, file: DataFile) -> Any:
        found = self._store.stat(file.path)
        return self._delta.transaction.AddAction(
            file.path,
            file.bytes,
            parts_of(file.path),
            found.modified_ms if found is not None else 0,
            True,
            file.stats or json.dumps({"numRecords": file.rows}),
        )

    def __repr__(self) -> str:
        return f"<DeltaRegister {self._store.url}>"


def _has(table: Any, entry: Entry) -> bool:
    version = table.transaction_version(entry.writer.id)
    return version is not None and version >= entry.sequence


def _lacks(found: Any, wanted: Any) -> bool:
    """Return whether a struct of Delta's has not all members of another, at any depth."""
    if not isinstance(wanted, dict) or wanted.get("type") != "struct":
        return False
    types = {field["name"]: field["type"] for field in found["fields"]}
    return any(
        each["name"] not in types or _lacks(types[each["name"]], each["type"])
        for each in wanted["fields"]
    )


def delta_schema(projection: Projection, partition_by: tuple[str, ...]) -> pa.Schema:
    """Return the columns of a table: those of its files and those of its partition folders."""
    schema = arrow_schema(projection)
    pyarrow = optional_package("pyarrow", "a table of files")
    for name, kind in check_folders(partition_by, projection).items():
        schema = schema.append(pyarrow.field(name, arrow_type(kind)))
    return schema
