"""Opens the log of a table: which class it is of depends on the table's format.

Owns the choice. Each log imports the package that it needs, so only that of the format is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.table.fsspec_store import open_store

if TYPE_CHECKING:
    from kfast.table.delta_upserts import DeltaUpserts
    from kfast.table.entries import TableShape
    from kfast.table.store import TableStore
    from kfast.table.table_log import OpenFolder, TableLog


def open_log(
    store: TableStore,
    shape: TableShape,
    open_folder: OpenFolder = open_store,
    upserts: DeltaUpserts | None = None,
) -> TableLog:
    """The log of a table; ``open_folder`` opens the folder of its dead letters.

    ``upserts`` changes the rows of a table with keys; without it nothing is published there.
    """
    if shape.format == "delta":
        if shape.keys and upserts is None:
            from kfast.table.delta_upserts import DeltaUpserts  # noqa: PLC0415 - needs deltalake

            upserts = DeltaUpserts(store)
        from kfast.table.delta_log import DeltaLog  # noqa: PLC0415 - needs deltalake

        return DeltaLog(store, open_folder, upserts)
    if shape.format == "iceberg":
        from kfast.table.iceberg_log import IcebergLog  # noqa: PLC0415 - needs pyiceberg

        return IcebergLog(store, shape.catalog_table, open_folder)
    from kfast.table.manifest_log import ManifestLog  # noqa: PLC0415 - the others do without

    return ManifestLog(store, open_folder)
