"""Delta tables without Kafka: ingests whose tasks write Parquet files, and what readers see."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kfast.table.batches import BatchPart, DataFile, ReadRange
from kfast.table.delta_log import DeltaLog
from kfast.table.entries import KFAST_INGEST, Entry, TableShape, Writer
from kfast.table.file_names import final_path
from kfast.table.offset_ranges import OffsetRange
from kfast.table.projection import OutputColumn, Projection
from kfast.table.publish import Publisher
from kfast.table.store import TableStore
from kfast.table.table_log import STAGING, OpenTable, is_hidden

PROJECTION = Projection(
    (OutputColumn("partition", "partition", "integer"), OutputColumn("offset", "offset", "long"))
)
SHAPE = TableShape("delta", PROJECTION.ddl)
FOREIGN = pa.table({"partition": pa.array([9], pa.int32()), "offset": pa.array([99], pa.int64())})
"""A row of another client."""
_COMMIT = re.compile(r"_delta_log/\d{20}\.json")
Range = tuple[int, int, int]
"""Partition, first offset, end."""
FIRST: tuple[Range, ...] = ((0, 0, 5), (1, 0, 3))
SECOND: tuple[Range, ...] = ((0, 5, 9), (1, 3, 4), (2, 0, 2))


class Ingest:
    """A run of ``kfast ingest``, or with ``checkpoint`` a query of Spark, that writes a table."""

    def __init__(
        self,
        store: TableStore,
        *,
        checkpoint: str = "",
        shape: TableShape = SHAPE,
        projection: Projection = PROJECTION,
        log: DeltaLog | None = None,
        letters: str = "",
    ) -> None:
        self.store = store
        self.log = log or DeltaLog(store)
        self.publisher = Publisher(self.log)
        self._shape = shape
        self._projection = projection
        self._letters = letters
        self._checkpoint = checkpoint
        self.table = self._open()
        self.entry = self.table.last
        self._batch_id = self._next_batch()

    def _open(self) -> OpenTable:
        last = self.log.last()
        self.log.check(self._shape, self._projection, last)
        self.log.recover(last)
        begin = 0 if last is None else last.sequence + 1
        writer = Writer(
            self._checkpoint or uuid.uuid4().hex, self._checkpoint or KFAST_INGEST, begin
        )
        if last is not None and last.writer.id == writer.id:
            writer = last.writer
        table = self.log.begin(writer, self._shape, self._projection, last)
        assert table is not None
        return table

    def _next_batch(self) -> int:
        is_own = self.entry.writer.id == self.table.writer.id
        batch_id = self.entry.batch_id
        return batch_id + 1 if is_own and batch_id is not None else 0

    def parts(self, *ranges: Range, topic: str = "t") -> list[BatchPart]:
        """Write what the tasks of a batch would."""
        return [self._read(OffsetRange(topic, *offsets)) for offsets in ranges]

    def _read(self, offsets: OffsetRange) -> ReadRange:
        numbers = range(offsets.from_offset, offsets.until_offset)
        columns: dict[str, Any] = {
            "partition": pa.array([offsets.partition] * len(numbers), pa.int32()),
            "offset": pa.array(numbers, pa.int64()),
        }
        folders = tuple(
            (name, {"topic": offsets.topic, "partition": str(offsets.partition)}[name])
            for name in self._shape.partition_by
        )
        sources = {column.source: column.name for column in self._projection.columns}
        data = pa.table(
            {name: columns[source] for source, name in sources.items() if source in columns}
        )
        name = uuid.uuid4().hex
        staged = f"{STAGING}/{self.table.writer.id}/{name}"
        with self.store.open_output(staged) as output:
            pq.write_table(data, output)
        stored = self.store.stat(staged)
        assert stored is not None
        path = final_path(offsets, folders).replace(".parquet", f"-{name}.parquet")
        stats = {
            "numRecords": len(numbers),
            "minValues": {"partition": offsets.partition, "offset": offsets.from_offset},
            "maxValues": {"partition": offsets.partition, "offset": offsets.until_offset - 1},
            "nullCount": {"partition": 0, "offset": 0},
        }
        files = [DataFile(staged, path, len(numbers), stored.bytes, stats=json.dumps(stats))]
        if self._letters:
            from kfast.table.fsspec_store import open_store  # noqa: PLC0415

            letters = open_store(self._letters)
            letter = f"{STAGING}/{self.table.writer.id}/{uuid.uuid4().hex}"
            assert letters.create(letter, b"letter")
            files.append(DataFile(letter, f"{name}.txt", 1, 6, folder=letters.url))
        return ReadRange(
            offsets.topic,
            offsets.partition,
            offsets.from_offset,
            offsets.until_offset,
            tuple(files),
        )

    def publish(self, *ranges: Range, topic: str = "t") -> Entry:
        """Publish a batch."""
        parts = self.parts(*ranges, topic=topic)
        self.entry = self.publisher.publish(
            self.table.writer, self._batch_id, parts, {topic: "id"}, self._shape, self.entry
        )
        self._batch_id += 1
        return self.entry


def seen(store: TableStore, version: int | None = None) -> list[tuple[int, int]]:
    """Partition and offset of each row that the readers of a table see, all the same, sorted."""
    import polars  # noqa: PLC0415 - slow to import
    from deltalake import DeltaTable  # noqa: PLC0415 - optional

    table = DeltaTable(store.url, version=version)
    arrow = table.to_pyarrow_table(columns=["partition", "offset"])
    rows = sorted(zip(*(column.to_pylist() for column in arrow.columns), strict=True))
    frame = polars.scan_delta(store.url, version=version).select("partition", "offset").collect()
    assert sorted(frame.rows()) == rows
    return rows


def rows(*ranges: Range) -> list[tuple[int, int]]:
    """What should be seen."""
    return sorted((number, at) for number, start, end in ranges for at in range(start, end))


def files(store: TableStore) -> list[str]:
    """The files that readers of Parquet would take for the table's."""
    return [file.path for file in store.files("") if not is_hidden(file.path)]


