"""W-33: ``kfast ingest --format iceberg`` and a REST catalog of Apache Iceberg itself."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException

import kfast
from kfast import cli
from kfast.errors import KafkaError
from kfast.table.iceberg_catalog import load_iceberg
from kfast.table.iceberg_log import IcebergLog
from kfast.testing.server import BrokerServer
from tests.end_to_end.iceberg_ingests import COLUMNS, check, expected, rows, words_of
from tests.end_to_end.ingest_processes import Death, Starter, starter
from tests.end_to_end.ingests import Table, Truth
from tests.integration.iceberg_server import IcebergServer, iceberg_server
from tests.unit.table.iceberg_tables import NAME, settings

LOG = "kfast.table.iceberg_log:IcebergLog"
IDENTIFIER = NAME.partition(".")[2]
DEATHS = (
    Death(f"{LOG}.begin", is_after=True),
    Death(f"{LOG}._commit_snapshot"),
    Death(f"{LOG}._commit_snapshot", is_after=True),
    None,
    None,
)
"""Of ingests; None: at any instant."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergServer]:
    """The server of this module, whose catalog has the name ``test``."""
    folder = tmp_path_factory.mktemp("iceberg")
    with iceberg_server(folder) as running, pytest.MonkeyPatch.context() as monkeypatch:
        settings(monkeypatch, TYPE="rest", URI=running.url)
        yield running


@pytest.fixture(scope="module")
def processes(server: IcebergServer) -> Iterator[Starter]:
    """Processes with this catalog."""
    assert server.url
    with starter() as running:
        yield running


@pytest.fixture
def truth() -> Truth:
    """A topic of two partitions, of 50 and 30 records."""
    topic = Truth()
    topic.write(0, 50)
    topic.write(1, 30)
    return topic


@pytest.fixture
def table(server: IcebergServer, truth: Truth, tmp_path: Path) -> Iterator[Table]:
    """A folder for its table, which is dropped afterwards."""
    assert server.url
    with BrokerServer(truth.cluster) as broker:
        yield Table(tmp_path / "t", broker.bootstrap_servers)
    load_catalog("test").drop_table(IDENTIFIER)


@pytest.fixture
def at_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Exception]]:
    """Run something right before, or after, the first commit; it gives the errors of commits."""
    commit = IcebergLog._commit_snapshot
    errors: list[Exception] = []
    before: list[Callable[[], object]] = []
    after: list[Callable[[], object]] = []

    def observed(log: IcebergLog, *arguments: Any) -> None:
        try:
            if before:
                before.pop()()
            commit(log, *arguments)
            if after:
                after.pop()()
        except Exception as error:
            errors.append(error)
            raise

    def begin(action: Callable[[], object], *, is_after: bool = False) -> list[Exception]:
        (after if is_after else before).append(action)
        return errors

    monkeypatch.setattr(IcebergLog, "_commit_snapshot", observed)
    return begin


def ingest(table: Table, *topics: str, **more: Any) -> kfast.IngestSummary:
    return table.ingest(*topics, format="iceberg", iceberg_table=NAME, **more)


def elsewhere(table: Table) -> Table:
    """Another folder of the same Iceberg table, which the lock of the first does not protect."""
    return Table(table.folder.with_name("elsewhere"), table.servers)


@pytest.mark.parametrize(
    ("partition_by", "fields"), [("", 0), ("date,partition,bucket(4,offset)", 3)]
)
def test_a_table_goes_on_where_it_ends(
    truth: Truth, table: Table, partition_by: str, fields: int
) -> None:
    """It is created, appended to in many commits, and begun anew after it was dropped."""
    words = words_of(table, "--rows-per-file", "20")
    more = ["--partition-by", partition_by] if partition_by else []
    for count in (0, 7):
        truth.write(1, count)
        assert cli.main([*words, *more]) == 0
        check(table, truth)
    assert len(load_iceberg(NAME).spec().fields) == fields
    row = truth.rows[13]
    assert rows(row_filter=f"partition = {row[1]} and offset = {row[2]}") == [row]
    snapshots = len(load_iceberg(NAME).snapshots())
    assert cli.main(words) == 0
    assert len(load_iceberg(NAME).snapshots()) == snapshots, "there was nothing to read"
    load_catalog("test").drop_table(IDENTIFIER)
    truth.write(0, 5)
    assert cli.main([*words, *more]) == 0
    assert rows() == expected(truth)


def test_columns_change(truth: Truth, table: Table) -> None:
    """They are added, become wider, and are renamed in the table."""
    truth.cluster.create_topic("trades", 1)
    for number, schema in enumerate(
        ({"id": "int32"}, {"id": "int64", "lines": [{"sku": "string"}]})
    ):
        truth.cluster.append("trades", 0, [b'{"id": %d, "lines": [{"sku": "a"}]}' % number])
        ingest(table, "trades", value=kfast.Json(schema))
    with load_iceberg(NAME).update_schema() as update:
        update.rename_column("value.lines.sku", "article")
    truth.cluster.append("trades", 0, [b'{"id": 5000000000, "lines": [{"sku": "b"}]}'])
    ingest(table, "trades", value=kfast.Json(schema))
    values = load_iceberg(NAME).scan().to_arrow().sort_by("offset").column("value").to_pylist()
    assert values == [
        {"id": 0, "lines": None},
        {"id": 1, "lines": [{"article": "a"}]},
        {"id": 5_000_000_000, "lines": [{"article": "b"}]},
    ]


