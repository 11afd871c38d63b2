"""RC-09, RC-11: what the documents show to read a table with Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kfast
from kfast.table.table_log import STAGING
from kfast.testing.server import BrokerServer
from tests.document_examples import examples
from tests.end_to_end.ingests import Table, Truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


def read(spark: SparkSession, number: int, folder: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Execute one of the two examples; return the records in the order of their offsets."""
    codes = [each for each in examples("docs/ingest.md", "Reading the table") if "spark." in each]
    assert len(codes) == 2
    scope: dict[str, Any] = {"spark": spark}
    exec(codes[number].replace("/data/orders", str(folder)), scope)
    rows = scope["orders"].select("topic", "partition", "offset", *columns).collect()
    return sorted((tuple(row) for row in rows), key=lambda row: row[:3])


def leave_traces(table: Table) -> None:
    """Compact the table, whose old files stay, and leave a file of a dead run."""
    assert kfast.compact_table(str(table.folder)).files
    staging = table.folder / STAGING / "dead"
    staging.mkdir(parents=True)
    shutil.copy(table.folder / table.names()[0], staging / "t-0-0.0123456789abcdef")


@pytest.mark.parametrize("partition_by", [(), ("topic", "date")])
def test_each_record_is_read_once(
    spark: SparkSession, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    """RC-09: in one folder and in folders as in Hive."""
    truth = Truth()
    with BrokerServer(truth.cluster) as server:
        table = Table(tmp_path / "t", server.bootstrap_servers)
        for _ in range(2):
            for number in range(2):
                truth.write(number, 20)
            table.ingest(partition_by=partition_by, rows_per_file=7)
    leave_traces(table)
    rows = read(spark, 0, table.folder, "key", "value")
    assert [(*row[:3], row[3] and bytes(row[3]), row[4] and bytes(row[4])) for row in rows] == (
        sorted(truth.rows, key=lambda row: row[:3])
    )


def test_added_columns(spark: SparkSession, tmp_path: Path) -> None:
    """RC-11: of the record and inside of a value; null in files that were written before."""
    truth = Truth("trades", 1)
    with BrokerServer(truth.cluster) as server:
        table = Table(tmp_path / "t", server.bootstrap_servers)
        for number, added in enumerate(({}, {"note": "string"})):
            truth.cluster.append("trades", 0, [b'{"id": %d, "note": "x"}' % number] * 3)
            table.ingest(
                "trades",
                value=kfast.Json({"id": "int64", **added}),
                columns=["topic", "partition", "offset", "value", *(["key"] if added else [])],
                partition_by="date",
                rows_per_file=2,
            )
    leave_traces(table)
    rows = read(spark, 1, table.folder, "key", "value.id", "value.note", "date")
    days = {row[-1] for row in rows}
    assert len(days) == 1
    assert [row[:-1] for row in rows] == [
        ("trades", 0, at, None, at // 3, "x" if at >= 3 else None) for at in range(6)
    ]