def live_files(store: TableStore) -> list[str]:
    """The files that the newest version has."""
    from deltalake import DeltaTable  # noqa: PLC0415 - optional

    uris = DeltaTable(store.url).file_uris()
    return sorted(uri.removeprefix("file://").removeprefix(f"{store.url}/") for uri in uris)


def pending(store: TableStore) -> list[str]:
    """What is left in the staging folder."""
    return [file.path for file in store.files(STAGING)]


def commits(store: TableStore) -> list[Mapping[str, Any]]:
    """What each commit of the log says of itself, by its key."""
    paths = [file.path for file in store.files("_delta_log") if _COMMIT.fullmatch(file.path)]
    return [_actions((store.read(path) or b"").decode()) for path in paths]


def _actions(text: str) -> dict[str, Any]:
    actions: dict[str, Any] = {"add": [], "txn": {}}
    for line in text.splitlines():
        for kind, action in json.loads(line).items():
            if kind == "add":
                actions["add"].append(action["path"])
            elif kind == "txn":
                actions["txn"][action["appId"]] = action["version"]
            else:
                actions[kind] = action
    return actions


def delta(store: TableStore) -> Any:
    """The newest version of a table."""
    from deltalake import DeltaTable  # noqa: PLC0415 - optional

    return DeltaTable(store.url)


def by_other(store: TableStore, action: str) -> None:
    """Commit what another client may at any time."""
    from deltalake import write_deltalake  # noqa: PLC0415 - optional

    table = delta(store)
    if action == "append":
        write_deltalake(table, FOREIGN, mode="append")
    elif action == "optimize":
        table.optimize.compact()
        write_deltalake(table, FOREIGN.slice(0, 0), mode="append")
    elif action == "vacuum":
        table.optimize.compact()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    elif action == "delete":
        table.delete("partition = 1")
        write_deltalake(table, FOREIGN.slice(0, 0), mode="append")
    else:
        table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 9 days"})


def hand_made(
    folder: Path,
    *,
    fields: Sequence[Mapping[str, Any]] | None = None,
    partition_columns: tuple[str, ...] = (),
    configuration: Mapping[str, str] | None = None,
    protocol: Mapping[str, Any] | None = None,
) -> None:
    """Write the log of a table that deltalake cannot create."""
    columns = fields or [column("partition", "integer"), column("offset", "long")]
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": list(partition_columns),
        "configuration": dict(configuration or {}),
        "createdTime": 1,
    }
    actions = [
        {"protocol": protocol or {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
    ]
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def column(
    name: str, kind: Any, metadata: Mapping[str, str] | None = None, *, nullable: bool = True
) -> dict[str, Any]:
    """A column in the JSON form of Delta."""
    return {"name": name, "type": kind, "nullable": nullable, "metadata": dict(metadata or {})}
