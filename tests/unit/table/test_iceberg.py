"""CL-272, CL-273: tables of Iceberg, through pyiceberg and a catalog in a file."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kfast.table.iceberg_register import IcebergRegister, check_iceberg, load_iceberg

import kfast
from kfast.errors import ConfigurationError, KafkaError
from kfast.table.compaction import compact_table
from kfast.table.entries import Entry, TableShape, decode_entry, encode_entry
from kfast.table.ingest.options import IngestOptions
from kfast.table.manifest_log import ManifestLog
from kfast.table.projection import OutputColumn, Projection, output_column
from kfast.table.publish import Publisher, register_for
from kfast.table.store import LocalStore
from tests.unit.table.tables import Crash
from tests.unit.table.test_compaction import SmallFiles, places_in

Config = pytest.importorskip("pyiceberg.utils.config").Config

NAME = "test.lake.orders"
COLUMNS = Projection(tuple(output_column(name) for name in ("topic", "partition", "offset")))
SHAPE = TableShape("iceberg", COLUMNS.ddl, (), NAME)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    """Give a folder for a table; the catalog has its own."""
    catalog(tmp_path, monkeypatch)
    return LocalStore(tmp_path / "table")


def catalog(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name a catalog in a file as its users do."""
    (folder / "warehouse").mkdir()
    for name, value in (
        ("TYPE", "sql"),
        ("URI", f"sqlite:///{folder}/catalog.db"),
        ("WAREHOUSE", f"file://{folder}/warehouse"),
    ):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__TEST__{name}", value)
    # Its variables are read when it is imported.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


@pytest.fixture
def register(store: LocalStore) -> IcebergRegister:
    made = register_for(store, SHAPE)
    assert isinstance(made, IcebergRegister)
    made.create(COLUMNS)
    return made


def rows() -> Counter[tuple[int, int]]:
    return Counter(places_in(load_iceberg(NAME).scan().to_arrow()))


class Dying:
    """A process that is killed at the commit to the catalog, or behind it."""

    def __init__(self, register: IcebergRegister | None = None) -> None:
        self._register = register

    def add(self, entry: Entry) -> None:
        if self._register is not None:
            self._register.add(entry)
        raise Crash

    def has(self, entry: Entry) -> bool:
        raise Crash


def published(store: LocalStore, table: SmallFiles, number: int, register: Any) -> Entry:
    log = ManifestLog(store)
    return Publisher(log, register).publish(table.table.writer, number, table.stage())


def test_an_iceberg_table_has_each_record_once(
    store: LocalStore, register: IcebergRegister
) -> None:
    """CL-272: the summary of a snapshot has batch and offsets."""
    table = SmallFiles(store, SHAPE)
    for number in range(3):
        entry = published(store, table, number, register)
        assert register.has(entry)
    assert rows() == table.places
    found = load_iceberg(NAME)
    summary = found.current_snapshot().summary.additional_properties
    assert summary["kfast.batch"] == str(entry.sequence)
    assert json.loads(summary["kfast.offsets"]) == {"t": {"0": 6, "1": 6}}
    assert len(found.snapshots()) == 3
    assert "commit.retry.num-retries" not in found.properties, "that is the user's"
    register.add(entry)
    assert rows() == table.places
    files = kfast.table_files(store.url)
    assert len(files) == 6
    assert all(name.startswith(f"file://{store.url}/date=") for name in files)


@pytest.mark.parametrize("is_added", [False, True])
def test_a_batch_that_was_published_and_not_finished_is_added_once(
    store: LocalStore, register: IcebergRegister, is_added: bool
) -> None:
    """CL-272: killed before the commit to the catalog, and behind it."""
    table = SmallFiles(store, SHAPE)
    published(store, table, 0, register)

    with pytest.raises(Crash):
        published(store, table, 1, Dying(register if is_added else None))
    last = ManifestLog(store).last()
    assert last is not None
    for _ in range(2):
        Publisher(ManifestLog(store), register).recover(last)
        assert rows() == table.places


