"""Iceberg tables without Kafka: a catalog in a file, runs that write batches, what readers see."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.utils.config import Config

from kfast.table.arrow_types import arrow_schema
from kfast.table.batches import DataFile, ReadRange
from kfast.table.entries import KFAST_INGEST, Entry, TableShape, Writer
from kfast.table.file_formats import with_field_ids
from kfast.table.iceberg_catalog import load_iceberg
from kfast.table.iceberg_log import IcebergLog
from kfast.table.iceberg_partitions import IcebergPartitions
from kfast.table.projection import OutputColumn, Projection, output_column
from kfast.table.publish import Publisher
from kfast.table.store import LocalStore, TableStore
from kfast.table.table_log import STAGING

NAME = "test.lake.orders"
COLUMNS = Projection(tuple(output_column(name) for name in ("topic", "partition", "offset")))

Row = dict[str, Any]


def catalog(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name a catalog in a file as its users do."""
    (folder / "warehouse").mkdir()
    settings(
        monkeypatch,
        TYPE="sql",
        URI=f"sqlite:///{folder}/catalog.db",
        WAREHOUSE=f"file://{folder}/warehouse",
    )


def settings(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """Set variables of the catalog ``test``."""
    for name, value in values.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__TEST__{name}", value)
    # Its variables are read when it is imported.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


def with_columns(*columns: OutputColumn) -> Projection:
    """The columns of `COLUMNS` and some more."""
    return Projection((*COLUMNS.columns, *columns))


class Run:
    """A run of ``kfast ingest``, or a query of Spark, that writes one table."""

    def __init__(
        self,
        store: TableStore,
        projection: Projection = COLUMNS,
        *,
        partition_by: tuple[str, ...] = (),
        checkpoint: str = KFAST_INGEST,
        open_folder: Callable[[str], TableStore] | None = None,
    ) -> None:
        self.store = store
        self.projection = projection
        self.log = IcebergLog(store, NAME, open_folder or (lambda url: LocalStore(Path(url))))
        self.publisher = Publisher(self.log, open_folder or (lambda url: LocalStore(Path(url))))
        shape = TableShape("iceberg", projection.ddl, partition_by, NAME)
        last = self.log.last()
        self.log.check(shape, projection, last)
        self.log.recover(last)
        begin = 0 if last is None else last.sequence + 1
        self.writer = Writer(uuid.uuid4().hex[:8], checkpoint, begin)
        opened = self.log.begin(self.writer, shape, projection, last)
        assert opened is not None
        self.opened = opened
        self.last: Entry = opened.last
        self._partitions = IcebergPartitions(opened.partition_fields, projection)
        schema = arrow_schema(projection)
        self._schema = pa.schema(
            [with_field_ids(column, column.name, opened.field_ids) for column in schema]
        )

    def stage(
        self,
        count: int = 2,
        partitions: Iterable[int] = (0, 1),
        fill: Callable[[int, int], Row] | None = None,
        letters: str = "",
    ) -> list[ReadRange]:
        """Write the next records of some partitions of topic ``t`` as tasks do."""
        ranges = []
        ends = {tp.partition: end for tp, end in self.last.ends.items()}
        for number in partitions:
            first = ends.get(number, 0)
            rows = [
                {
                    "topic": "t",
                    "partition": number,
                    "offset": at,
                    **(fill(number, at) if fill else {}),
                }
                for at in range(first, first + count)
            ]
            files = self._files(rows, number, first, first + count)
            if letters:
                files.append(self._letter(letters, number, first))
            ranges.append(ReadRange("t", number, first, first + count, tuple(files)))
        return ranges

    def _files(self, rows: Sequence[Row], number: int, first: int, end: int) -> list[DataFile]:
        arrays = [pa.array([row.get(c.name) for row in rows], c.type) for c in self._schema]
        plain = pa.schema([pa.field(c.name, c.type) for c in self._schema])
        batch = pa.RecordBatch.from_arrays(arrays, schema=plain)
        files = []
        for values, part in self._partitions.divide(batch):
            name = uuid.uuid4().hex
            staged = f"{STAGING}/{self.writer.id}/{name}"
            with self.store.open_output(staged) as output:
                table = pa.Table.from_batches([part]).cast(self._schema)
                pq.write_table(table, output, store_schema=False)
            stored = self.store.stat(staged)
            assert stored is not None
            path = f"t-{number}-{first}-{end}-{name}.parquet"
            files.append(
                DataFile(staged, path, part.num_rows, stored.bytes, partition_values=values)
            )
        return files

    def _letter(self, folder: str, number: int, first: int) -> DataFile:
        staged = f"{STAGING}/{self.writer.id}/{uuid.uuid4().hex}"
        assert LocalStore(Path(folder)).create(staged, b"letter")
        return DataFile(staged, f"{number}-{first}.letter", 1, 6, folder=folder)

    def publish(self, parts: Sequence[ReadRange] | None = None, **staged: Any) -> Entry:
        """Publish the next batch."""
        parts = self.stage(**staged) if parts is None else parts
        number = -1 if self.last.batch_id is None or self.last.writer != self.writer else (
            self.last.batch_id)  # fmt: skip
        previous = self.last if self.writer.is_run else None
        self.last = self.publisher.publish(self.writer, number + 1, parts, previous=previous)
        return self.last


def rows() -> Counter[tuple[int, int]]:
    """Partition and offset of every row, as pyiceberg reads the table."""
    table = load_iceberg(NAME).scan(selected_fields=("partition", "offset")).to_arrow()
    return Counter(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def records(ends: Mapping[int, int] | int) -> Counter[tuple[int, int]]:
    """What is there if each partition ends at an offset, by partition or of 0 and 1."""
    if isinstance(ends, int):
        ends = {0: ends, 1: ends}
    return Counter((number, at) for number, end in ends.items() for at in range(end))


def files_of(store: TableStore) -> set[str]:
    """The files in the folder of a table, hidden ones too."""
    return {file.path for file in store.files("")}
