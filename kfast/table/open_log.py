"""`open_log`: the choice of the log for a format of tables."""

from __future__ import annotations

from kfast.table.entries import TableShape
from kfast.table.fsspec_store import open_store
from kfast.table.store import TableStore
from kfast.table.table_log import OpenFolder, TableLog


def open_log(
    store: TableStore, shape: TableShape, open_folder: OpenFolder = open_store
) -> TableLog:
    """The log of a table; ``open_folder`` opens the folder of its dead letters."""
    if shape.format == "delta":
        from kfast.table.delta_log import DeltaLog  # noqa: PLC0415 - needs deltalake

        return DeltaLog(store, open_folder)
    if shape.format == "iceberg":
        from kfast.table.iceberg_log import IcebergLog  # noqa: PLC0415 - needs pyiceberg

        return IcebergLog(store, shape.catalog_table, open_folder)
    from kfast.table.manifest_log import ManifestLog  # noqa: PLC0415 - the others do without

    return ManifestLog(store, open_folder)
