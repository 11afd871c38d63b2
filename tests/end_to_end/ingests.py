"""Ingests under test: a fake cluster, a table in a folder, and what readers of it see."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds

import kfast
from kfast.protocol.messages.fetch import FetchRequest
from kfast.table.entries import Entry, TableShape
from kfast.table.log_formats import open_log
from kfast.table.manifest_log import LOG
from kfast.table.store import LocalStore
from kfast.table.table_log import STAGING
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster

START_MS: Final = 1_767_225_600_000  # 2026-01-01

Row = tuple[str, int, int, bytes | None, bytes | None]
"""Topic, partition, offset, key, value."""


class Truth:
    """A fake cluster, with every record that was written to it."""

    def __init__(self, topic: str = "t", partitions: int = 2) -> None:
        self.cluster = FakeCluster()
        self.topic = topic
        self.rows: list[Row] = []
        self.cluster.create_topic(topic, partitions)

    def write(self, partition: int, count: int, topic: str = "", *, batch_records: int = 7) -> None:
        """Append records, a minute apart; each third key, and each fifth value, is null."""
        topic = topic or self.topic
        first = self.cluster.log(topic, partition).high_watermark
        offsets = range(first, first + count)
        records = [
            Record(
                None if at % 3 == 2 else b"key %d" % at,
                None if at % 5 == 4 else b"%s-%d value %d" % (topic.encode(), partition, at),
                timestamp=START_MS + 60_000 * at,
            )
            for at in offsets
        ]
        self.cluster.append(topic, partition, records, batch_records=batch_records)
        self.rows += [
            (topic, partition, at, record.key, record.value)
            for at, record in zip(offsets, records, strict=True)
        ]


class Table:
    """A table in a local folder, written by ingests of a cluster at ``servers``."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.folder = folder
        self.servers = servers

    def ingest(self, *topics: str, **more: Any) -> kfast.IngestSummary:
        """Run an ingest to its end."""
        more = {"to": str(self.folder), "bootstrap_servers": self.servers, **more}
        return kfast.ingest(topics or ("t",), **more)

    def command(self, *words: str, topics: tuple[str, ...] = ("t",)) -> list[str]:
        """Return the same as arguments of the command line."""
        return ["ingest", *topics, "--to", str(self.folder), "-b", self.servers, *words]

    def rows(self, format: str = "parquet") -> list[Row]:
        """Return what a reader sees, sorted."""
        columns = ["topic", "partition", "offset", "key", "value"]
        table = ds.dataset(self.folder, format=format, partitioning="hive").to_table(columns)
        return sorted(
            zip(*(table.column(name).to_pylist() for name in columns), strict=True),
            key=lambda row: row[:3],
        )

    def listed_rows(self) -> list[Row]:
        """Return what a reader of the files sees that `kfast.table_files` names, sorted."""
        columns = ["topic", "partition", "offset", "key", "value"]
        table = ds.dataset(kfast.table_files(str(self.folder))).to_table(columns)
        return sorted(
            zip(*(table.column(name).to_pylist() for name in columns), strict=True),
            key=lambda row: row[:3],
        )

    def names(self, ending: str = "parquet") -> list[str]:
        """Return the files that readers see."""
        found = self.folder.rglob(f"*.{ending}")
        return sorted(path.relative_to(self.folder).as_posix() for path in found)

    @property
    def store(self) -> LocalStore:
        """The folder."""
        return LocalStore(self.folder)

    @property
    def last(self) -> Entry:
        """The newest entry of the log."""
        is_delta = (self.folder / "_delta_log").exists()
        last = open_log(self.store, TableShape("delta" if is_delta else "parquet")).last()
        assert last is not None
        return last

    def entries(self) -> int:
        """Return how many entries the log has."""
        return len(self.store.files(LOG))

    def staged(self) -> list[Path]:
        """Return what is below the staging folder, empty folders included."""
        return [*(self.folder / STAGING).rglob("*")]

    def check(self, truth: Truth, format: str = "parquet") -> None:
        """Check that a reader sees each record once, and that nothing else is left."""
        found = self.rows(format)
        assert Counter(row[:3] for row in found) == Counter(row[:3] for row in truth.rows)
        assert found == sorted(truth.rows, key=lambda row: row[:3])
        assert self.staged() == []
        assert self.last.rows == len(truth.rows)


def fetched_offsets(cluster: FakeCluster) -> dict[int, list[int]]:
    """Return the offsets that fetches began at, by partition."""
    found: dict[int, list[int]] = {}
    for request in cluster.requests.messages(FetchRequest):
        for topic in request.topics:
            for part in topic.partitions:
                found.setdefault(part.partition, []).append(part.fetch_offset)
    return found
