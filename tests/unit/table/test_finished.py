"""W-01, W-02: a finished batch's files are the user's; an unfinished batch is finished or named."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from kfast.errors import KafkaError
from kfast.table.batches import ReadRange, ranges_in
from kfast.table.manifest_log import FINISHED, LOG, ManifestLog
from kfast.table.publish import Publisher
from kfast.table.store import LocalStore, TableStore
from kfast.table.table_log import is_hidden
from tests.unit.table.tables import FIRST, SECOND, Crash, Crashing, Tasks, rows, seen, table


def delete(store: TableStore) -> None:
    for file in visible(store):
        store.remove(file)


def move(store: TableStore) -> None:
    for file in visible(store):
        store.rename(file, f"landed/{file}")


def compact(store: TableStore) -> None:
    data = "\n".join(seen(store)).encode()
    delete(store)
    store.create("compacted.parquet", data)


def visible(store: TableStore) -> list[str]:
    return [file.path for file in store.files("") if not is_hidden(file.path)]


MAINTENANCE = {"delete": delete, "move": move, "compact": compact}


@pytest.mark.parametrize("maintain", MAINTENANCE.values(), ids=MAINTENANCE)
def test_files_of_a_finished_batch_may_be_gone(
    store: TableStore, maintain: Callable[[TableStore], None]
) -> None:
    """W-01: neither the next start, nor a batch that Spark repeats, asks for them."""
    writer = table(store).writer
    log, tasks = ManifestLog(store), Tasks(store)
    publisher = Publisher(log)
    first = publisher.publish(writer, 0, tasks.run(*FIRST))
    maintain(store)
    kept = seen(store)
    assert table(store).last == first
    log.recover(first)
    assert publisher.publish(writer, 0, tasks.run(*FIRST)) == first
    assert seen(store) == kept, "nothing came back"
    publisher.publish(writer, 1, tasks.run(*SECOND))
    assert seen(store) == sorted([*kept, *rows(*SECOND)])


STEPS = {"create": 0, "first rename": 1, "second rename": 2, "mark": 3}


@pytest.mark.parametrize("at", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("is_after", [False, True])
def test_an_unfinished_batch_is_finished_once(store: TableStore, at: int, is_after: bool) -> None:
    writer = table(store).writer
    tasks = Tasks(store)
    with pytest.raises(Crash):
        Publisher(ManifestLog(Crashing(store, at, is_after))).publish(writer, 0, tasks.run(*FIRST))
    is_published = at > 0 or is_after
    table(store)
    assert seen(store) == (rows(*FIRST) if is_published else [])
    if is_published:
        delete(store)
        table(store)
        assert seen(store) == []


def test_a_lost_file_of_an_unfinished_batch_is_named_with_the_way_on(store: TableStore) -> None:
    """W-02: what neither kfast nor a reader has seen is not given up without an error."""
    writer = table(store).writer
    with pytest.raises(Crash):
        Publisher(ManifestLog(Crashing(store, 3, is_after=False))).publish(
            writer, 0, Tasks(store).run(*FIRST)
        )
    store.remove("t-1-0-3.parquet")
    with pytest.raises(KafkaError, match=r"t-1-0-3\.parquet is lost") as caught:
        table(store)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 1, 0)
    assert caught.value.found == "offsets 0 to 2 of t-1"
    assert caught.value.hint is not None
    mark = caught.value.hint.rpartition(f"{store.url}/")[2]
    store.create(mark, b"")
    assert table(store).last.rows == 8
    assert seen(store) == rows((0, 0, 5))


def test_a_batch_without_files_needs_no_mark(store: TableStore) -> None:
    writer = table(store).writer
    Publisher(ManifestLog(store)).publish(writer, 0, [ReadRange("t", 0, 0, 4)])
    assert store.files(FINISHED) == []


def test_marks_are_forgotten_with_their_entries(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfast.table.manifest_log.KEPT_ENTRIES", 3)
    writer = table(store).writer
    publisher, tasks = Publisher(ManifestLog(store)), Tasks(store)
    publisher.publish(writer, 0, tasks.run((0, 0, 1)))
    assert len(store.files(FINISHED)) == 1
    for batch_id in range(1, 4):
        publisher.publish(writer, batch_id, [ReadRange("t", 0, batch_id, batch_id + 1)])
    assert len(store.files(LOG)) == 3
    assert store.files(FINISHED) == []


class Sweeping(LocalStore):
    """A folder whose user removes partition folders as soon as they are empty, or empties them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.taken: list[str] = []

    def fsync_names(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        for path in paths:
            if not is_hidden(path):
                self.taken.append(path)
                self.remove(path)
                (Path(self.url) / path).parent.rmdir()
        super().fsync_names(paths)


def test_files_may_be_taken_as_soon_as_they_have_their_names(tmp_path: Path) -> None:
    """W-01: as a landing zone does, with their folder, before the batch is finished."""
    store = Sweeping(tmp_path / "table")
    writer = table(store).writer
    (part,) = ranges_in(Tasks(store).run((0, 0, 5)))
    file = replace(part.files[0], path=f"date=2026-01-01/{part.files[0].path}")
    entry = Publisher(ManifestLog(store)).publish(writer, 0, [replace(part, files=(file,))])
    assert store.taken == [file.path]
    assert table(store).last == entry


def test_a_folder_that_is_removed_between_its_making_and_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.create("a", b"x")
    real, calls = os.replace, []

    def replaced(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 1:
            Path(target).parent.rmdir()
        real(source, target)

    monkeypatch.setattr(os, "replace", replaced)
    store.rename("a", "date=2026-01-01/b")
    assert store.read("date=2026-01-01/b") == b"x"
    with pytest.raises(FileNotFoundError):
        store.rename("a", "date=2026-01-02/b")
