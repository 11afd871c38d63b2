"""W-11: bounds in a Delta log, as another reader of Delta takes them."""

from __future__ import annotations

import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from kfast.table.file_formats import delta_stats
from kfast.testing.server import BrokerServer
from tests.end_to_end.ingests import Table, Truth

deltalake = pytest.importorskip("deltalake")


def stats_of(*values: int, kind: pa.DataType) -> tuple[Any, Any]:
    """Return the bounds of a file with a column of these numbers."""
    storage = pa.int32() if kind == pa.date32() else pa.int64()
    table = pa.table({"x": pa.array(values, storage).cast(kind)})
    output = io.BytesIO()
    pq.write_table(table, output, store_schema=False, row_group_size=1)
    stats = json.loads(delta_stats(pq.ParquetFile(output).metadata, table.schema))
    return stats["minValues"]["x"], stats["maxValues"]["x"]


US, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
LAST_US = 253_402_300_799_999_999


@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        (US, (1_001, 5_000), ("1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.005Z")),
        (US, (-1, 5_001), ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.006Z")),
        (US, (-(2**62), 2**62), ("0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z")),
        (US, (0, LAST_US), ("1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z")),
        (LOCAL, (0, 2**62), ("1970-01-01T00:00:00.000", "9999-12-31T23:59:59.999")),
        (pa.date32(), (0, 2**31 - 1), ("1970-01-01", "9999-12-31")),
    ],
)
def test_bounds_of_times(kind: pa.DataType, values: tuple[int, ...], bounds: Any) -> None:
    """W-11: a timestamp that Python does not have stops no ingest."""
    assert stats_of(*values, kind=kind) == bounds


@pytest.fixture
def dataset(tmp_path: Path) -> Any:
    """Give a Delta table of three files, as an Arrow dataset of deltalake's."""
    truth = Truth(partitions=1)
    truth.write(0, 30)
    with BrokerServer(truth.cluster) as server:
        table = Table(tmp_path / "t", server.bootstrap_servers)
        table.ingest(format="delta", rows_per_file=7, key="text", value="text")
    return deltalake.DeltaTable(str(table.folder)).to_pyarrow_dataset()


def test_files_are_left_out_by_their_bounds(dataset: Any) -> None:
    """W-11: and rows of the others are all there."""
    files = len(list(dataset.get_fragments()))
    assert files > 2
    time = pa.scalar(dt.datetime(2026, 1, 1, 0, 3, tzinfo=dt.UTC))
    for condition, rows in (
        (pc.field("offset") == 3, 1),
        (pc.field("offset") >= 28, 2),
        (pc.field("timestamp") == time, 1),
    ):
        assert len(list(dataset.get_fragments(condition))) == 1
        assert dataset.to_table(filter=condition).num_rows == rows
    assert not list(dataset.get_fragments(pc.field("topic") == "other"))
    assert not list(dataset.get_fragments(pc.field("partition") > 0))


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        (pc.field("timestampType") == 0, 30),
        (pc.field("timestampType") != 1, 30),
        (pc.field("value") >= "t", 24),
        (pc.field("key") == "key 0", 1),
        (pc.field("key").is_null(), 10),
    ],
)
def test_a_filter_on_a_column_without_bounds_gives_all_of_its_rows(
    dataset: ds.Dataset, condition: pc.Expression, rows: int
) -> None:
    """W-11"""
    assert dataset.to_table(filter=condition).num_rows == rows
