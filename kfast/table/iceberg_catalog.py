"""CatalogTable: an Iceberg table in its catalog, through pyiceberg.

Owns the name ``CATALOG.NAMESPACE.TABLE``, and what is raised: errors of pyiceberg, of its catalogs
and of the files that they have become `KafkaError` with the name of the table. Catalog and
credentials are pyiceberg's own, from its file or its variables. What pyiceberg would write to the
terminal, its warnings and a log without a handler, goes nowhere.

Used by the process that publishes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kfast.errors import (
    ConfigurationError,
    KafkaError,
    MissingDependencyError,
    StorageError,
    TableError,
)

_HINT: Final = "check the catalog, and its settings in ~/.pyiceberg.yaml or PYICEBERG_CATALOG__..."


def check_iceberg(format: str, table: str) -> None:
    """Check the name of an Iceberg table, and that it goes with the format.

    Raises ``ConfigurationError``.
    """
    if format != "iceberg":
        if table:
            raise ConfigurationError(
                f"iceberg-table = {table} with the format {format}", hint="--format iceberg"
            )
        return
    if len([name for name in table.split(".") if name]) < 3 or ".." in f".{table}.":
        raise ConfigurationError(
            f"iceberg-table = {table or 'none'}: not a table of a catalog",
            hint="CATALOG.NAMESPACE.TABLE; pyiceberg's own settings say what the catalog is",
        )


def load_iceberg(name: str) -> Any:
    """A table of a catalog as it is now, of pyiceberg."""
    table = CatalogTable(name).load()
    if table is None:
        raise TableError(f"there is no Iceberg table {name}", hint=_HINT)
    return table


class CatalogTable:
    """One table of a catalog, which may not exist yet."""

    def __init__(self, name: str) -> None:
        self.name = name
        catalog, _, self._identifier = name.partition(".")
        self._catalog = _open_catalog(catalog)

    def load(self) -> Any | None:
        """The table as it is now, None if there is none."""
        from pyiceberg.exceptions import (  # noqa: PLC0415 - optional
            NoSuchNamespaceError,
            NoSuchTableError,
        )

        with self.errors("read"):
            try:
                return self._catalog.load_table(self._identifier)
            except (NoSuchNamespaceError, NoSuchTableError):
                return None

    def create(self, schema: Any, spec: Any) -> Any:
        """Create the table, and its namespace, unless another process is first."""
        from pyiceberg.exceptions import TableAlreadyExistsError  # noqa: PLC0415 - optional

        with self.errors("create"):
            self._catalog.create_namespace_if_not_exists(self._identifier.rpartition(".")[0])
            try:
                return self._catalog.create_table(
                    self._identifier, schema=schema, partition_spec=spec
                )
            except TableAlreadyExistsError:
                return self._catalog.load_table(self._identifier)

    @contextmanager
    def errors(self, verb: str) -> Iterator[None]:
        """Raise errors of pyiceberg as `KafkaError`, but for those of a commit that is overtaken.

        ``verb`` says what could not be done with the table.
        """
        from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415 - optional

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
            except (KafkaError, CommitFailedException):
                raise
            except OSError as error:
                if error.errno is None:  # an HTTP client's
                    raise self._error(verb, error) from error
                raise StorageError(
                    f"cannot {verb} the Iceberg table {self.name}",
                    cause=str(error),
                    hint="check the folder of its metadata and its disk, then start again",
                ) from error
            except Exception as error:  # its class depends on the kind of catalog
                raise self._error(verb, error) from error

    def _error(self, verb: str, error: Exception) -> KafkaError:
        return KafkaError(
            f"cannot {verb} the Iceberg table {self.name}",
            cause=f"{type(error).__name__}: {error}",
            hint=_HINT,
        )

    def __repr__(self) -> str:
        return f"<CatalogTable {self.name}>"


def _open_catalog(name: str) -> Any:
    try:
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError(
            "--format iceberg needs pyiceberg", hint='pip install "kfast[iceberg]"'
        ) from error
    import logging  # noqa: PLC0415 - pyiceberg has imported it

    # Without a handler its warnings would go to stderr; those of the program still get them.
    chatter = logging.getLogger("pyiceberg")
    if not chatter.handlers:
        chatter.addHandler(logging.NullHandler())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return load_catalog(name)
    except Exception as error:  # its class depends on the kind of catalog
        raise ConfigurationError(
            f"cannot open the catalog {name}", cause=str(error), hint=_HINT
        ) from error
