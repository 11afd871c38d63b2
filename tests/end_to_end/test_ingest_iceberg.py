"""W-25, W-26, W-30 to W-33: ``kfast ingest --format iceberg`` over a fake cluster."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kfast
from kfast import cli
from kfast.testing.batches import Record
from kfast.testing.server import BrokerServer
from tests.end_to_end.iceberg_ingests import check, expected, rows, words_of
from tests.end_to_end.ingest_processes import Death, Starter, starter
from tests.end_to_end.ingests import START_MS, Table, Truth
from tests.soaking import soaking

pytest.importorskip("pyiceberg")

from pyiceberg.catalog import load_catalog

from kfast.table.iceberg_catalog import load_iceberg
from tests.unit.table.iceberg_tables import NAME, catalog

KILLS = soaking(20, 40)
LOG = "kfast.table.iceberg_log:IcebergLog"
PENDING = "kfast.table.pending:PendingFiles"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module", autouse=True)
def _catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        catalog(tmp_path_factory.mktemp("catalog"), monkeypatch)
        yield


@pytest.fixture(scope="module")
def processes(_catalog: None) -> Iterator[Starter]:
    """Processes with the catalog of this module."""
    with starter() as running:
        yield running


@pytest.fixture(autouse=True)
def _table() -> Iterator[None]:
    yield
    load_catalog("test").drop_table(NAME.partition(".")[2])


def test_an_iceberg_table_goes_on_where_it_ends(
    truth: Truth, table: Table, capfd: pytest.CaptureFixture[str]
) -> None:
    """W-25, W-30: with all columns, and no word on the terminal but the summary."""
    words = words_of(table, "--rows-per-file", "20")
    for count in (0, 7):
        truth.write(1, count)
        assert cli.main([*words, "-c", "topic,partition,offset,key,value,timestamp,headers"]) == 0
        check(table, truth)
    output = capfd.readouterr()
    assert "statistics" not in output.err
    assert "Warning" not in output.err
    assert cli.main(table.command("--format", "iceberg")) == 2
    assert "not a table of a catalog" in capfd.readouterr().err


def test_readers_skip_files_by_bounds(
    truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-25: of offsets and times; DuckDB and polars see the same rows."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    table.ingest(format="iceberg", iceberg_table=NAME, rows_per_file=20)
    scan = load_iceberg(NAME).scan(row_filter="offset < 20 and partition = 0")
    files = load_iceberg(NAME).inspect.files().num_rows
    assert len(list(scan.plan_files())) < files
    assert scan.to_arrow().num_rows == min(20, sum(row[1] == 0 for row in truth.rows))
    import polars  # noqa: PLC0415 - optional

    frame = polars.scan_iceberg(load_iceberg(NAME)).select("partition", "offset").collect()
    assert sorted(frame.rows()) == sorted(row[1:3] for row in truth.rows)
    connection = load_iceberg(NAME).scan().to_duckdb("orders")
    count = connection.execute('SELECT count(DISTINCT (partition, "offset")) FROM orders')
    assert count.fetchall() == [(len(truth.rows),)]
    connection.close()


def test_timestamps_beyond_the_years_of_python(truth: Truth, table: Table) -> None:
    """W-25: they stop no ingest, and have bounds like others."""
    late = [Record(b"k", b"v", timestamp=sign * 9_000_000_000_000_000) for sign in (1, -1)]
    truth.cluster.append("t", 0, late)
    given = {"format": "iceberg", "iceberg_table": NAME, "columns": ["offset", "timestamp"]}
    table.ingest(**given)
    truth.write(1, 3)
    table.ingest(**given)
    scan = load_iceberg(NAME).scan(row_filter="offset >= 0", selected_fields=("offset",))
    assert scan.to_arrow().num_rows == len(truth.rows) + 2


def test_typed_columns_that_are_added(truth: Truth, table: Table) -> None:
    """W-31: nested ones, null in older rows; a column that was renamed in the table stays it."""
    truth.cluster.create_topic("trades", 1)
    document = b'{"id": %d, "lines": [{"sku": "a"}], "prices": {"eur": 1.5}, "note": "x"}'
    schema = {"id": "int64", "lines": [{"sku": "string"}], "prices": "map<string,double>"}
    for number, more in enumerate(({}, {"note": "string"})):
        truth.cluster.append("trades", 0, [document % number])
        table.ingest(
            "trades", format="iceberg", iceberg_table=NAME, value=kfast.Json({**schema, **more})
        )
        with load_iceberg(NAME).update_schema() as update:
            if not number:
                update.rename_column("value.id", "trade")
                update.rename_column("value.lines.sku", "article")
    values = load_iceberg(NAME).scan().to_arrow().sort_by("offset").column("value").to_pylist()
    for number, value in enumerate(values):
        assert value == {
            "trade": number,
            "lines": [{"article": "a"}],
            "prices": [("eur", 1.5)],
            "note": "x" if number else None,
        }
    assert len(values) == 2


@pytest.mark.parametrize(
    "partition_by",
    ["date,hour", "partition,bucket(4,offset)", "truncate(10,offset),month(timestamp),topic"],
)
def test_partitions(truth: Truth, table: Table, partition_by: str) -> None:
    """W-32: readers skip by them, and a later run without the option writes them too."""
    words = words_of(table)
    assert cli.main([*words, "--partition-by", partition_by]) == 0
    truth.write(0, 9)
    assert cli.main(words) == 0
    check(table, truth)
    for row in truth.rows[::13]:
        found = rows(row_filter=f"partition = {row[1]} and offset = {row[2]}")
        assert found == [row]
    limit = START_MS + HOUR_MS // 2
    early = load_iceberg(NAME).scan(row_filter=f"timestamp < '{_iso(limit)}'").to_arrow()
    assert early.num_rows == sum(START_MS + 60_000 * row[2] < limit for row in truth.rows)
    assert cli.main([*words, "--partition-by", "key"]) == 2


def _iso(time_ms: int) -> str:
    import datetime  # noqa: PLC0415 - this one only

    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).isoformat()


# --- kills ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "death",
    [
        Death(f"{LOG}.begin"),
        Death(f"{LOG}.begin", is_after=True),
        Death(f"{LOG}._change", is_after=True),
        Death(f"{PENDING}.begin"),
        Death(f"{PENDING}.begin", is_after=True),
        Death("kfast.table.store:LocalStore.rename", 2),
        Death(f"{LOG}._commit_snapshot"),
        Death(f"{LOG}._commit_snapshot", is_after=True),
        Death(f"{PENDING}.end"),
        Death(f"{PENDING}.end", is_after=True),
        Death("kfast.table.publish:Publisher.sweep"),
        Death("kfast.table.range_files:RangeFiles.write", 3),
    ],
    ids=lambda death: f"{death.method.rpartition(':')[2]}-{death.number}{'+' * death.is_after}",
)
def test_a_run_that_dies_at_a_step_is_finished_by_the_next(
    processes: Starter, truth: Truth, tmp_path: Path, death: Death
) -> None:
    """W-26: wherever it stands between the staged file and the commit."""
    with BrokerServer(truth.cluster) as server:
        table = Table(tmp_path / "t", server.bootstrap_servers)
        words = words_of(table, "--rows-per-file", "10")
        assert processes.run(words, death) == -signal.SIGKILL
        for _ in range(2):
            truth.write(0, 5)
            assert processes.run(words) == 0
            assert rows() == expected(truth)
        assert processes.run(words) == 0
        check(table, truth)


@pytest.mark.soak
def test_runs_that_die_at_any_instant_are_finished_by_the_next(
    processes: Starter, truth: Truth, tmp_path: Path
) -> None:
    """W-26: the topic grows meanwhile; nothing is read twice and nothing is left out."""
    chance = random.Random(7)
    with BrokerServer(truth.cluster) as server:
        table = Table(tmp_path / "t", server.bootstrap_servers)
        words = words_of(table, "--rows-per-file", "25")
        began = time.monotonic()
        assert processes.run(words) == 0
        whole = time.monotonic() - began
        killed = 0
        for _ in range(KILLS):
            for number in range(2):
                truth.write(number, chance.randrange(40))
            child = processes.start(words)
            time.sleep(chance.uniform(0, whole))
            os.kill(child, signal.SIGKILL)
            killed += processes.wait() == -signal.SIGKILL
            if chance.random() < 0.3:
                assert processes.run(words) == 0
                assert rows() == expected(truth)
        truth.write(0, 1)
        assert processes.run(words) == 0
        assert processes.run(words) == 0
        check(table, truth)
    assert killed > KILLS // 3, "most of them were not at their end yet"
