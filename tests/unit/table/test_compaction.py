"""CL-260 to CL-266: small files become large ones; no reader sees a record twice, at no moment."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kfast
from kfast.errors import ConfigurationError, KafkaError, TableError
from kfast.table.compaction import compacting
from kfast.table.compaction.compacting import compact_table
from kfast.table.compaction.files import paths_of
from kfast.table.compaction.manifests import COMPACTED, COMPACTIONS, CompactionLog
from kfast.table.compaction.merging import Merger
from kfast.table.entries import TableShape
from kfast.table.fsspec_store import open_store
from kfast.table.lock import COMPACTION, table_lock
from kfast.table.manifest_log import ManifestLog
from kfast.table.store import LocalStore, StoredFile, TableStore
from tests.unit.table.compacted_tables import (
    HOUR_MS,
    SCHEMA,
    SmallFiles,
    check,
    compactor,
    made,
    places,
    visible,
)
from tests.unit.table.tables import Crash, Crashing

pytestmark = pytest.mark.slow  # hundreds of small tables on disk


class Watched(Crashing):
    """A store that calls a function before and after each step that changes something."""

    def __init__(self, store: TableStore, watch: Callable[[], object]) -> None:
        super().__init__(store, at=-2, is_after=False)
        self._watch = watch

    def _step(self, action: Callable[[], Any]) -> Any:
        self._watch()
        result = action()
        self._watch()
        return result


# --- what becomes of the files --------------------------------------------------------------------


def test_small_files_of_a_folder_become_one(store: TableStore) -> None:
    """CL-260"""
    table = made(store)
    summary = compactor(store).run()
    assert (summary.files, summary.new_files, summary.rows) == (6, 2, 12)
    assert (summary.swapped, summary.waiting) == (2, 0)
    names = visible(store)
    assert [name.partition("/")[0] for name in names] == ["date=2026-01-01", "date=2026-01-02"]
    assert all("/t-" in name and name.endswith(".parquet") for name in names)
    assert summary.new_bytes == sum(file.bytes for file in map(store.stat, names) if file)
    check(table)
    assert compactor(store).run().new_files == 0, "nothing left to do"
    table.publish()
    assert compactor(store).run().files == 4
    check(table)
    compactor(store).run()
    assert store.files(COMPACTED) == []
    assert len([file for file in store.files(COMPACTIONS) if file.path.endswith(".json")]) == 1


def test_rows_come_in_the_order_of_offsets(store: TableStore) -> None:
    """CL-260: 9 is before 10."""
    made(store, 7)
    compactor(store).run()
    (first, _) = visible(store)
    assert pq.read_table(io.BytesIO(store.read(first) or b"")).column("offset").to_pylist() == [
        *range(14)
    ]


def test_files_are_put_together_up_to_the_target(store: TableStore) -> None:
    """CL-261"""
    table = made(store, 5)
    sizes = [file.bytes for path in visible(store) if (file := store.stat(path))]
    summary = compactor(store, target=2 * max(sizes)).run()
    assert (summary.files, summary.new_files) == (8, 4)
    check(table)
    assert compactor(store, target=min(sizes)).run().files == 0, "none is small"


def test_files_of_other_columns_stay_apart(store: TableStore) -> None:
    """CL-261: also those that are not kfast's."""
    table = made(store, 2)
    for number in range(2):
        output = io.BytesIO()
        pq.write_table(pa.table({"a": pa.array([number], pa.int8())}), output)
        store.create(f"date=2026-01-01/mine-{number}.parquet", output.getvalue())
    store.create("date=2026-01-01/notes.txt", b"x")
    assert compactor(store).run().new_files == 3
    mine, theirs, notes, _ = visible(store)
    found = pq.read_table(io.BytesIO(store.read(mine) or b""))
    assert found.schema == pa.schema([("a", pa.int8())])
    assert found.column("a").to_pylist() == [0, 1]
    assert notes.endswith("txt") or theirs.endswith("txt")
    assert sum(table.places.values()) == 8


