"""W-25 to W-30: the log of an Iceberg table is the table, through a catalog in a file."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kfast._base.clock import ExponentialBackoff
from kfast.errors import ConfigurationError, KafkaError, MissingDependencyError, TableError
from kfast.table.entries import Entry
from kfast.table.iceberg_catalog import CatalogTable, check_iceberg
from kfast.table.iceberg_entries import CONFIRMED, ENTRY, SNAPSHOT
from kfast.table.ingest.options import IngestOptions
from kfast.table.store import LocalStore
from kfast.table.table_log import STAGING
from tests.unit.table.tables import Crash, Crashing

pytest.importorskip("pyiceberg")

from kfast.table.iceberg_catalog import load_iceberg
from kfast.table.iceberg_log import IcebergLog
from tests.unit.table.iceberg_tables import (
    NAME,
    Run,
    catalog,
    files_of,
    records,
    rows,
    settings,
)

pytestmark = pytest.mark.slow  # hundreds of small tables on disk


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    """The folder of a table's files; the catalog has its own."""
    catalog(tmp_path, monkeypatch)
    monkeypatch.setattr("kfast.table.iceberg_log._BACKOFF", ExponentialBackoff(0, 0))
    return LocalStore(tmp_path / "table")


def compact() -> None:
    """Rewrite all files into one with the same rows, as a user does."""
    table = load_iceberg(NAME)
    table.overwrite(table.scan().to_arrow())


def expire(*snapshot_ids: int) -> None:
    load_iceberg(NAME).maintenance.expire_snapshots().by_ids(list(snapshot_ids)).commit()


def snapshot_ids() -> list[int]:
    return [snapshot.snapshot_id for snapshot in load_iceberg(NAME).snapshots()]


def roll_back(snapshot_id: int) -> None:
    load_iceberg(NAME).manage_snapshots().set_current_snapshot(snapshot_id).commit()


# --- batches --------------------------------------------------------------------------------------


def test_a_batch_is_one_snapshot_with_its_offsets(store: LocalStore) -> None:
    """W-25: the summary has the whole entry, and the next run goes on from it."""
    run = Run(store)
    for _ in range(3):
        entry = run.publish()
    table = load_iceberg(NAME)
    assert [snapshot.summary.operation.value for snapshot in table.snapshots()] == ["append"] * 3
    summary = table.current_snapshot().summary.additional_properties
    assert json.loads(summary["kfast.entry"])["ends"] == {"t": {"0": 6, "1": 6}}
    assert summary["kfast.id"] == entry.id
    assert summary["added-records"] == "4"
    assert rows() == records(6)
    assert "commit.retry.num-retries" not in table.properties, "that is the user's"

    following = Run(store)
    assert following.last == _without_files(entry)
    following.publish()
    assert rows() == records(8)
    assert len(load_iceberg(NAME).snapshots()) == 4, "a run has no entry of its own"
    assert all(path.startswith("t-") for path in files_of(store)), "no pending or staged file"


def test_a_query_of_spark_begins_with_an_entry_and_goes_on_with_it(store: LocalStore) -> None:
    """W-25: a batch that is repeated is there once; another query takes over after it."""
    Run(store).publish()
    query = Run(store, checkpoint="/checkpoints/a")
    assert query.last.batch_id is None
    assert query.last.ends
    parts = query.stage()
    first = query.publisher.publish(query.writer, 0, parts)
    repeated = query.publisher.publish(query.writer, 0, query.stage())
    assert repeated.id == first.id
    assert rows() == records(4)
    entries = [entry.sequence for entry, time_ms in query.log.after(None) if time_ms]
    assert entries == [1, 2, 3]
    assert [entry.id for entry, _ in query.log.after(query.last)] == [first.id]
    Run(store, checkpoint="/checkpoints/b")
    with pytest.raises(KafkaError, match="is now written by Spark with the checkpoint /checkp"):
        query.publisher.publish(query.writer, 1, query.stage())
    assert rows() == records(4)


