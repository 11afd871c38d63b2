"""Placeholder until the log of Iceberg tables is merged."""

from __future__ import annotations

from typing import Any

from kfast.errors import ConfigurationError, MissingDependencyError


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


class IcebergLog:
    """To be replaced."""

    def __init__(self, *arguments: Any) -> None:
        raise NotImplementedError