def test_a_new_file_is_written_as_an_ingest_writes(tmp_path: Path) -> None:
    """CL-261: codec, dictionaries, statistics and columns of every type."""
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            ("value", pa.struct([("id", pa.int64()), ("name", pa.string())])),
        ]
    )
    store = LocalStore(tmp_path)
    SmallFiles(store)
    row = {"topic": "t", "offset": 5, "timestamp": 7, "value": {"id": 1, "name": None}}
    rows = [{**row, "headers": None}, {**row, "headers": [{"key": "k", "value": b"v"}]}]
    for number, each in enumerate(rows):
        pq.write_table(pa.Table.from_pylist([each], schema), tmp_path / f"{number}.parquet",
                       store_schema=False)  # fmt: skip
    before = [pq.read_table(tmp_path / f"{number}.parquet") for number in range(2)]
    compact_table(str(tmp_path), retention_ms=0, compression="snappy")
    (path,) = visible(store)
    file = pq.ParquetFile(tmp_path / path)
    assert file.read() == pa.concat_tables(before)
    columns = {
        found.path_in_schema: found
        for number in range(file.metadata.num_columns)
        for found in [file.metadata.row_group(0).column(number)]
    }
    assert {each.compression for each in columns.values()} == {"SNAPPY"}
    assert columns["value.id"].statistics.min == 1
    assert "RLE_DICTIONARY" in columns["topic"].encodings
    assert "DELTA_BINARY_PACKED" in columns["offset"].encodings
    assert columns["headers.list.element.value"].statistics is None


def test_arrow_files(tmp_path: Path) -> None:
    """CL-261"""
    store = LocalStore(tmp_path)
    SmallFiles(store, TableShape("arrow"))
    for number in range(3):
        data = pa.table({"offset": [number]})
        with pa.ipc.new_file(str(tmp_path / f"t-0-{number}.arrow"), data.schema) as writer:
            writer.write_table(data)
    assert compact_table(str(tmp_path), retention_ms=0, compression="lz4").files == 3
    (name,) = kfast.table_files(str(tmp_path))
    with pa.ipc.open_file(name) as reader:
        assert reader.read_all().column("offset").to_pylist() == [0, 1, 2]


