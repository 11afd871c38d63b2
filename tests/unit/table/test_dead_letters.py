"""Dead letters are published with the table, whatever step a process dies at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kfast.table.batches import BatchPart, files_in, ranges_in
from kfast.table.manifest_log import ManifestLog
from kfast.table.publish import ALL, Publisher
from kfast.table.store import LocalStore, TableStore
from kfast.table.table_log import STAGING
from tests.unit.table.tables import FIRST, Crash, Crashing, Tasks, rows, seen, table


class Batches:
    """Runs attempts of a batch's tasks, the first of which has dead letters."""

    def __init__(self, store: TableStore, letters: TableStore) -> None:
        self._url = letters.url
        self._tasks, self._letters = Tasks(store), Tasks(letters)

    def run(self) -> list[BatchPart]:
        first, *others = ranges_in(self._tasks.run(*FIRST))
        (written,) = files_in(self._letters.run(FIRST[0]))
        letters = replace(written, folder=self._url, rows=2)
        return [replace(first, files=(*first.files, letters)), *others]


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", range(8))
def test_exactly_once_whatever_step_fails(tmp_path: Path, at: int, is_after: bool) -> None:
    """W-12: with the table's files or not at all; an option that is left out changes nothing."""
    store, letters = LocalStore(tmp_path / "table"), LocalStore(tmp_path / "letters")
    writer = table(store).writer
    batches = Batches(store, letters)
    files = batches.run()
    steps = Crashing(store, at, is_after)

    def crashing(url: str) -> TableStore:
        """Return the other folder, in which the same process dies at the same step."""
        assert url == letters.url
        other = Crashing(letters, at, is_after)
        other._step = steps._step  # type: ignore[method-assign]
        return other

    try:
        Publisher(ManifestLog(steps, crashing), crashing).publish(writer, 0, files)
    except Crash:
        opened = table(store)  # the next start, which knows the folder from the manifest
        publisher = Publisher(ManifestLog(store))
        publisher.sweep(0, ALL, letters.url)
        assert opened.writer == writer
        publisher.publish(writer, 0, batches.run())
    assert seen(store) == rows(*FIRST)
    assert seen(letters) == rows(FIRST[0])
    assert not store.files(STAGING)
    assert not letters.files(STAGING)
    entry = ManifestLog(store).last()
    assert entry is not None
    assert (entry.counts.rows, entry.rows, entry.counts.dead_letters) == (8, 8, 2)


def test_a_failed_batch_takes_its_dead_letters_with_it(tmp_path: Path) -> None:
    """W-12: abort removes them, too."""
    store, letters = LocalStore(tmp_path / "table"), LocalStore(tmp_path / "letters")
    writer = table(store).writer
    files = files_in(Batches(store, letters).run())
    Publisher(ManifestLog(store)).abort(writer, 0, files, is_complete=False)
    assert not letters.files("")
    assert not store.files(STAGING)