def test_two_processes_that_finish_the_same_batch(
    store: LocalStore, register: IcebergRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-272: the one that was overtaken looks again, and does not try its commit again."""
    table = SmallFiles(store, SHAPE)
    published(store, table, 0, register)
    with pytest.raises(Crash):
        published(store, table, 1, Dying())
    last = ManifestLog(store).last()
    assert last is not None
    real, others = IcebergRegister._commit, [IcebergRegister(store, SHAPE)]

    def commit(self: IcebergRegister, loaded: Any, entry: Entry) -> None:
        if others:
            others.pop().add(entry)
        real(self, loaded, entry)

    monkeypatch.setattr(IcebergRegister, "_commit", commit)
    register.add(last)
    assert rows() == table.places


def test_another_writer_of_the_table_does_not_stop_an_ingest(
    store: LocalStore, register: IcebergRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-272: deletes, expired snapshots; what keeps overtaking it is an error at last."""
    table = SmallFiles(store, SHAPE)
    published(store, table, 0, register)
    real, busy = IcebergRegister._commit, [1]

    def commit(self: IcebergRegister, loaded: Any, entry: Entry) -> None:
        if busy[0]:
            busy[0] -= 1
            load_iceberg(NAME).delete("partition = 0")
            load_iceberg(NAME).append(loaded.scan().to_arrow().slice(0, 1))
        real(self, loaded, entry)

    monkeypatch.setattr(IcebergRegister, "_commit", commit)
    entry = published(store, table, 1, register)
    assert sum(rows().values()) == 2 + 1 + 4
    found = load_iceberg(NAME)
    old = [each.snapshot_id for each in found.snapshots()][:-1]
    found.maintenance.expire_snapshots().by_ids(old).commit()
    assert register.has(entry)
    busy[0] = 100
    with pytest.raises(KafkaError, match="cannot add batch 2 to the Iceberg table"):
        published(store, table, 2, register)


def test_columns_are_added(store: LocalStore, register: IcebergRegister) -> None:
    """CL-273: older files are null there."""
    table = SmallFiles(store, SHAPE)
    published(store, table, 0, register)
    more = Projection((*COLUMNS.columns, OutputColumn("note", "value", "string")))
    register.create(more)
    register.create(more)
    published(store, table, 1, register)
    found = load_iceberg(NAME)
    assert [field.name for field in found.schema().fields] == [
        "topic",
        "partition",
        "offset",
        "note",
    ]
    assert found.scan().to_arrow().column("note").null_count == 8
    assert rows() == table.places


@pytest.mark.parametrize(
    ("format", "table", "partition_by", "message"),
    [
        ("parquet", NAME, (), "iceberg-table = test.lake.orders with the format parquet"),
        ("iceberg", "", (), "not a table of a catalog"),
        ("iceberg", "lake.orders", (), "not a table of a catalog"),
        ("iceberg", NAME, ("date",), "would be null"),
    ],
)
def test_what_does_not_go_together_is_refused(
    format: str, table: str, partition_by: tuple[str, ...], message: str
) -> None:
    """CL-273"""
    with pytest.raises(ConfigurationError, match=message):
        check_iceberg(format, table, partition_by)
    with pytest.raises(ConfigurationError, match=message):
        IngestOptions(
            topics=("t",), to="/x", format=format, iceberg_table=table, partition_by=partition_by
        )


def test_a_partitioned_table_a_missing_catalog_and_compaction_are_refused(
    store: LocalStore, register: IcebergRegister
) -> None:
    """CL-273: by an error that says what to do."""
    SmallFiles(store, SHAPE)
    with pytest.raises(ConfigurationError, match="is the Iceberg table") as caught:
        compact_table(store.url)
    assert "rewrite_data_files" in str(caught.value)
    with pytest.raises(ConfigurationError, match="cannot open the catalog none"):
        IcebergRegister(store, TableShape("iceberg", catalog_table="none.lake.orders"))
    with load_iceberg(NAME).update_spec() as update:
        update.add_identity("partition")
    with pytest.raises(ConfigurationError, match="is partitioned"):
        register.create(COLUMNS)


def test_the_log_keeps_the_name(store: LocalStore) -> None:
    """CL-273: entries of older tables have none."""
    entry = SmallFiles(store, SHAPE).table.last
    data = encode_entry(entry)
    assert decode_entry(data, "").shape == SHAPE
    older = json.loads(data)
    del older["table"]["catalog_table"]
    assert decode_entry(json.dumps(older).encode(), "").shape.catalog_table == ""
    with pytest.raises(ConfigurationError, match="iceberg-table"):
        ManifestLog(store).check(entry, TableShape("iceberg", COLUMNS.ddl, (), "test.lake.other"))