def test_a_row_group_is_bounded(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-261: and so is the memory of a compaction."""
    monkeypatch.setattr("kfast.table.compaction.merging.GROUP_ROWS", 4)
    table = made(store, 5)
    compactor(store).run()
    data = io.BytesIO(store.read(visible(store)[0]) or b"")
    assert pq.ParquetFile(data).metadata.num_row_groups == 3
    check(table)


# --- readers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("retention_ms", [0, HOUR_MS])
def test_readers_see_each_record_once_at_every_moment(store: TableStore, retention_ms: int) -> None:
    """CL-262: those of folders see none twice, and after the swap all."""
    table = made(store)
    seen: list[int] = []

    def watch() -> None:
        assert places(store, paths_of(store)) == table.places
        names = [file.path for file in store.files("") if file.path.endswith(".parquet")]
        assert names == visible(store), "a pattern for names finds no others"
        in_folder = places(store, names)
        assert max(in_folder.values(), default=1) == 1
        assert in_folder <= table.places
        seen.append(sum(in_folder.values()))

    compactor(Watched(store, watch), retention_ms).run()
    assert len(seen) >= 10
    assert (min(seen) == 12) == (retention_ms > 0), "with a retention the folder is as it was"
    check(table)


def test_names_stay_for_the_retention_time(tmp_path: Path) -> None:
    """CL-262: a reader that has begun finds each file that it was given."""
    store = LocalStore(tmp_path)
    table = made(store)
    old = kfast.table_files(str(tmp_path))
    assert compact_table(str(tmp_path)).waiting == 2
    new = kfast.table_files(str(tmp_path))
    assert len(old) == 6
    assert len(new) == 2
    assert not set(old) & set(new)
    assert compact_table(str(tmp_path)).swapped == 0, "not yet"
    assert all(Path(name).exists() for name in (*old, *new))
    age(store, HOUR_MS)
    assert compact_table(str(tmp_path)).swapped == 2
    assert not any(Path(name).exists() for name in old)
    assert all(Path(name).exists() for name in new), "for those that were given them"
    check(table)
    age(store, HOUR_MS)
    compact_table(str(tmp_path))
    assert not any(Path(name).exists() for name in new)
    check(table)


def age(store: LocalStore, ms: int) -> None:
    """Make all files of compactions older."""
    import os  # noqa: PLC0415

    for file in store.files(COMPACTIONS):
        path = Path(store.url, file.path)
        at = (file.modified_ms - ms) / 1000
        os.utime(path, (at, at))


def test_a_batch_counts_as_a_whole(store: TableStore) -> None:
    """CL-262: once all of its files have their names."""
    table = made(store, 2)
    before = table.places.copy()
    with pytest.raises(Crash):
        table.publish(Crashing(store, 2, is_after=False))
    assert before < places(store, visible(store)) < table.places, "a folder shows some of it"
    assert places(store, paths_of(store)) == before
    assert compactor(store).run().files == 4, "its files are the ingest's until it is finished"
    assert places(store, paths_of(store)) == before
    last = ManifestLog(store).last()
    assert last is not None
    ManifestLog(store).recover(last)
    check(table)


def test_a_batch_that_comes_while_the_folder_is_listed(store: TableStore) -> None:
    """CL-262: it does not count, or as a whole."""
    table = made(store, 1)
    before = table.places.copy()

    class Listing(Crashing):
        def files(self, folder: str) -> list[StoredFile]:
            found = super().files(folder)
            if not folder:
                table.publish()
                found += [store.stat(visible(store)[-1]) or found[0]]
            return found

    assert places(store, paths_of(Listing(store, -2, is_after=False))) == before
    check(table)


# --- kills, and others at the same time -----------------------------------------------------------


@pytest.mark.parametrize("retention_ms", [0, HOUR_MS])
@pytest.mark.parametrize("is_after", [False, True])
def test_a_compaction_that_dies_at_a_step_is_finished_by_the_next(
    store: TableStore, is_after: bool, retention_ms: int
) -> None:
    """CL-263"""
    table = made(store)
    for at in range(100):
        try:
            compactor(Crashing(store, at, is_after), retention_ms).run()
            break
        except Crash:
            assert places(store, paths_of(store)) == table.places
            assert max(places(store, visible(store)).values()) == 1
        compactor(store, retention_ms).run()
        check(table)
        table.publish(partitions=[at % 2])
        check(table)
    assert at > 3
    compactor(store).run()
    check(table)


def test_an_ingest_publishes_at_every_step_of_a_compaction(store: TableStore) -> None:
    """CL-264: neither waits for the other."""
    table = made(store)
    published = iter(range(6))

    def watch() -> None:
        if next(published, None) is not None:
            table.publish(rows=1)
        assert places(store, paths_of(store)) == table.places

    compactor(Watched(store, watch)).run()
    check(table)
    compactor(store).run()
    check(table)
    assert len(visible(store)) == 2


def test_a_table_is_compacted_at_every_step_of_a_batch(store: TableStore) -> None:
    """CL-264: and what is finished is recovered without the files."""
    table = made(store)
    before = table.places.copy()

    def watch() -> None:
        compactor(store).run()
        assert max(places(store, visible(store)).values()) == 1
        assert places(store, paths_of(store)) in (before, table.places)

    table.publish(Watched(store, watch))
    last = ManifestLog(store).last()
    assert last is not None
    ManifestLog(store).recover(last)
    check(table)


@pytest.mark.parametrize(
    ("at", "retention_ms"), [*((at, 0) for at in range(1, 30, 2)), (0, HOUR_MS), (3, HOUR_MS)]
)
def test_two_compactions_at_once(at: int, retention_ms: int) -> None:
    """CL-265: where there is no lock, one of them goes on while the other one stands at a step."""
    store = open_store(f"memory://two-{at}-{retention_ms}")
    table = made(store, 2)
    steps = iter(range(1000))

    def watch() -> None:
        if next(steps) == at:
            for _ in range(2):
                compactor(store, retention_ms).run()
                table.publish(rows=1)
                assert places(store, paths_of(store)) == table.places

    compactor(Watched(store, watch), retention_ms).run()
    check(table)
    compactor(store).run()
    check(table)


def test_a_second_compaction_on_this_machine_is_refused(tmp_path: Path) -> None:
    """CL-265: but not one beside an ingest."""
    made(LocalStore(tmp_path))
    with (
        table_lock(LocalStore(tmp_path), COMPACTION),
        pytest.raises(KafkaError, match="another process compacts"),
    ):
        compact_table(str(tmp_path))
    with table_lock(LocalStore(tmp_path)):
        assert compact_table(str(tmp_path)).files == 6


def test_what_the_user_removes_does_not_come_back(store: TableStore) -> None:
    """CL-266: files are the user's, also those that wait for their exchange."""
    table = made(store)
    compactor(store, HOUR_MS).run()
    gone = visible(store)[0]
    table.places -= places(store, [gone])
    store.remove(gone)
    check(table)
    assert compactor(store).run().waiting == 0
    check(table)
    new = visible(store)[-1]
    table.places -= places(store, [new])
    store.remove(new)
    check(table)
    compactor(store).run()
    check(table)


def test_a_file_that_is_removed_while_it_is_read(store: TableStore) -> None:
    """CL-266"""
    table = made(store)
    gone = visible(store)[0]

    class Removing(Crashing):
        def open_output(self, path: str) -> Any:
            if store.stat(gone):
                table.places -= places(store, [gone])
                store.remove(gone)
            return super().open_output(path)

    compactor(Removing(store, -2, is_after=False)).run()
    check(table)
    compactor(store).run()
    check(table)
    assert len(visible(store)) == 2


def test_new_files_without_a_manifest_are_swept(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-263: by age, since another compaction may be writing them."""
    made(store)
    store.create(f"{COMPACTED}/orphan.parquet", b"x")
    compactor(store).run()
    assert store.stat(f"{COMPACTED}/orphan.parquet")
    monkeypatch.setattr(compacting, "_ORPHAN_AGE_MS", -1)
    compactor(store, HOUR_MS).run()
    assert not store.stat(f"{COMPACTED}/orphan.parquet")


# --- mistakes -------------------------------------------------------------------------------------


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    for function in (compact_table, kfast.table_files):
        with pytest.raises(ConfigurationError, match="no table of plain files"):
            function(str(tmp_path))
    SmallFiles(LocalStore(tmp_path))
    for wrong in ({"target_file_bytes": 0}, {"retention_ms": -1}, {"compression": "brotli"}):
        with pytest.raises(ConfigurationError):
            compact_table(str(tmp_path), **wrong)
    assert kfast.table_files(str(tmp_path)) == []


def test_a_file_that_cannot_be_read_is_named(store: TableStore) -> None:
    table = made(store)
    store.create("date=2026-01-01/broken.parquet", b"no parquet")
    with pytest.raises(TableError, match=r"date=2026-01-01/broken\.parquet cannot be read"):
        compactor(store).run()
    store.remove("date=2026-01-01/broken.parquet")
    check(table)


@pytest.mark.parametrize("text", [b"", b"[]", b'{"version": 2}', b'{"version": 1, "path": "a"}'])
def test_a_damaged_manifest_is_named(store: TableStore, text: bytes) -> None:
    made(store)
    store.create(f"{COMPACTIONS}/{0:020d}.json", text)
    with pytest.raises(TableError, match=r"_kfast/compactions/0+\.json"):
        CompactionLog(store).states()


def test_rows_that_do_not_add_up_are_an_error(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-260: the table is as it was."""
    table = made(store)
    real = Merger._merge
    monkeypatch.setattr(Merger, "_merge", lambda self, paths, output: real(self, paths[1:], output))
    with pytest.raises(KafkaError, match="have 6 rows, and the new file has 4"):
        compactor(store).run()
    check(table)
    assert store.files(COMPACTED) == []


# --- Delta ----------------------------------------------------------------------------------------


def test_a_delta_table_is_left_to_its_own_engines(tmp_path: Path) -> None:
    """TB-03: two compactions by deltalake at once would double every record."""
    deltalake = pytest.importorskip("deltalake")
    deltalake.DeltaTable.create(str(tmp_path), SCHEMA)
    for refused in (compact_table, kfast.table_files):
        with pytest.raises(ConfigurationError, match="is a Delta table") as caught:
            refused(str(tmp_path))
        assert "optimize.compact" in str(caught.value.hint)
