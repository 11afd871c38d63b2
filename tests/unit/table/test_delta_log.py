"""W-13 to W-15, W-18 to W-20, W-23: the log of a Delta table as the only log of its ingest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

deltalake = pytest.importorskip("deltalake")

from kfast.errors import ConfigurationError, KafkaError, TableError  # noqa: E402
from kfast.table.batches import PartitionGone, PartitionRestart  # noqa: E402
from kfast.table.delta_log import DeltaLog  # noqa: E402
from kfast.table.entries import KFAST_INGEST, Writer  # noqa: E402
from kfast.table.publish import ALL, Publisher  # noqa: E402
from kfast.table.store import LocalStore, TableStore  # noqa: E402
from kfast.types import TopicPartition  # noqa: E402
from tests.unit.table.delta_tables import (  # noqa: E402
    FIRST,
    FOREIGN,
    PROJECTION,
    SECOND,
    SHAPE,
    Ingest,
    by_other,
    commits,
    delta,
    files,
    live_files,
    pending,
    rows,
    seen,
)
from tests.unit.table.tables import Crash, Crashing  # noqa: E402

pytestmark = pytest.mark.slow  # hundreds of small tables on disk

THIRD = ((0, 9, 12),)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "table")


# --- commits --------------------------------------------------------------------------------------


def test_files_and_offsets_are_one_commit_and_the_next_run_goes_on(store: LocalStore) -> None:
    """W-13."""
    ingest = Ingest(store)
    ingest.publish(*FIRST)
    ingest.publish(*SECOND)
    assert seen(store) == rows(*FIRST, *SECOND)
    assert files(store) == live_files(store)
    assert pending(store) == []
    created, first, second = commits(store)
    assert created["add"] == []
    assert len(first["add"]) == 2
    assert first["txn"] == {"kfast": 1, "kfast:t:0": 5, "kfast:t:1": 3}
    assert second["txn"] == {"kfast": 2, "kfast:t:0": 9, "kfast:t:1": 4, "kfast:t:2": 2}
    entry = json.loads(second["commitInfo"]["kfast"])
    assert entry["ends"] == {"t": {"0": 9, "1": 4, "2": 2}}
    # A run has no entry of its own: without records the table's log stays as it is.
    again = Ingest(store)
    assert delta(store).version() == 2
    assert again.entry.ends == ingest.entry.ends
    assert again.entry.topic_ids == {"t": "id"}
    assert again.entry.rows == 15
    again.publish(*THIRD)
    assert seen(store) == rows(*FIRST, *SECOND, *THIRD)
    assert not store.files("_kfast/log")


def test_a_query_of_spark_has_an_entry_of_its_own_and_finds_its_batches(store: LocalStore) -> None:
    Ingest(store).publish(*FIRST)
    query = Ingest(store, checkpoint="/checkpoint")
    assert query.entry.sequence == 2
    assert delta(store).version() == 2, "its beginning"
    parts = query.parts(*SECOND)
    entry = query.publisher.publish(query.table.writer, 0, parts, None, SHAPE)
    assert Ingest(store, checkpoint="/checkpoint").entry == query.log.last()
    assert delta(store).version() == 3, "the same writer has no second one"
    # The driver was killed before Spark knew: the batch is repeated with other files.
    repeated = query.parts(*SECOND)
    again = Publisher(DeltaLog(store)).publish(query.table.writer, 0, repeated, None, SHAPE)
    assert again.id == entry.id
    assert seen(store) == rows(*FIRST, *SECOND)
    assert pending(store) == []
    assert files(store) == live_files(store)
    assert query.log.published(query.table.writer, 1) is None
    times = [time_ms for _, time_ms in query.log.after(None)]
    assert [entry.sequence for entry, _ in query.log.after(None)] == [0, 1, 2, 3]
    assert times == [commit["commitInfo"]["timestamp"] for commit in commits(store)]


def test_a_partition_that_begins_anew_and_one_that_is_gone(store: LocalStore) -> None:
    ingest = Ingest(store)
    ingest.publish(*FIRST)
    parts = [PartitionRestart("t", 0, 5, 0), *ingest.parts((0, 0, 2)), PartitionGone("t", 1, 3)]
    entry = ingest.publisher.publish(ingest.table.writer, 1, parts, None, SHAPE, ingest.entry)
    assert commits(store)[-1]["txn"] == {"kfast": 2, "kfast:t:0": 2}
    last = DeltaLog(store).last()
    assert last is not None
    assert (last.ends, last.restarts) == (entry.ends, {TopicPartition("t", 0): 1})
    assert seen(store) == sorted(rows(*FIRST) + rows((0, 0, 2)))


# --- restored, removed ----------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["version", "time"])
def test_a_restored_table_goes_on_where_it_was_then(store: LocalStore, by: str) -> None:
    """W-14."""
    ingest = Ingest(store)
    ingest.publish(*FIRST)
    ingest.publish(*SECOND, topic="u")
    ingest.publish(*THIRD, topic="u")
    for version in range(4):  # Delta's times of versions are those of the files
        seconds = 1_700_000_000 + version
        os.utime(Path(store.url, "_delta_log", f"{version:020d}.json"), (seconds, seconds))
    delta(store).restore(1 if by == "version" else datetime.fromtimestamp(1_700_000_001.5, UTC))
    assert seen(store) == rows(*FIRST)
    again = Ingest(store)
    assert again.entry.ends == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 3}
    assert again.entry.rows == 8
    again.publish(*SECOND)
    assert seen(store) == rows(*FIRST, *SECOND)
    assert seen(store, version=3) == sorted(rows(*FIRST, *SECOND) + rows(*THIRD))
    # The transactions say no more of what was undone.
    assert commits(store)[-1]["txn"] == {
        "kfast": 2, "kfast:t:0": 9, "kfast:t:1": 4, "kfast:t:2": 2,
        "kfast:u:0": -1, "kfast:u:1": -1, "kfast:u:2": -1,
    }  # fmt: skip
    # And forward, to what was undone; the writer of before does not go on with its own.
    delta(store).restore(3)
    last = DeltaLog(store).last()
    assert last is not None
    assert last.ends == ingest.entry.ends
    ingest.publish((0, 12, 13), topic="u")
    delta(store).restore(1)
    with pytest.raises(KafkaError, match="is now written by"):
        ingest.publish((0, 13, 14), topic="u")
    assert files(store) == [path for path in files(store) if "13-14" not in path]


def test_a_table_restored_to_before_its_ingest_has_no_offsets(store: LocalStore) -> None:
    deltalake.write_deltalake(store.url, FOREIGN)
    Ingest(store).publish(*FIRST)
    delta(store).restore(0)
    assert DeltaLog(store).last() is None
    Ingest(store).publish(*FIRST)
    assert seen(store) == sorted([(9, 99), *rows(*FIRST)])


def test_a_removed_log_or_one_of_files_is_refused_and_a_removed_table_begun(
    store: LocalStore,
) -> None:
    """W-15."""
    import shutil  # noqa: PLC0415

    Ingest(store).publish(*FIRST)
    shutil.rmtree(Path(store.url, "_delta_log"))
    with pytest.raises(ConfigurationError, match="has files, but no Delta log") as caught:
        Ingest(store)
    assert caught.value.found is not None
    assert "t-0-0-5" in caught.value.found
    shutil.rmtree(store.url)
    Ingest(store).publish(*FIRST)
    assert seen(store) == rows(*FIRST)
    store.create("_kfast/log/00000000000000000000.json", b"{}")
    with pytest.raises(ConfigurationError, match="an earlier kfast"):
        Ingest(store)


def test_a_table_that_is_removed_while_it_is_written_ends_the_ingest(store: LocalStore) -> None:
    import shutil  # noqa: PLC0415

    ingest = Ingest(store)
    ingest.publish(*FIRST)
    parts = ingest.parts(*SECOND)
    shutil.rmtree(Path(store.url, "_delta_log"))
    with pytest.raises(KafkaError, match="is now written by"):
        ingest.publisher.publish(ingest.table.writer, 1, parts, None, SHAPE, ingest.entry)


# --- writers --------------------------------------------------------------------------------------


def test_of_two_writers_one_publishes_a_number_and_the_other_leaves_nothing(
    store: LocalStore,
) -> None:
    """W-18."""
    Ingest(store)
    first, second = Ingest(store), Ingest(store)
    first.publish(*FIRST)
    with pytest.raises(KafkaError, match="is now written by"):
        second.publish(*FIRST)
    assert seen(store) == rows(*FIRST)
    assert files(store) == live_files(store)


def test_a_writer_that_wakes_up_inside_of_its_commit_changes_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-18: a late process, between the names of its files and its commit."""
    late = Ingest(store)
    late.publish(*FIRST)
    commit = deltalake.DeltaTable.create_write_transaction
    calls: list[int] = []

    def wait(table: Any, *arguments: Any, **options: Any) -> None:
        if not calls:
            calls.append(1)
            with monkeypatch.context() as context:
                context.setattr(deltalake.DeltaTable, "create_write_transaction", commit)
                other = Ingest(store)  # recovers, and may not touch the late one's files yet
                assert len(files(store)) == len(live_files(store)) + len(SECOND)
                other.publish(*SECOND)
                Ingest(store)  # now it may: they cannot be committed any more
                assert files(store) == live_files(store)
        commit(table, *arguments, **options)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", wait)
    with pytest.raises(KafkaError, match="is now written by"):
        late.publish(*SECOND)
    assert calls
    assert seen(store) == rows(*FIRST, *SECOND)
    assert files(store) == live_files(store)
    assert pending(store) == []