def test_long_entries_are_small_in_the_metadata(store: LocalStore) -> None:
    """W-25: 1,000 partitions cost kilobytes per snapshot."""
    run = Run(store)
    entry = run.publish(partitions=range(1_000), count=1, fill=None)
    table = load_iceberg(NAME)
    summary = table.current_snapshot().summary.additional_properties["kfast.entry"]
    assert len(summary) < 12_000
    assert IcebergLog(store, NAME).last() == _without_files(entry)
    assert table.properties[ENTRY] == summary


def _without_files(entry: Entry) -> Entry:
    from kfast.table.entries import decode_entry, encode_entry  # noqa: PLC0415 - this one only

    return decode_entry(encode_entry(entry, with_files=False), "")


# --- kills ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", range(8))
def test_a_kill_at_any_step_loses_nothing_and_doubles_nothing(
    store: LocalStore, tmp_path: Path, at: int, is_after: bool
) -> None:
    """W-26: the pending file, renames, dead letters; what is left goes with the next batches."""
    letters = LocalStore(tmp_path / "letters")
    Run(store).publish(letters=letters.url)
    dying = Run(Crashing(store, at, is_after))
    try:
        dying.publish(parts=Run(store).stage(letters=letters.url))
    except Crash:
        pass
    else:
        assert at >= 4
    for _ in range(2):
        run = Run(store)
        end = run.last.ends[next(iter(run.last.ends))]
        assert rows() == records(end)
        run.publish(letters=letters.url)
        assert rows() == records(end + 2)
    Run(store)
    listed = {row["file_path"].rpartition("/")[2] for row in _listed()}
    assert files_of(store) - listed == {
        path for path in files_of(store) if path.startswith(f"{STAGING}/")
    } - {path for path in files_of(store) if "pending-" in path}
    names = {path for path in files_of(letters) if path.endswith(".letter")}
    assert names == {f"{number}-{first}.letter" for number in (0, 1)
                     for first in range(0, end + 2, 2)}  # fmt: skip


