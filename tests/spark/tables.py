"""Tables that tests fill by ingests, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import kfast.spark
from kfast.table.table_log import STAGING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Place = tuple[int, int]
"""Partition and offset."""

PATIENCE_SECONDS = 180


class Table:
    """A table under test and how it is filled.

    Parameters
    ----------
    spark : SparkSession
        Reads and writes it.
    servers : str
        The cluster.
    folder : Path
        Of the test.
    """

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self.spark = spark
        self.servers = servers
        self.folder = folder
        self.output = folder / "table"
        self.checkpoint = folder / "checkpoint"

    def ingest(self, topic: str, **more: Any) -> Any:
        """Run an ingest of what there is to its end; return its query."""
        settings = {"output": str(self.output), "checkpoint": str(self.checkpoint), **more}
        query = kfast.spark.ingest(
            self.spark, bootstrap_servers=self.servers, topics=topic, **settings
        )
        try:
            assert query.awaitTermination(PATIENCE_SECONDS), query.status
        finally:
            query.stop()
        return query

    def arguments(self, topic: str, *more: str) -> list[str]:
        """Return the same for ``kfast ingest``."""
        return [
            *(topic, "-b", self.servers, "--spark", "--master", "local[2,4]"),
            *("--to", str(self.output), "--checkpoint", str(self.checkpoint), *more),
        ]

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """Return the table as Spark reads it, sorted."""
        names = columns or ("partition", "offset")
        frame = self.spark.read.parquet(str(self.output)).select(*names)
        return sorted(tuple(row) for row in frame.collect())

    def names(self) -> list[str]:
        """Return the files readers see."""
        found = self.output.rglob("*.parquet")
        return sorted(path.relative_to(self.output).as_posix() for path in found)

    def staged(self) -> list[Path]:
        """Return what is in the staging folder."""
        return [path for path in (self.output / STAGING).rglob("*") if path.is_file()]


def places(*counts: int) -> list[Place]:
    """Return every partition and offset of a topic with so many records."""
    return [(number, offset) for number, count in enumerate(counts) for offset in range(count)]