def test_two_processes_create_a_table_and_the_other_one_goes_on(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-18."""
    create = deltalake.DeltaTable.create

    def overtaken(*arguments: Any, **options: Any) -> Any:
        with monkeypatch.context() as context:
            context.setattr(deltalake.DeltaTable, "create", create)
            Ingest(store)
        return create(*arguments, **options)

    log = DeltaLog(store)
    writer = Writer("slow", KFAST_INGEST, 0)
    with monkeypatch.context() as context:
        context.setattr(deltalake.DeltaTable, "create", overtaken)
        assert log.begin(writer, SHAPE, PROJECTION, None) is None
    assert len(commits(store)) == 1
    assert log.begin(writer, SHAPE, PROJECTION, log.last()) is not None
    Ingest(store, log=log).publish(*FIRST)
    assert seen(store) == rows(*FIRST)


@pytest.mark.parametrize("other", ["append", "optimize", "vacuum", "delete", "properties"])
def test_commits_of_others_come_in_between(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """W-19: a batch is committed after them, once."""
    ingest = Ingest(store)
    ingest.publish(*FIRST)
    ingest.publish((0, 5, 7))
    commit = deltalake.DeltaTable.create_write_transaction
    waiting = [1, 1]

    def overtaken(table: Any, *arguments: Any, **options: Any) -> None:
        if waiting:
            waiting.pop()
            with monkeypatch.context() as context:
                context.setattr(deltalake.DeltaTable, "create_write_transaction", commit)
                by_other(store, other)
        commit(table, *arguments, **options)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", overtaken)
    ingest.publish((0, 7, 9))
    assert not waiting
    expected = rows((0, 0, 9), (1, 0, 3))
    if other == "append":
        expected = sorted([(9, 99), (9, 99), *expected])
    elif other == "delete":
        expected = rows((0, 0, 9))
    assert seen(store) == expected
    assert pending(store) == []
    again = Ingest(store)
    assert again.entry.ends == {TopicPartition("t", 0): 9, TopicPartition("t", 1): 3}
    again.publish((0, 9, 10))
    assert seen(store) == sorted([*expected, (0, 9)])


def test_a_table_that_others_commit_to_all_the_time_is_named(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-19."""
    ingest = Ingest(store)
    commit = deltalake.DeltaTable.create_write_transaction

    def overtaken(table: Any, *arguments: Any, **options: Any) -> None:
        with monkeypatch.context() as context:
            context.setattr(deltalake.DeltaTable, "create_write_transaction", commit)
            by_other(store, "append")
        commit(table, *arguments, **options)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", overtaken)
    with pytest.raises(KafkaError, match="other commits came first") as caught:
        ingest.publish(*FIRST)
    assert store.url in str(caught.value)
    assert files(store) == live_files(store)
    assert pending(store) == []


# --- crashes --------------------------------------------------------------------------------------


def stop_inside(monkeypatch: pytest.MonkeyPatch, *, is_after: bool) -> None:
    commit = deltalake.DeltaTable.create_write_transaction

    def crash(table: Any, *arguments: Any, **options: Any) -> None:
        if is_after:
            commit(table, *arguments, **options)
        raise Crash

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", crash)


def continue_to(store: TableStore, letters: LocalStore) -> None:
    """What the next run does: it goes on where the table ends, up to the end of SECOND."""
    ingest = Ingest(store, letters=letters.url)
    ends = {tp.partition: end for tp, end in ingest.entry.ends.items()}
    left = [(p, ends.get(p, 0), end) for p, _, end in SECOND if ends.get(p, 0) < end]
    if left:
        ingest.publish(*left)
    ingest.publisher.sweep(0, ALL, letters.url)


def assert_once(store: TableStore, letters: LocalStore) -> None:
    assert seen(store) == rows(*FIRST, *SECOND)
    assert files(store) == live_files(store)
    assert pending(store) == pending(letters) == []
    # A dead letter for each file, under the name of its file.
    names = [re.findall(r"([0-9a-f]{32})\.parquet", path)[0] for path in files(store)]
    assert sorted(path.removesuffix(".txt") for path in files(letters)) == sorted(names)


@pytest.mark.parametrize("is_after", [False, True])
def test_a_crash_at_any_step_leaves_each_record_once(tmp_path: Path, is_after: bool) -> None:
    """W-20."""
    for number in range(100):
        store = LocalStore(tmp_path / f"{number}" / "table")
        letters = LocalStore(tmp_path / f"{number}" / "letters")
        Ingest(store, letters=letters.url).publish(*FIRST)
        ingest = Ingest(store, letters=letters.url)
        parts = ingest.parts(*SECOND)
        log = DeltaLog(Crashing(store, number, is_after))
        try:
            Publisher(log).publish(ingest.table.writer, 0, parts, None, SHAPE, ingest.entry)
        except Crash:
            assert seen(store) in (rows(*FIRST), rows(*FIRST, *SECOND))
            continue_to(store, letters)
            assert_once(store, letters)
        else:
            break
    assert number == 5, "the pending file, three names, the pending file again"


@pytest.mark.parametrize("is_after", [False, True])
def test_a_crash_inside_of_the_commit_leaves_each_record_once(
    tmp_path: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    """W-20."""
    letters = LocalStore(tmp_path / "letters")
    ingest = Ingest(store, letters=letters.url)
    ingest.publish(*FIRST)
    with monkeypatch.context() as context:
        stop_inside(context, is_after=is_after)
        with pytest.raises(Crash):
            ingest.publish(*SECOND)
    continue_to(store, letters)
    assert_once(store, letters)


def test_a_batch_that_another_process_publishes_removes_what_a_killed_one_has_left(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-20: with Spark a process of its own publishes each batch."""
    query = Ingest(store, checkpoint="/checkpoint")
    with monkeypatch.context() as context:
        stop_inside(context, is_after=False)
        with pytest.raises(Crash):
            query.publish(*FIRST)
    again = Ingest(store, checkpoint="/checkpoint")
    parts = again.parts(*FIRST)
    assert len(files(store)) == len(FIRST), "the killed one may be slow"
    Publisher(DeltaLog(store)).publish(again.table.writer, 0, parts, None, SHAPE)
    assert seen(store) == rows(*FIRST)
    assert files(store) == live_files(store)


@pytest.mark.parametrize("is_again", [False, True])
def test_a_commit_whose_answer_is_lost_was_one(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, is_again: bool
) -> None:
    """W-20: also if another writer has committed since."""
    ingest = Ingest(store)
    ingest.publish(*FIRST)
    commit = deltalake.DeltaTable.create_write_transaction

    def lose(table: Any, *arguments: Any, **options: Any) -> None:
        commit(table, *arguments, **options)
        with monkeypatch.context() as context:
            context.setattr(deltalake.DeltaTable, "create_write_transaction", commit)
            if is_again:
                Ingest(store).publish(*THIRD)
        raise OSError("connection reset")

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", lose)
    ingest.publish(*SECOND)
    assert seen(store) == rows(*FIRST, *SECOND, *(THIRD if is_again else ()))
    assert pending(store) == []


def test_a_failed_commit_names_table_and_version_and_its_files_go_with_the_next_one(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-20, W-23."""
    ingest = Ingest(store)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("\x1b[31mGeneric S3 error\x1b[0m\n  \u21b3 timed out")

    with monkeypatch.context() as context:
        context.setattr(deltalake.DeltaTable, "create_write_transaction", fail)
        with pytest.raises(KafkaError, match="at version 1") as caught:
            ingest.publish(*FIRST)
    assert store.url in str(caught.value)
    assert caught.value.cause == "Generic S3 error timed out"
    assert caught.value.hint
    ingest.publish(*FIRST)
    assert seen(store) == rows(*FIRST)
    assert pending(store) == []
    assert files(store) == live_files(store)


_KILLED = """
import sys
from pathlib import Path
from kfast.table.store import LocalStore
from tests.unit.table.delta_tables import Ingest

store = LocalStore(Path(sys.argv[1]))
ingest = Ingest(store)
for number in range(1_000):
    end = {tp.partition: end for tp, end in ingest.entry.ends.items()}.get(0, 0)
    ingest.publish((0, end, end + 3))
    print(end + 3, flush=True)
"""


@pytest.mark.slow
def test_a_process_killed_at_any_time_leaves_each_record_once(store: LocalStore) -> None:
    """W-20: SIGKILL inside of the package, too."""
    for number in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", _KILLED, store.url], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        with process:
            for _ in range(2 + number % 3):
                assert process.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):  # somewhere in the next batch
                process.wait(number * 0.003)
            process.kill()
        places = seen(store)
        assert places == rows((0, 0, len(places)))
    ingest = Ingest(store)
    ingest.publish((0, len(places), len(places) + 1))
    ingest.publisher.sweep(0, ALL)
    assert files(store) == live_files(store)
    assert pending(store) == []


# --- errors --------------------------------------------------------------------------------------


def test_a_damaged_commit_is_named(store: LocalStore) -> None:
    Ingest(store).publish(*FIRST)
    log = DeltaLog(store)
    path = Path(store.url, "_delta_log", f"{1:020d}.json")
    text = path.read_text()
    path.write_text(text.replace('\\"ends\\"', '\\"wrong\\"'))
    with pytest.raises(TableError, match="is not an entry of a table's log") as caught:
        log.last()
    assert path.name in str(caught.value)
    path.write_text("{")
    with pytest.raises(TableError, match="cannot read the Delta table"):
        log.last()


def test_nothing_of_the_package_reaches_the_terminal(
    store: LocalStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """W-23."""
    ingest = Ingest(store)
    ingest.publish(*FIRST)
    log = DeltaLog(store)
    log.check(SHAPE, PROJECTION, log.last())
    with pytest.raises(KafkaError):
        Ingest(LocalStore(Path("/proc/none")))
    assert capfd.readouterr() == ("", "")
