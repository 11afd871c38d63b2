"""IcebergRegister: commits the published files of each batch to an Iceberg table.

Owns the table in a catalog, through the ``pyiceberg`` package, which needs no JVM. Workers write
the same Parquet files to kfast's folder; a published batch is added by ``add_files``, in one commit
with a property of the table that has the number of the newest entry (``kfast.writer.ID``), so that
adding it twice has no effect. The snapshot's summary has the same number and the offsets of the
batch (``kfast.batch``, ``kfast.offsets``), for people: snapshots expire, the property stays.

pyiceberg tries a commit again that another one has overtaken, without looking what that one was: of
two processes that finish the same batch both would add it. So its retries are off for these commits
(``commit.retry.num-retries`` of the loaded table, not of the stored one), and each try here begins
with the property.

Catalog and credentials are pyiceberg's own, from its file or its variables. Folders are not
possible: columns that are in the names of folders and not in files would be null in Iceberg.

Used by the process that publishes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from kfast._optional import optional_package
from kfast.errors import ConfigurationError, MissingDependencyError
from kfast.table.arrow_types import arrow_schema, is_wider
from kfast.table.location import is_local
from kfast.table.manifest import Entry, TableShape
from kfast.table.offsets_json import to_json_dict
from kfast.table.projection import Projection
from kfast.table.register_tries import add_once
from kfast.table.store import TableStore

if TYPE_CHECKING:
    import pyarrow as pa

_WRITER: Final = "kfast.writer."
_RETRIES: Final = "commit.retry.num-retries"
_METRICS: Final = "write.metadata.metrics.default"


def check_iceberg(format: str, table: str, partition_by: tuple[str, ...]) -> None:
    """Check the name of an Iceberg table, and that it goes with the other options.

    Raises ``ConfigurationError``.
    """
    if format != "iceberg":
        if table:
            raise ConfigurationError(
                f"iceberg-table = {table} with the format {format}", hint="--format iceberg"
            )
        return
    if len([part for part in table.split(".") if part]) < 3:
        raise ConfigurationError(
            f"iceberg-table = {table or 'none'}: not a table of a catalog",
            hint="CATALOG.NAMESPACE.TABLE; pyiceberg's own settings say what the catalog is",
        )
    if partition_by:
        raise ConfigurationError(
            f"format iceberg with partition_by = {','.join(partition_by)}",
            cause="columns in the names of folders would be null: Iceberg reads them from files",
            hint="leave partition_by out; Iceberg finds files by their statistics",
        )


def load_iceberg(name: str) -> Any:
    """Return a table of a catalog, as it is now."""
    catalog, identifier = _catalog(name)
    return catalog.load_table(identifier)


def _catalog(name: str) -> tuple[Any, str]:
    try:
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError(
            "--format iceberg needs pyiceberg", hint='pip install "kfast[iceberg]"'
        ) from error
    catalog, _, identifier = name.partition(".")
    try:
        return load_catalog(catalog), identifier
    except Exception as error:  # its class depends on the kind of catalog
        raise ConfigurationError(
            f"cannot open the catalog {catalog}",
            cause=str(error),
            hint="~/.pyiceberg.yaml or PYICEBERG_CATALOG__... has where and what it is",
        ) from error


class IcebergRegister:
    """Adds files to an Iceberg table."""

    def __init__(self, store: TableStore, shape: TableShape) -> None:
        self._store = store
        self._name = shape.catalog_table
        self._catalog, self._identifier = _catalog(self._name)

    def create(self, projection: Projection) -> None:
        """Create the table with the columns of the files, or add those that it does not have.

        Whether columns may be added is checked before (`schema_changes`).
        """
        schema = arrow_schema(projection)
        self._catalog.create_namespace_if_not_exists(self._identifier.rpartition(".")[0])
        table = self._catalog.create_table_if_not_exists(self._identifier, schema=schema)
        if table.spec().fields:
            raise ConfigurationError(
                f"the Iceberg table {self._name} is partitioned",
                cause="a file of an ingest may be of several partitions",
                hint="write to a table of its own",
            )
        if _lacks(table.schema().as_arrow(), schema):
            with table.update_schema() as update:
                update.union_by_name(schema)

    def add(self, entry: Entry) -> None:
        """Add a batch's files, unless it was added before."""
        from pyiceberg.exceptions import (  # noqa: PLC0415 - optional
            CommitFailedException,
            CommitStateUnknownException,
        )

        add_once(
            entry,
            self._add,
            (CommitFailedException, CommitStateUnknownException),
            f"the Iceberg table {self._name}",
        )

    def has(self, entry: Entry) -> bool:
        """Return whether a batch was added: the table's property has its number."""
        return _has(self._table(), entry)

    def _table(self) -> Any:
        return self._catalog.load_table(self._identifier)

    def _add(self, entry: Entry) -> None:
        table = self._table()
        if not _has(table, entry):
            self._commit(table, entry)

    def _commit(self, table: Any, entry: Entry) -> None:
        try:
            self._add_files(table, entry)
        except OverflowError:
            # A time that Python does not have: the files of this batch get no bounds.
            table = self._table()
            table.metadata.properties[_METRICS] = "counts"
            self._add_files(table, entry)

    def _add_files(self, table: Any, entry: Entry) -> None:
        table.metadata.properties[_RETRIES] = "0"
        ends = {file.topic_partition: file.until_offset for file in entry.files if not file.folder}
        summary = {
            "kfast.writer": entry.writer.id,
            "kfast.batch": str(entry.sequence),
            "kfast.offsets": json.dumps(to_json_dict(ends)),
        }
        scheme = "file://" if is_local(self._store.url) else ""
        with table.transaction() as transaction:
            transaction.set_properties({_WRITER + entry.writer.id: str(entry.sequence)})
            transaction.add_files(
                [f"{scheme}{self._store.url}/{file.path}" for file in entry.written],
                snapshot_properties=summary,
                check_duplicate_files=False,  # the property is enough; this reads all manifests
            )

    def __repr__(self) -> str:
        return f"<IcebergRegister {self._name}>"


def _has(table: Any, entry: Entry) -> bool:
    return int(table.properties.get(_WRITER + entry.writer.id, -1)) >= entry.sequence


def _lacks(found: pa.Schema | pa.DataType, wanted: pa.Schema | pa.DataType) -> bool:
    """Return whether a table or struct has not all columns of another, or narrower ones."""
    types = optional_package("pyarrow", "a table of files").types
    known = {field.name: field.type for field in found}
    return any(
        field.name not in known
        or is_wider(known[field.name], field.type)
        or (
            types.is_struct(field.type)
            and types.is_struct(known[field.name])
            and _lacks(known[field.name], field.type)
        )
        for field in wanted
    )
