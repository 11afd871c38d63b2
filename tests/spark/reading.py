"""Reading with Spark in tests: DataFrames of either source, and what is in them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from tests.integration.support import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SparkRow = tuple[Any, ...]
"""Partition, offset, key, value, timestamp in ms, timestamp type, headers."""

_COLUMNS: Final = (
    "partition",
    "offset",
    "key",
    "value",
    "unix_millis(timestamp) AS ms",
    "timestampType",
)


class Reads:
    """Makes DataFrames over topics.

    Parameters
    ----------
    spark : SparkSession
        Reads.
    servers : str
        The cluster.
    """

    def __init__(self, spark: SparkSession, servers: str) -> None:
        self.spark = spark
        self.servers = servers

    def options(self, topic: str, **more: Any) -> dict[str, str]:
        """Return the options of a query of one topic; ``__`` stands for a dot."""
        given = {name.replace("__", "."): value for name, value in more.items()}
        chosen: dict[str, object] = {"kafka.bootstrap.servers": self.servers, **given}
        if not {"subscribe", "subscribePattern", "assign"} & chosen.keys():
            chosen["subscribe"] = topic
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in chosen.items()
        }

    def frame(
        self, topic: str, format: str = "kfast", schema: str | None = None, **more: Any
    ) -> DataFrame:
        """Return a batch DataFrame of a topic."""
        reader = self.spark.read.format(format)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**self.options(topic, **more)).load()

    def stream(
        self, topic: str, format: str = "kfast", schema: str | None = None, **more: Any
    ) -> DataFrame:
        """Return a streaming DataFrame of a topic."""
        reader = self.spark.readStream.format(format)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**self.options(topic, **more)).load()

    def rows(self, topic: str, format: str = "kfast", **more: Any) -> list[SparkRow]:
        """Return all records of a topic with all columns, sorted."""
        return rows_of(self.frame(topic, format, includeHeaders=True, **more))


def rows_of(frame: DataFrame) -> list[SparkRow]:
    """Return the rows of a DataFrame with all columns, sorted by partition and offset."""
    found = frame.selectExpr(*_COLUMNS, "headers").collect()
    return sorted(
        (
            row[0],
            row[1],
            _bytes(row[2]),
            _bytes(row[3]),
            row[4],
            row[5],
            None if row[6] is None else [(h.key, _bytes(h.value)) for h in row[6]],
        )
        for row in found
    )


def truth(partition: int, rows: Iterable[Row]) -> list[SparkRow]:
    """Return what another client read, as Spark would have it."""
    return [
        (partition, offset, key, value, timestamp, kind, headers or None)
        for offset, timestamp, kind, key, value, headers in rows
    ]


def digest(rows: Iterable[SparkRow]) -> tuple[int, int, int, str]:
    """Return count, least and greatest offset, and a checksum over place, key and value."""
    listed = [row[:4] for row in rows]
    offsets = [row[1] for row in listed]
    check = hashlib.sha256(repr(listed).encode()).hexdigest()
    return len(listed), min(offsets, default=-1), max(offsets, default=-1), check


def _bytes(value: bytearray | bytes | None) -> bytes | None:
    return None if value is None else bytes(value)
