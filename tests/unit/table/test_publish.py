"""Publishing without Spark: crashes at every step, two drivers at once, other checkpoints.

A table is exactly-once if, whatever dies, the files readers see are those of each offset once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from kfast import TopicPartition
from kfast.errors import ConfigurationError, KafkaError
from kfast.spark.ingest.checkpoint import first_offsets, has_batches, writer_id
from kfast.table.batches import (
    BatchCounts,
    DataFile,
    PartitionGone,
    PartitionRestart,
    ReadRange,
    files_in,
)
from kfast.table.entries import Entry, TableShape, Writer, decode_entry, encode_entry
from kfast.table.fsspec_store import FsspecStore, open_store
from kfast.table.leftovers import probe_store, sweep_leftovers
from kfast.table.manifest_log import LOG, ManifestLog
from kfast.table.publish import Publisher
from kfast.table.store import TableStore
from kfast.table.table_log import STAGING, OpenTable
from tests.unit.table.tables import (
    FIRST,
    SECOND,
    Crash,
    Crashing,
    Range,
    Tasks,
    rows,
    seen,
    table,
)

pytestmark = pytest.mark.slow  # hundreds of small tables on disk


def test_batches_become_visible_in_turn(store: TableStore) -> None:
    writer = table(store).writer
    publisher, tasks = Publisher(ManifestLog(store)), Tasks(store)
    assert seen(store) == []
    entry = publisher.publish(writer, 0, tasks.run(*FIRST))
    assert (entry.rows, entry.counts.rows) == (8, 8)
    entry = publisher.publish(writer, 1, tasks.run(*SECOND))
    assert (entry.rows, entry.counts.rows) == (15, 7)
    assert dict(entry.ends) == {
        TopicPartition("t", 0): 9,
        TopicPartition("t", 1): 4,
        TopicPartition("t", 2): 2,
    }
    assert seen(store) == rows(*FIRST, *SECOND)
    assert store.files(STAGING) == []
    assert ManifestLog(store).last() == entry


def test_a_batch_without_records_moves_the_ends(store: TableStore) -> None:
    writer = table(store).writer
    entry = Publisher(ManifestLog(store)).publish(writer, 0, [ReadRange("t", 0, 0, 4)])
    assert dict(entry.ends) == {TopicPartition("t", 0): 4}
    assert seen(store) == []
    entry = Publisher(ManifestLog(store)).publish(writer, 1, Tasks(store).run((0, 4, 6)))
    assert seen(store) == rows((0, 4, 6))


STEPS = 9
"""More than a batch of three files has: create, renames, mark, and in a repetition removals."""


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", range(STEPS))
@pytest.mark.parametrize("crashes", [1, 2])
def test_exactly_once_whatever_step_a_driver_dies_at(
    store: TableStore, at: int, is_after: bool, crashes: int
) -> None:
    writer = table(store).writer
    tasks = Tasks(store)
    Publisher(ManifestLog(store)).publish(writer, 0, tasks.run(*FIRST))
    for _ in range(crashes):
        dying = Crashing(store, at, is_after)
        with suppress(Crash):
            # A start after a crash recovers before Spark repeats the batch; it may die, too.
            table(dying)
            Publisher(ManifestLog(dying)).publish(writer, 1, tasks.run(*SECOND))
        listed = ManifestLog(store).last()
        assert listed is not None
        assert set(seen(store)) <= set(rows(*FIRST, *SECOND))
        assert len(seen(store)) == len(set(seen(store)))
        if listed.batch_id == 1:
            table(store)  # the next start is enough, even if Spark never repeats the batch
            assert seen(store) == rows(*FIRST, *SECOND)
    # Spark repeats the batch, with another plan.
    again = ((0, 5, 7), (0, 7, 9), (1, 3, 4), (2, 0, 2))
    opened = table(store)
    assert opened.writer == writer
    Publisher(ManifestLog(store)).publish(writer, 1, tasks.run(*again))
    Publisher(ManifestLog(store)).publish(writer, 2, tasks.run((0, 9, 11)))
    assert seen(store) == rows(*FIRST, *SECOND, (0, 9, 11))


def test_a_batch_that_was_published_is_skipped_and_its_new_files_go(store: TableStore) -> None:
    writer = table(store).writer
    publisher, tasks = Publisher(ManifestLog(store)), Tasks(store)
    first = publisher.publish(writer, 0, tasks.run(*FIRST))
    assert publisher.publish(writer, 0, tasks.run(*FIRST)) == first
    assert seen(store) == rows(*FIRST)
    assert store.files(STAGING) == []


def test_abort_removes_what_was_not_published(store: TableStore) -> None:
    writer = table(store).writer
    publisher, tasks = Publisher(ManifestLog(store)), Tasks(store)
    publisher.abort(writer, 0, files_in(tasks.run(*FIRST)), is_complete=False)
    assert store.files(STAGING) == []
    publisher.publish(writer, 0, tasks.run(*FIRST))
    assert seen(store) == rows(*FIRST)


def test_abort_after_the_batch_counted_keeps_its_files(store: TableStore) -> None:
    writer = table(store).writer
    tasks = Tasks(store)
    parts = tasks.run(*FIRST)
    dying = Crashing(store, 1, is_after=False)  # created, then nothing renamed
    with pytest.raises(Crash):
        Publisher(ManifestLog(dying)).publish(writer, 0, parts)
    unlisted = tasks.run(*FIRST)
    files = files_in([*parts, *unlisted])
    Publisher(ManifestLog(store)).abort(writer, 0, files, is_complete=True)
    assert len(store.files(STAGING)) == 2
    table(store)
    assert seen(store) == rows(*FIRST)
    assert store.files(STAGING) == []


def test_two_drivers_publish_the_same_batch(store: TableStore) -> None:
    """The slow one has seen no entry; creating it fails."""
    writer = table(store).writer
    tasks = Tasks(store)

    class Slow(ManifestLog):
        def append(self, entry: Entry) -> bool:
            Publisher(ManifestLog(store)).publish(writer, 0, tasks.run(*FIRST))
            return super().append(entry)

    entry = Publisher(Slow(store)).publish(writer, 0, tasks.run(*FIRST))
    assert entry == ManifestLog(store).last()
    assert seen(store) == rows(*FIRST)
    assert store.files(STAGING) == []


def test_a_checkpoint_that_was_put_back(store: TableStore) -> None:
    writer = table(store).writer
    publisher, tasks = Publisher(ManifestLog(store)), Tasks(store)
    publisher.publish(writer, 0, tasks.run(*FIRST))
    with pytest.raises(KafkaError, match="is repeated with offsets up to 6") as caught:
        publisher.publish(writer, 0, tasks.run((0, 0, 7), (1, 0, 3)))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 7)
    assert seen(store) == rows(*FIRST)


@pytest.mark.parametrize(
    ("repeated", "message"),
    [
        ((*FIRST, (2, 0, 10)), "published with no offsets of t-2, and is repeated with offsets up"),
        (FIRST[:1], "published with offsets up to 2 of t-1, and is repeated with no offsets"),
    ],
    ids=["more partitions", "fewer partitions"],
)
def test_a_batch_that_is_repeated_with_other_partitions(
    store: TableStore, repeated: tuple[Range, ...], message: str
) -> None:
    """TB-01: nothing is removed as if it were another attempt at the same offsets."""
    writer = table(store).writer
    publisher, tasks = Publisher(ManifestLog(store)), Tasks(store)
    publisher.publish(writer, 0, tasks.run(*FIRST))
    with pytest.raises(KafkaError, match=message):
        publisher.publish(writer, 0, tasks.run(*repeated))
    assert seen(store) == rows(*FIRST)


@pytest.mark.parametrize("batch_id", [0, 3], ids=["earlier", "later"])
def test_a_batch_that_does_not_follow_the_last_one(store: TableStore, batch_id: int) -> None:
    """TB-01: as after the table was restored."""
    writer = table(store).writer
    publisher, tasks = Publisher(ManifestLog(store)), Tasks(store)
    publisher.publish(writer, 0, tasks.run((0, 0, 5)))
    publisher.publish(writer, 1, tasks.run((0, 5, 6)))
    store.remove(f"{LOG}/{writer.sequence(0):020d}.json")
    with pytest.raises(KafkaError, match="does not follow"):
        publisher.publish(writer, batch_id, tasks.run((0, 6, 7)))
    assert seen(store) == rows((0, 0, 6))


def test_offsets_that_the_table_has_are_refused(store: TableStore) -> None:
    writer = table(store).writer
    publisher, tasks = Publisher(ManifestLog(store)), Tasks(store)
    publisher.publish(writer, 0, tasks.run(*FIRST))
    with pytest.raises(KafkaError, match="created anew"):
        publisher.publish(writer, 1, tasks.run((1, 0, 2)))
    assert seen(store) == rows(*FIRST)
    publisher.publish(writer, 1, tasks.run((1, 3, 5)))
    assert seen(store) == rows(*FIRST, (1, 3, 5))


@pytest.mark.parametrize("kind", ["removed", "cut"])
def test_a_file_the_driver_does_not_see(store: TableStore, kind: str) -> None:
    writer = table(store).writer
    parts = Tasks(store).run(*FIRST)
    staged = files_in(parts)[1].staged
    store.remove(staged)
    if kind == "cut":
        store.create(staged, b"1:0\n")
    with pytest.raises(KafkaError, match="is not as its task wrote it"):
        Publisher(ManifestLog(store)).publish(writer, 0, parts)
    assert seen(store) == []
    last = ManifestLog(store).last()
    assert last is not None
    assert last.batch_id is None


# --- who writes the table -------------------------------------------------------------------------


def test_another_checkpoint_is_refused_without_take_over(store: TableStore) -> None:
    tasks = Tasks(store)
    old = table(store).writer
    Publisher(ManifestLog(store)).publish(old, 0, tasks.run(*FIRST))
    with pytest.raises(ConfigurationError, match="/checkpoints/w") as caught:
        table(store, "new")
    assert "--take-over" in str(caught.value)
    opened = table(store, "new", take_over=True)
    assert opened.last.ends == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 3}
    assert opened.last.rows == 8
    Publisher(ManifestLog(store)).publish(opened.writer, 0, tasks.run((0, 5, 6)))
    # The old query is still running somewhere.
    with pytest.raises(KafkaError, match="another ingest has taken over"):
        Publisher(ManifestLog(store)).publish(old, 1, tasks.run((0, 5, 8)))
    with pytest.raises(KafkaError, match="another ingest has taken over"):
        Publisher(ManifestLog(store)).publish(old, 2, tasks.run((0, 8, 9)))
    with pytest.raises(ConfigurationError, match="/checkpoints/new"):
        table(store)
    assert seen(store) == rows(*FIRST, (0, 5, 6))


def test_the_last_batch_of_the_writer_before_is_finished(store: TableStore) -> None:
    """W-02: also if the next start is that of another writer."""
    tasks = Tasks(store)
    old = table(store).writer
    dying = Crashing(store, 1, is_after=False)  # created, then nothing renamed
    with pytest.raises(Crash):
        Publisher(ManifestLog(dying)).publish(old, 0, tasks.run(*FIRST))
    opened = table(store, "new", take_over=True)
    assert seen(store) == rows(*FIRST)
    Publisher(ManifestLog(store)).publish(opened.writer, 0, tasks.run((0, 5, 6)))
    assert seen(store) == rows(*FIRST, (0, 5, 6))


def test_a_checkpoint_with_batches_goes_on_but_does_not_begin(store: TableStore) -> None:
    log = ManifestLog(store)
    with pytest.raises(ConfigurationError, match=r"batches that .* does not have"):
        table(store, is_used=True)
    assert log.last() is None
    opened = table(store)
    assert table(store, is_used=True) == opened, "its first batch was begun"
    taken = table(store, "new", take_over=True)
    with pytest.raises(ConfigurationError, match=r"batches that .* does not have"):
        table(store, take_over=True, is_used=True)
    assert log.last() == taken.last, "the refused one has left nothing"


def test_two_queries_begin_at_once(store: TableStore) -> None:
    class Slow(ManifestLog):
        def begin(self, *arguments: Any) -> OpenTable | None:
            table(store, "first")
            return super().begin(*arguments)

    with pytest.raises(ConfigurationError, match="another query has just begun"):
        table(store, "second", log=Slow(store))


def test_a_writer_that_slept_while_its_entries_were_forgotten(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = 7
    monkeypatch.setattr("kfast.table.manifest_log.KEPT_ENTRIES", kept)
    writer = table(store).writer
    publisher, tasks = Publisher(ManifestLog(store)), Tasks(store)
    for batch_id in range(kept + 5):
        publisher.publish(writer, batch_id, [ReadRange("t", 0, batch_id, batch_id + 1)])
    assert len(store.files(LOG)) == kept
    with pytest.raises(KafkaError, match="batches up to 11 of this ingest, and batch 1 does not"):
        publisher.publish(writer, 1, tasks.run((0, 1, 2)))
    assert table(store).last.sequence == kept + 5


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (TableShape("delta", "offset bigint"), "has the format parquet"),
        (TableShape("parquet", "value binary"), "has the column offset of type bigint"),
        (TableShape("parquet", "offset bigint", ("date",)), "has the partition_by none"),
    ],
)
def test_another_shape_is_refused(store: TableStore, shape: TableShape, message: str) -> None:
    table(store)
    with pytest.raises(ConfigurationError, match=message):
        table(store, shape=shape, take_over=True)


def test_a_folder_with_files_is_no_table(store: TableStore) -> None:
    store.create("sub/some.parquet", b"x")
    with pytest.raises(ConfigurationError, match="has files, but no log") as caught:
        table(store)
    assert caught.value.found == "sub/some.parquet"
    store.create("_delta_log/0.json", b"x")
    with pytest.raises(ConfigurationError, match="is a Delta table"):
        table(store)


def test_where_the_first_batch_begins_is_kept(store: TableStore) -> None:
    offsets = {TopicPartition("t", 0): 3}
    assert first_offsets(store, offsets) == offsets
    assert first_offsets(store, {TopicPartition("t", 0): 9}) == offsets


def test_the_id_in_a_checkpoint(store: TableStore) -> None:
    first = writer_id(store)
    assert writer_id(store) == first
    store.create("offsets/0", b"v1")
    assert writer_id(store) == first
    assert has_batches(store)


def test_the_checkpoint_of_another_query(store: TableStore) -> None:
    store.create("offsets/0", b"v1")
    with pytest.raises(ConfigurationError, match="checkpoint of another query"):
        writer_id(store)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"id2": 1}'])
def test_a_damaged_id(store: TableStore, text: bytes) -> None:
    store.create("kfast-ingest.json", text)
    with pytest.raises(ConfigurationError, match="is damaged"):
        writer_id(store)


# --- orphans --------------------------------------------------------------------------------------


def test_orphans_are_swept_by_age(store: TableStore) -> None:
    writer = table(store).writer
    log, tasks = ManifestLog(store), Tasks(store)
    files = tasks.run(*FIRST)
    with pytest.raises(Crash):
        Publisher(ManifestLog(Crashing(store, 1, is_after=False))).publish(writer, 0, files)
    orphans = tasks.run((0, 5, 6))
    now_ms = probe_store(store)
    assert Publisher(log).sweep(now_ms, 60_000) == 0
    assert Publisher(log).sweep(now_ms + 60_000, 60_000) == 1
    assert store.stat(files_in(orphans)[0].staged) is None
    assert len(store.files(STAGING)) == 2, "published, not renamed: no orphans"
    table(store)
    assert seen(store) == rows(*FIRST)


def test_the_probe_finds_a_store_that_only_looks_first(store: TableStore) -> None:
    assert probe_store(store) > 0
    assert [file.path for file in store.files("_kfast") if "probe" in file.path] == []

    class Overwriting(Crashing):
        def create(self, path: str, data: bytes) -> bool:
            self._store.remove(path)
            return self._store.create(path, data)

    with pytest.raises(ConfigurationError, match="created twice"):
        probe_store(Overwriting(store, -1, is_after=True))


def test_what_killed_processes_left_is_swept(store: TableStore) -> None:
    """TB-02: partial files and probes, once no process can be at work on them."""
    table(store)
    partial, probe = f"{LOG}/.{'0a' * 16}", "_kfast/probe-1"
    store.create(partial, b"half")
    store.create(probe, b"1")
    now_ms = probe_store(store)
    kept = {file.path for file in store.files("_kfast")}
    assert sweep_leftovers(store, now_ms) == 0
    assert sweep_leftovers(store, now_ms + 600_000) == 2
    assert {file.path for file in store.files("_kfast")} == kept - {partial, probe}


# --- stores ---------------------------------------------------------------------------------------


def test_a_store_creates_a_file_once(store: TableStore) -> None:
    assert store.read("a/b") is None
    assert store.stat("a/b") is None
    assert store.files("a") == []
    assert store.create("a/b", b"one")
    assert not store.create("a/b", b"two")
    assert store.read("a/b") == b"one"
    assert [(file.path, file.bytes) for file in store.files("a")] == [("a/b", 3)]
    store.rename("a/b", "c/d")
    assert store.read("a/b") is None
    store.create("e", b"new")
    store.rename("e", "c/d")
    assert store.read("c/d") == b"new"
    store.remove("c/d")
    store.remove("c/d")
    assert store.files("") == []
    with pytest.raises(FileNotFoundError):
        store.rename("nothing", "c/d")


def test_a_create_whose_answer_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    store = open_store("memory://lost")
    assert isinstance(store, FsspecStore)
    real = type(memory).pipe_file

    def lose(self: Any, path: str, value: bytes, mode: str = "overwrite") -> None:
        real(self, path, value, mode)
        raise TimeoutError("no answer")

    monkeypatch.setattr(type(memory), "pipe_file", lose)
    assert store.create("x", b"mine")
    monkeypatch.setattr(
        type(memory), "pipe_file", lambda *_, **__: (_ for _ in ()).throw(OSError("412"))
    )
    assert not store.create("x", b"other")
    with pytest.raises(OSError, match="412"):
        store.create("y", b"nothing there")
    monkeypatch.undo()
    memory.rm("/lost", recursive=True)


# --- the form of entries --------------------------------------------------------------------------


def entry() -> Entry:
    """Return a full entry."""
    file = DataFile("_kfast/staging/w/x", "date=2026-01-01/t-0-0-5.parquet", 5, 99)
    parts = (
        PartitionRestart("t", 0, 40, 0),
        ReadRange("t", 0, 0, 5, (file,), 1, 2, "3-4"),
        PartitionGone("u", 1, 7),
    )
    writer = Writer("w", "/c", 3)
    shape = TableShape("parquet", "offset bigint", ("date",))
    ends, restarts = {TopicPartition("t", 0): 5}, {TopicPartition("t", 0): 1}
    return Entry(7, writer, shape, 3, parts, ends, 50, 990, restarts, {"t": "AbC"},
                 BatchCounts(5, 99, 1, 1, 2), "id")  # fmt: skip


def test_an_entry_survives_its_json() -> None:
    assert decode_entry(encode_entry(entry()), "x") == entry()
    body = json.loads(encode_entry(entry()))
    assert body["ends"] == {"t": {"0": 5}}, "in Kafka's own form"
    line = encode_entry(entry(), with_files=False)
    assert b"\n" not in line
    without = decode_entry(line, "x")
    assert without.files == []
    assert without.counts == entry().counts


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body.pop("writer"),
        lambda body: body.update(parts=[{"nonsense": 1}]),
        lambda body: body.update(parts=[{"kind": "nonsense"}]),
        lambda body: body.update(ends=[1]),
        lambda body: body.update(sequence="x"),
        lambda body: body.update(table=None),
    ],
)
def test_a_damaged_entry_is_named(damage: Callable[[dict[str, Any]], object]) -> None:
    body = json.loads(encode_entry(entry()))
    damage(body)
    with pytest.raises(KafkaError, match="the/path is not an entry"):
        decode_entry(json.dumps(body).encode(), "the/path")


def test_an_entry_of_a_newer_kfast() -> None:
    body = {**json.loads(encode_entry(entry())), "version": 3}
    with pytest.raises(KafkaError, match="version 3") as caught:
        decode_entry(json.dumps(body).encode(), "p")
    assert caught.value.hint == "upgrade kfast"
    body["version"] = 1
    with pytest.raises(KafkaError, match="version 1") as caught:
        decode_entry(json.dumps(body).encode(), "p")
    assert "another folder" in str(caught.value.hint)


def test_half_an_entry_stops_everything(store: TableStore) -> None:
    writer = table(store).writer
    store.create(f"{LOG}/{writer.begin + 1:020d}.json", encode_entry(entry())[:40])
    with pytest.raises(KafkaError, match="is not an entry"):
        table(store)
    store.remove(f"{LOG}/{writer.begin + 1:020d}.json")
    store.create(f"{LOG}/{writer.begin + 1:020d}.json", encode_entry(entry()))
    with pytest.raises(KafkaError, match="under another name"):
        table(store)
