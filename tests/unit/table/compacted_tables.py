"""Tables of files, and their compaction."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kfast.table.batches import DataFile, ReadRange
from kfast.table.compaction.compacting import Compactor
from kfast.table.compaction.files import paths_of
from kfast.table.compaction.merging import Merger
from kfast.table.entries import TableShape
from kfast.table.manifest_log import ManifestLog
from kfast.table.publish import Publisher
from kfast.table.store import TableStore
from kfast.table.table_log import STAGING, OpenTable, is_hidden
from tests.unit.table.tables import table

LARGE = 1 << 30
HOUR_MS = 3_600_000
SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
Place = tuple[int, int]


class SmallFiles:
    """A table of an ingest with two folders, and batches for it."""

    def __init__(self, store: TableStore, shape: TableShape | None = None) -> None:
        self.store = store
        self.places: Counter[Place] = Counter()
        self._ends = [0, 0]
        self._batches = 0
        self.table: OpenTable = table(store, shape=shape or TableShape())

    def stage(self, *, partitions: Iterable[int] = (0, 1), rows: int = 2) -> list[ReadRange]:
        """Write the files of a batch as tasks do."""
        return [self._range(number, rows) for number in partitions]

    def _range(self, number: int, rows: int) -> ReadRange:
        start, end = self._ends[number], self._ends[number] + rows
        self._ends[number] = end
        places = [(number, offset) for offset in range(start, end)]
        self.places.update(places)
        columns = [["t"] * rows, [number] * rows, list(range(start, end))]
        output = io.BytesIO()
        pq.write_table(pa.table(columns, schema=SCHEMA), output, store_schema=False)
        name = f"t-{number}-{start}-{end}"
        staged = f"{STAGING}/w/{name}.x"
        assert self.store.create(staged, output.getvalue())
        path = f"date=2026-01-0{number + 1}/{name}.parquet"
        size = len(output.getvalue())
        return ReadRange("t", number, start, end, (DataFile(staged, path, rows, size),))

    def publish(self, store: TableStore | None = None, **more: Any) -> None:
        """Publish a batch."""
        files = self.stage(**more)
        Publisher(ManifestLog(store or self.store)).publish(self.table.writer, self._batches, files)
        self._batches += 1


def made(store: TableStore, batches: int = 3) -> SmallFiles:
    table = SmallFiles(store)
    for _ in range(batches):
        table.publish()
    return table


def compactor(store: TableStore, retention_ms: int = 0, target: int = LARGE) -> Compactor:
    return Compactor(store, Merger(store, ".parquet", "zstd"), target, retention_ms)


def visible(store: TableStore) -> list[str]:
    return [file.path for file in store.files("") if not is_hidden(file.path)]


def places_in(data: Any) -> list[Place]:
    columns = (data.column(name).to_pylist() for name in ("partition", "offset"))
    return [*zip(*columns, strict=True)]


def places(store: TableStore, paths: Iterable[str]) -> Counter[Place]:
    found: Counter[Place] = Counter()
    for path in paths:
        data = pq.read_table(io.BytesIO(store.read(path) or b""))
        found.update(
            zip(*(data.column(name).to_pylist() for name in SCHEMA.names[1:]), strict=True)
        )
    return found


def check(table: SmallFiles) -> None:
    """Check what both kinds of readers see when nothing is under way."""
    assert places(table.store, paths_of(table.store)) == table.places
    assert places(table.store, visible(table.store)) == table.places