def _listed() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = load_iceberg(NAME).inspect.files().to_pylist()
    return rows


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_kill_around_the_commit(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    """W-26: before it the files go away later; behind it the batch is there."""
    Run(store).publish()
    real = IcebergLog._commit_snapshot

    def commit(self: IcebergLog, table: Any, entry: Entry) -> None:
        if is_committed:
            real(self, table, entry)
        raise Crash

    monkeypatch.setattr(IcebergLog, "_commit_snapshot", commit)
    dying = Run(store)
    with pytest.raises(Crash):
        dying.publish()
    monkeypatch.undo()
    catalog_again(store, monkeypatch)
    run = Run(store)
    assert rows() == records(4 if is_committed else 2)
    assert any("pending-" in path for path in files_of(store)) is not is_committed
    run.publish()
    assert rows() == records(6 if is_committed else 4)
    listed = {row["file_path"].rpartition("/")[2] for row in _listed()}
    assert files_of(store) == listed


def catalog_again(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(store.url).parent
    settings(
        monkeypatch,
        TYPE="sql",
        URI=f"sqlite:///{folder}/catalog.db",
        WAREHOUSE=f"file://{folder}/warehouse",
    )


def test_files_of_a_slow_process_are_not_removed_under_it(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-26: a second start recovers while the first is about to commit, which then succeeds."""
    Run(store).publish()
    slow = Run(store)
    real, others = IcebergLog._commit_snapshot, [1]

    def commit(self: IcebergLog, table: Any, entry: Entry) -> None:
        if others:
            others.pop()
            Run(store)
        real(self, table, entry)

    monkeypatch.setattr(IcebergLog, "_commit_snapshot", commit)
    slow.publish()
    assert rows() == records(4)


# --- other writers --------------------------------------------------------------------------------


def test_of_two_runs_one_publishes(store: LocalStore) -> None:
    """W-27: the other one is refused, with the table as it was and no file left."""
    first, second = Run(store), Run(store)
    first.publish()
    with pytest.raises(KafkaError, match="is now written by kfast ingest"):
        second.publish()
    assert rows() == records(2)
    second.publisher.abort(second.writer, 0, [], is_complete=True)
    visible = {path for path in files_of(store) if path.endswith(".parquet")}
    assert len(visible) == 2


def test_a_zombie_that_loses_the_race_leaves_no_file(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-27: overtaken between its look at the table and its commit."""
    first, second = Run(store), Run(store)
    real, others = IcebergLog._commit_snapshot, [first]

    def commit(self: IcebergLog, table: Any, entry: Entry) -> None:
        if others:
            others.pop().publish()
        real(self, table, entry)

    monkeypatch.setattr(IcebergLog, "_commit_snapshot", commit)
    with pytest.raises(KafkaError, match="is now written by"):
        second.publish()
    assert rows() == records(2)
    assert len(files_of(store)) == 2


def test_an_answer_that_is_lost(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """W-27: the commit is there, and is not repeated."""
    from pyiceberg.exceptions import CommitStateUnknownException  # noqa: PLC0415 - optional

    run = Run(store)
    real, lost = IcebergLog._commit_snapshot, [1]

    def commit(self: IcebergLog, table: Any, entry: Entry) -> None:
        real(self, table, entry)
        if lost:
            lost.pop()
            raise CommitStateUnknownException("no answer")

    monkeypatch.setattr(IcebergLog, "_commit_snapshot", commit)
    run.publish()
    run.publish()
    assert rows() == records(4)
    assert len(load_iceberg(NAME).snapshots()) == 2


def test_a_compaction_in_between_stops_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-27: the commit follows it; a table that is always busy is an error that says so."""
    Run(store).publish()
    run = Run(store)
    real, busy = IcebergLog._commit_snapshot, [2]

    def commit(self: IcebergLog, table: Any, entry: Entry) -> None:
        if busy[0]:
            busy[0] -= 1
            compact()
        real(self, table, entry)

    monkeypatch.setattr(IcebergLog, "_commit_snapshot", commit)
    run.publish()
    assert rows() == records(4)
    busy[0] = 100
    parts = run.stage()
    with pytest.raises(KafkaError, match="cannot commit batch 1 to the Iceberg table") as caught:
        run.publish(parts)
    assert "faster" in str(caught.value)
    busy[0] = 0
    assert rows() == records(4)
    Run(store).publish()
    assert rows() == records(6)
    listed = {row["file_path"].rpartition("/")[2] for row in _listed()}
    assert not {path for path in files_of(store) if "pending" in path}
    assert {path for path in files_of(store) if path not in listed} <= {
        path for path in files_of(store) if "-4-6-" not in path
    }, "the files of the batch that failed are gone"


def test_threads_that_begin_at_once_make_one_table(store: LocalStore) -> None:
    """W-27: of writers that begin together each has the table, or is told to look again."""
    errors: list[BaseException] = []

    def begin() -> None:
        try:
            Run(store, checkpoint="/checkpoints/x")
        except (AssertionError, KafkaError) as error:  # begin() was None: there is a later entry
            errors.append(error)

    threads = [threading.Thread(target=begin) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = [entry.sequence for entry, _ in IcebergLog(store, NAME).after(None)]
    assert entries == list(range(3 - len(errors)))
    assert entries


# --- what users do --------------------------------------------------------------------------------


def test_after_a_rollback_the_ingest_goes_on_from_there(store: LocalStore) -> None:
    """W-28: no record is missing and none is twice; rolled forward again, too."""
    run = Run(store)
    for _ in range(3):
        run.publish()
    first, second, third = snapshot_ids()
    roll_back(second)
    assert rows() == records(4)
    run = Run(store)
    assert run.last.sequence == 2
    roll_back(third)
    with pytest.raises(KafkaError, match="is now written by"):
        run.publish()
    assert rows() == records(6)
    roll_back(first)
    Run(store).publish()
    assert rows() == records(4)


def test_after_a_rollback_to_before_the_first_batch_it_begins_anew(store: LocalStore) -> None:
    """W-28: rows of somebody else stay."""
    Run(store)
    table = load_iceberg(NAME)
    others = table.scan().to_arrow().from_pylist(
        [{"topic": "x", "partition": 9, "offset": 9}], schema=table.schema().as_arrow()
    )  # fmt: skip
    table.append(others)
    assert IcebergLog(store, NAME).last() is None
    Run(store).publish()
    assert rows() == records({0: 2, 1: 2}) + records({9: 10}) - records({9: 9})
    roll_back(snapshot_ids()[0])
    run = Run(store)
    assert not run.last.ends
    run.publish(count=3)
    assert sum(rows().values()) == 7


def test_a_table_that_was_dropped_begins_anew(store: LocalStore) -> None:
    """W-28: with the folder kept; while it is written that is an error."""
    run = Run(store)
    run.publish()
    catalog_table = CatalogTable(NAME)
    catalog_table._catalog.drop_table("lake.orders")
    with pytest.raises(TableError, match=r"test\.lake\.orders is gone"):
        run.publish()
    again = Run(store)
    assert not again.last.ends
    with pytest.raises(TableError, match="was dropped and created again"):
        run.publish(run.stage())
    again.publish(count=3)
    assert rows() == records(3)


def test_a_table_that_was_replaced_is_refused(store: LocalStore) -> None:
    """W-28: its rows may be the same, under snapshots that say nothing."""
    run = Run(store)
    run.publish()
    kept = load_iceberg(NAME)
    data, properties = kept.scan().to_arrow(), dict(kept.properties)
    CatalogTable(NAME)._catalog.drop_table("lake.orders")
    replaced = CatalogTable(NAME)._catalog.create_table(
        "lake.orders", schema=kept.schema(), properties=properties
    )
    replaced.append(data)
    with pytest.raises(TableError, match="does not say which offsets it has") as caught:
        Run(store)
    assert "or the table was replaced" in str(caught.value)
    assert f"to begin again with --start, remove its property {ENTRY}" in str(caught.value)
    with load_iceberg(NAME).transaction() as transaction:
        transaction.remove_properties(ENTRY, SNAPSHOT)
    assert not Run(store).last.ends


# --- expired snapshots ----------------------------------------------------------------------------


def test_expired_snapshots_stop_nothing_if_the_table_descends_from_the_last(
    store: LocalStore,
) -> None:
    """W-29: the property has the entry: its snapshot is the parent, or has files in the table."""
    run = Run(store)
    run.publish()
    run.publish()
    first, second = snapshot_ids()
    expire(first)
    assert Run(store).last.sequence == 2
    load_iceberg(NAME).append(load_iceberg(NAME).scan().to_arrow().slice(0, 0))
    expire(second)
    assert Run(store).last.sequence == 2
    Run(store).publish()
    assert rows() == records(6)


def test_a_rollback_before_an_expired_entry_is_refused(store: LocalStore) -> None:
    """W-29: what is left says nothing of the batches before."""
    run = Run(store)
    run.publish()
    load_iceberg(NAME).append(load_iceberg(NAME).scan().to_arrow().slice(0, 0))
    run.publish()
    first, second, _ = snapshot_ids()
    roll_back(second)
    expire(first)
    with pytest.raises(TableError, match="does not say which offsets it has"):
        Run(store)


def test_expired_snapshots_with_files_of_the_last_one(store: LocalStore) -> None:
    """W-29: two commits of others follow it, and only the newest is left."""
    run = Run(store)
    run.publish()
    for _ in range(2):
        load_iceberg(NAME).append(load_iceberg(NAME).scan().to_arrow().slice(0, 0))
    expire(*snapshot_ids()[:-1])
    assert Run(store).last.ends == run.last.ends


def test_expired_snapshots_that_prove_nothing_are_refused(store: LocalStore) -> None:
    """W-29: a person may say that the table was not rolled back."""
    run = Run(store)
    run.publish()
    for _ in range(2):
        compact()
    expire(*snapshot_ids()[:-1])
    with pytest.raises(TableError, match="does not say which offsets it has") as caught:
        Run(store)
    current = load_iceberg(NAME).current_snapshot().snapshot_id
    assert f"set its property {CONFIRMED} to {current}" in str(caught.value)
    with load_iceberg(NAME).transaction() as transaction:
        transaction.set_properties({CONFIRMED: str(current)})
    Run(store).publish()
    assert rows() == records(4)


def test_a_published_batch_whose_snapshot_has_expired_keeps_its_files(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-29: the process was killed behind its commit."""
    Run(store).publish()

    real = IcebergLog._commit_snapshot

    def commit(self: IcebergLog, table: Any, entry: Entry) -> None:
        real(self, table, entry)
        raise Crash

    monkeypatch.setattr(IcebergLog, "_commit_snapshot", commit)
    with pytest.raises(Crash):
        Run(store).publish()
    monkeypatch.undo()
    catalog_again(store, monkeypatch)
    load_iceberg(NAME).append(load_iceberg(NAME).scan().to_arrow().slice(0, 0))
    expire(*snapshot_ids()[:-1])
    Run(store).publish()
    assert rows() == records(6)
    assert not [path for path in files_of(store) if "pending-" in path]


def test_damaged_entries_are_named(store: LocalStore) -> None:
    """W-29"""
    run = Run(store)
    run.publish()
    for properties, message in (
        ({"kfast.entry": "{}"}, "snapshot .* is not an entry"),
        ({"kfast.entry": "deflate:x"}, "snapshot .* is not an entry"),
    ):
        table = load_iceberg(NAME)
        empty = table.scan().to_arrow().slice(0, 0)
        table.append(empty, snapshot_properties=properties)
        with pytest.raises(TableError, match=message):
            Run(store)
    roll_back(snapshot_ids()[0])
    with load_iceberg(NAME).transaction() as transaction:
        transaction.set_properties({"kfast.columns": "[]"})
    with pytest.raises(TableError, match=r"kfast\.columns of the Iceberg table .* is damaged"):
        Run(store)


# --- names and errors -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "table", "message"),
    [
        ("parquet", NAME, "iceberg-table = test.lake.orders with the format parquet"),
        ("iceberg", "", "not a table of a catalog"),
        ("iceberg", "lake.orders", "not a table of a catalog"),
        ("iceberg", "test..lake.orders", "not a table of a catalog"),
    ],
)
def test_what_is_no_table_of_a_catalog_is_refused(format: str, table: str, message: str) -> None:
    """W-30"""
    with pytest.raises(ConfigurationError, match=message):
        check_iceberg(format, table)
    with pytest.raises(ConfigurationError, match=message):
        IngestOptions(topics=("t",), to="/x", format=format, iceberg_table=table)


def test_errors_of_a_catalog_have_the_table_and_what_to_do(
    store: LocalStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """W-30: and nothing of pyiceberg is written to the terminal."""
    with pytest.raises(ConfigurationError, match="cannot open the catalog none"):
        IcebergLog(store, "none.lake.orders")
    with pytest.raises(TableError, match=r"there is no Iceberg table test\.lake\.none"):
        load_iceberg("test.lake.none")
    run = Run(store)
    run.publish()
    with load_iceberg(NAME).transaction() as transaction:
        transaction.set_properties({"write.parquet.row-group-size-bytes": "1"})
    run.publish()
    metadata = Path(load_iceberg(NAME).metadata_location.removeprefix("file://"))
    metadata.rename(f"{metadata}.away")
    with pytest.raises(KafkaError, match=r"cannot read the Iceberg table test\.lake\.orders"):
        Run(store)
    settings(monkeypatch, TYPE="rest", URI="http://127.0.0.1:9/", WAREHOUSE="")
    with pytest.raises(ConfigurationError, match="cannot open the catalog test"):
        IcebergLog(store, NAME)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("folder", ["_delta_log/0.json", "_kfast/log/0.json"])
def test_folders_of_other_tables_are_refused(store: LocalStore, folder: str) -> None:
    """W-30"""
    store.create(folder, b"{}")
    with pytest.raises(ConfigurationError, match="is the folder of a "):
        Run(store)


def test_without_pyiceberg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """W-30"""
    import sys  # noqa: PLC0415 - this one only

    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    with pytest.raises(MissingDependencyError, match=r"needs pyiceberg"):
        IcebergLog(LocalStore(tmp_path), NAME)