# --- others who write -----------------------------------------------------------------------------


def test_of_two_ingests_at_once_one_is_refused(
    truth: Truth, table: Table, at_commit: Callable[..., list[Exception]]
) -> None:
    """By the server, as the table is not as that run knows it; the next run goes on."""
    ingest(table)
    truth.write(0, 20)
    errors = at_commit(lambda: ingest(elsewhere(table)))
    with pytest.raises(KafkaError, match="is now written by"):
        ingest(table)
    assert [type(error) for error in errors] == [CommitFailedException]
    assert rows() == expected(truth)
    truth.write(1, 3)
    assert ingest(table).rows == 3
    assert rows() == expected(truth)


def test_a_commit_of_another_program_is_followed(
    truth: Truth, table: Table, at_commit: Callable[..., list[Exception]]
) -> None:
    """The server refuses that of the ingest once; the rows of both are there."""
    ingest(table)
    truth.write(0, 20)
    row = ("other", 0, 0, b"k", b"v")

    def append() -> None:
        other = load_iceberg(NAME)
        columns = dict(zip(COLUMNS, row, strict=True))
        other.append(pa.Table.from_pylist([columns], schema=other.schema().as_arrow()))

    errors = at_commit(append)
    assert ingest(table).rows == 20
    assert [type(error) for error in errors] == [CommitFailedException]
    assert rows() == sorted([*truth.rows, row], key=lambda row: row[:3])


def test_ingests_that_race(processes: Starter, truth: Truth, table: Table) -> None:
    """Of two at any time one is done at least, and each record is there once."""
    words = words_of(table, "--rows-per-file", "10")
    for count in (0, 30, 30):
        truth.write(0, count)
        processes.start(words_of(elsewhere(table), "--rows-per-file", "10"))
        status = cli.main(words)
        assert 0 in {status, processes.wait()}
        assert rows() == expected(truth)
    assert processes.run(words) == 0
    assert rows() == expected(truth)


# --- deaths ---------------------------------------------------------------------------------------


def test_ingests_and_servers_that_are_killed(
    processes: Starter, server: IcebergServer, truth: Truth, table: Table
) -> None:
    """The next run on the next server finishes; nothing is there twice or not at all."""
    chance = random.Random(11)
    words = words_of(table, "--rows-per-file", "25")
    began = time.monotonic()
    assert processes.run(words) == 0
    seconds = time.monotonic() - began
    for death in DEATHS:
        for number in range(2):
            truth.write(number, chance.randrange(1, 40))
        child = processes.start(words, death)
        if death is None:
            time.sleep(chance.uniform(0, seconds))
            os.kill(child, signal.SIGKILL)
        status = processes.wait()
        assert status == -signal.SIGKILL or (death is None and status == 0)
        server.kill()
        server.start()
    truth.write(0, 1)
    for _ in range(2):
        assert processes.run(words) == 0
        assert rows() == expected(truth)
    check(table, truth)


def test_a_server_that_is_killed_under_an_ingest(
    server: IcebergServer,
    truth: Truth,
    table: Table,
    at_commit: Callable[..., list[Exception]],
) -> None:
    """It is an error of the catalog, and the next run goes on."""
    ingest(table)
    truth.write(0, 20)
    errors = at_commit(server.kill)
    try:
        with pytest.raises(KafkaError, match=r"cannot read the Iceberg table test\.lake"):
            ingest(table)
    finally:
        server.start()
    assert len(errors) == 1
    assert rows() == expected(truth)[:50] + expected(truth)[70:]
    assert ingest(table).rows == 20
    check(table, truth)


def test_a_server_that_is_killed_before_it_answers(
    server: IcebergServer, truth: Truth, table: Table, at_commit: Callable[..., list[Exception]]
) -> None:
    """The next server has what it committed, and it is not committed again."""

    def lose_the_answer() -> None:
        server.kill()
        server.start()
        raise ConnectionError("the connection was closed")

    ingest(table)
    truth.write(0, 20)
    errors = at_commit(lose_the_answer, is_after=True)
    assert ingest(table).rows == 20
    assert [type(error) for error in errors] == [ConnectionError]
    assert len(load_iceberg(NAME).snapshots()) == 2
    check(table, truth)


def test_a_server_that_is_killed_at_any_instant(
    processes: Starter, server: IcebergServer, truth: Truth, table: Table
) -> None:
    """Whatever it had done of a commit: the ingest that it was asked by may end with an error."""
    chance = random.Random(5)
    words = words_of(table, "--rows-per-file", "10")
    assert processes.run(words) == 0
    for _ in range(2):
        truth.write(1, 40)
        processes.start(words)
        killer = threading.Timer(chance.uniform(0, 1), server.kill)
        killer.start()
        processes.wait()
        killer.join()
        server.kill()
        server.start()
        assert processes.run(words) == 0
        assert rows() == expected(truth)
    assert processes.run(words) == 0
    check(table, truth)
