"""H-07 to H-09: schemas that grow and numbers that become wider, also while an ingest runs."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import kfast
from kfast.errors import ConfigurationError
from kfast.table.entries import Entry
from kfast.table.ingest import Ingest
from kfast.table.ingest.options import IngestOptions
from kfast.table.schema_changes import schema_change
from tests.end_to_end.ingests import Table, Truth
from tests.end_to_end.stage import eventually
from tests.fake_registry.server import FakeRegistry, silent
from tests.unit.table.iceberg_tables import NAME, catalog

fastavro = pytest.importorskip("fastavro")
duckdb = pytest.importorskip("duckdb")

Json = dict[str, Any]


def record(**fields: Any) -> str:
    """Return a schema of Avro with fields; one that may be null has that as its default."""
    made = [
        {"name": name, "type": kind, **({"default": None} if isinstance(kind, list) else {})}
        for name, kind in fields.items()
    ]
    return json.dumps({"type": "record", "name": "R", "fields": made})


FIRST: Final = record(id="int", price="float")
ADDED: Final = record(id="int", price="float", user=["null", "string"])
WIDER: Final = record(id="long", price="double", user=["null", "string"])
SHORTER: Final = record(id="long")


class Producer:
    """Writes values of the topic ``a``, each with the id of its schema."""

    def __init__(self, truth: Truth, fake: FakeRegistry) -> None:
        self._truth = truth
        self._fake = fake
        truth.cluster.create_topic("a", 2)
        self.count = 0

    def write(self, text: str, **row: Any) -> None:
        """Register a schema and write a value by it to each partition."""
        number = self._fake.register("a-value", text)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, json.loads(text), row)
        value = b"\0" + number.to_bytes(4, "big") + out.getvalue()
        for partition in (0, 1):
            self._truth.cluster.append("a", partition, [value])
        self.count += 2


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as server:
        yield server


@contextmanager
def following(
    table: Table, registry: kfast.SchemaRegistry, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> Iterator[list[Entry]]:
    """Follow the topic ``a`` meanwhile; yield the manifests."""
    monkeypatch.setattr("kfast.table.ingest.ingesting.METADATA_MS", 30)
    given = {"columns": ("partition", "offset", "value"), **more}
    value = kfast.Avro(registry=registry, reader="latest")
    options = IngestOptions(
        topics=("a",), to=str(table.folder), follow=True, every_ms=20, value=value, **given
    )
    entries: list[Entry] = []
    run = Ingest(options, {"bootstrap_servers": table.servers}, published=entries.append)
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        yield entries
    finally:
        run.stop()
        thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize("has_dead_letters", [False, True], ids=["ahead", "with files"])
def test_a_follow_takes_columns_that_are_registered(
    truth: Truth,
    table: Table,
    tmp_path: Path,
    fake: FakeRegistry,
    monkeypatch: pytest.MonkeyPatch,
    has_dead_letters: bool,
) -> None:
    """H-07: without a restart; each record is there once, older ones have null."""
    more: Json = {}
    if has_dead_letters:
        more = {"dead_letter": str(tmp_path / "letters"), "on_error": "null"}
    producer = Producer(truth, fake)
    producer.write(FIRST, id=1, price=1.5)
    with (
        kfast.SchemaRegistry(fake.url) as registry,
        following(table, registry, monkeypatch, **more) as entries,
    ):
        eventually(lambda: bool(entries) and entries[-1].rows == 2)
        eventually(lambda: wrote_with(producer, entries, "user:string", ADDED, 3))
        eventually(lambda: wrote_with(producer, entries, "id:bigint", WIDER, 2**40))
    rows = duckdb.sql(
        f'select partition, "offset", value.id, value.price, value.user from '
        f"read_parquet('{table.folder}/*.parquet', union_by_name=true) order by 1, 2"
    ).fetchall()
    places = [row[:2] for row in rows]
    assert places == [(p, at) for p in (0, 1) for at in range(producer.count // 2)]
    assert rows[0][2:] == (1, 1.5, None)
    assert rows[-1][2:] == (2**40, 2.5, "ann")
    assert "struct<id:bigint,price:double,user:string>" in table.last.shape.schema
    wide = pq.read_schema(_newest(table))
    found = ds.dataset(table.folder, schema=wide).to_table()
    assert found.num_rows == producer.count
    assert table.last.rows == producer.count


def _newest(table: Table) -> Path:
    return max(table.folder.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


def wrote_with(producer: Producer, entries: list[Entry], column: str, text: str, at: int) -> bool:
    """Write a record to each partition by a schema; return whether files had a column by then.

    A version may come into use after its first records, which are read by the one before.
    """
    is_used = column in entries[-1].shape.schema
    producer.write(text, id=at, price=2.5, user="ann")
    eventually(lambda: entries[-1].rows == producer.count)
    return is_used


def test_a_version_that_a_table_cannot_take_is_named_once(
    truth: Truth,
    table: Table,
    fake: FakeRegistry,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """H-07: records are read by the version before, and the ingest goes on."""
    producer = Producer(truth, fake)
    producer.write(ADDED, id=1, price=1.5, user="ann")
    with (
        kfast.SchemaRegistry(fake.url) as registry,
        following(table, registry, monkeypatch, on_error="null") as entries,
    ):
        eventually(lambda: bool(entries) and entries[-1].rows == 2)
        fake.register("a-value", SHORTER)
        eventually(lambda: bool(_refusals(caplog)))
        for _ in range(3):
            producer.write(ADDED, id=2, price=2.5, user="bob")
            eventually(lambda: entries[-1].rows == producer.count)
    (text,) = _refusals(caplog)
    assert "value.price" in text
    values = ds.dataset(table.folder).to_table().column("value").to_pylist()
    assert sorted(value["user"] for value in values) == ["ann"] * 2 + ["bob"] * 6


def test_a_registry_that_is_silent_delays_nothing(
    truth: Truth, table: Table, fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H-07: records of schemas that are known are published while a version is asked for."""
    producer = Producer(truth, fake)
    producer.write(FIRST, id=1, price=1.5)
    released = threading.Event()
    try:
        with (
            kfast.SchemaRegistry(fake.url) as registry,
            following(table, registry, monkeypatch) as entries,
        ):
            eventually(lambda: bool(entries) and entries[-1].rows == 2)
            asked = len(fake.paths)
            fake.answer_next(*[silent(released)] * 20)
            eventually(lambda: len(fake.paths) > asked)
            for number in range(3):
                producer.write(FIRST, id=number, price=1.5)
                eventually(lambda: entries[-1].rows == producer.count)
            assert not released.is_set()
            released.set()
    finally:
        released.set()


def _refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.levelno == logging.WARNING and "a newer schema is not used" in each.getMessage()
    ]


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_catalogs_get_the_columns(
    truth: Truth,
    table: Table,
    tmp_path: Path,
    fake: FakeRegistry,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
) -> None:
    """H-07: a Delta and an Iceberg table, while they are written."""
    more: Json = {"format": format}
    if format == "iceberg":
        pytest.importorskip("pyiceberg")
        catalog(tmp_path, monkeypatch)
        more["iceberg_table"] = NAME
    else:
        deltalake = pytest.importorskip("deltalake")
    producer = Producer(truth, fake)
    producer.write(FIRST, id=1, price=1.5)
    with (
        kfast.SchemaRegistry(fake.url) as registry,
        following(table, registry, monkeypatch, **more) as entries,
    ):
        eventually(lambda: bool(entries) and entries[-1].rows == 2)
        eventually(lambda: wrote_with(producer, entries, "user:string", ADDED, 3))
    if format == "delta":
        found = deltalake.DeltaTable(str(table.folder)).to_pyarrow_table()
    else:
        from kfast.table.iceberg_catalog import load_iceberg  # noqa: PLC0415 - needs the package

        found = load_iceberg(NAME).scan().to_arrow()
    rows = sorted(found.to_pylist(), key=lambda row: (row["partition"], row["offset"]))
    assert len(rows) == producer.count
    assert rows[0]["value"] == {"id": 1, "price": 1.5, "user": None}
    assert rows[-1]["value"]["user"] == "ann"


# --- numbers that become wider --------------------------------------------------------------------


NARROW: Final = kfast.Json({"id": "int32", "in": {"f": "float32", "n": "int16"}})
WIDE: Final = kfast.Json({"id": "int64", "in": {"f": "float64", "n": "int32"}})


def write(truth: Truth, *documents: Any) -> None:
    """Append documents to the topic ``j``."""
    if "j" not in truth.cluster.topics:
        truth.cluster.create_topic("j", 1)
    truth.cluster.append("j", 0, [json.dumps(each).encode() for each in documents])


def test_numbers_become_wider(truth: Truth, table: Table) -> None:
    """H-08: in structs too; readers that are asked for the types of all files see all values."""
    write(truth, {"id": 1, "in": {"f": 1.5, "n": 2}})
    given: Json = {"columns": ["offset", "value"]}
    table.ingest("j", value=NARROW, **given)
    write(truth, {"id": 2**40, "in": {"f": 1e300, "n": 2**20}})
    assert table.ingest("j", value=WIDE, **given).rows == 1
    expected = [
        {"id": 1, "in": {"f": 1.5, "n": 2}},
        {"id": 2**40, "in": {"f": 1e300, "n": 2**20}},
    ]
    wide = pq.read_schema(table.folder / "j-0-1-2.parquet")
    assert wide.field("value").type.field("id").type == pa.int64()
    found = ds.dataset(table.folder, schema=wide).to_table().sort_by("offset")
    assert found.column("value").to_pylist() == expected
    names = f"read_parquet('{table.folder}/*.parquet', union_by_name=true)"
    rows = duckdb.sql(f'select value from {names} order by "offset"').fetchall()
    assert [row[0] for row in rows] == expected


def test_a_table_keeps_its_wider_types(truth: Truth, table: Table) -> None:
    """H-09: files have them, also of keys and values that are numbers without a schema."""
    write(truth, {"id": 1, "in": {"f": 1.5, "n": 2}})
    given: Json = {"columns": ["offset", "value"]}
    table.ingest("j", value=WIDE, **given)
    write(truth, {"id": 2, "in": {"f": 2.5, "n": 3}})
    schema = table.last.shape.schema
    assert table.ingest("j", value=NARROW, **given).rows == 1
    assert table.last.shape.schema == schema
    found = ds.dataset(table.folder).to_table().sort_by("offset").column("value")
    assert found.to_pylist()[1] == {"id": 2, "in": {"f": 2.5, "n": 3}}
    first, second = (pq.read_schema(table.folder / f"j-0-{n}-{n + 1}.parquet") for n in (0, 1))
    assert first.field("value").type == second.field("value").type
    truth.cluster.create_topic("n", 1)
    other = Table(table.folder / "../numbers", table.servers)
    for kind, size in (("int64", 8), ("int32", 4)):
        truth.cluster.append("n", 0, [(7).to_bytes(size, "big")])
        assert other.ingest("n", value=kind, columns=["offset", "value"]).rows == 1
    column = ds.dataset(other.folder).to_table().column("value")
    assert (column.type, column.to_pylist()) == (pa.int64(), [7, 7])


def test_iceberg_tables_get_wider_types(
    truth: Truth, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H-08: int to long and float to double, as its specification has them."""
    pytest.importorskip("pyiceberg")
    from kfast.table.iceberg_catalog import load_iceberg  # noqa: PLC0415 - needs the package

    catalog(tmp_path, monkeypatch)
    given: Json = {"format": "iceberg", "iceberg_table": NAME, "columns": ["offset", "value"]}
    narrow = kfast.Json({"id": "int32", "in": {"f": "float32"}})
    write(truth, {"id": 1, "in": {"f": 1.5}})
    table.ingest("j", value=narrow, **given)
    write(truth, {"id": 2**40, "in": {"f": 1e300}})
    table.ingest("j", value=kfast.Json({"id": "int64", "in": {"f": "float64"}}), **given)
    write(truth, {"id": 3, "in": {"f": 2.5}})
    table.ingest("j", value=narrow, **given)
    found = load_iceberg(NAME).scan().to_arrow().sort_by("offset").column("value").to_pylist()
    assert found == [
        {"id": 1, "in": {"f": 1.5}},
        {"id": 2**40, "in": {"f": 1e300}},
        {"id": 3, "in": {"f": 2.5}},
    ]


@pytest.mark.parametrize("format", ["delta", "arrow"])
def test_other_formats_get_no_wider_types(truth: Truth, table: Table, format: str) -> None:
    """H-08: refused before the first record, with both types; narrower values are written."""
    if format == "delta":
        pytest.importorskip("deltalake")
    given: Json = {"columns": ["offset", "value"], "format": format}
    write(truth, {"id": 1, "in": {"f": 1.5, "n": 2}})
    table.ingest("j", value=NARROW, **given)
    before = table.last
    with pytest.raises(ConfigurationError, match=r"column value\.id of type int") as raised:
        table.ingest("j", value=WIDE, **given)
    assert f"tables of the format {format}" in str(raised.value)
    assert "this one has bigint" in str(raised.value)
    assert table.last == before
    wide = Table(table.folder / "../wide", table.servers)
    for form in (WIDE, NARROW):
        write(truth, {"id": 1, "in": {"f": 1.5, "n": 2}})
        wide.ingest("j", value=form, **given)
    assert wide.last.rows == 3


@pytest.mark.parametrize(
    ("has", "wants", "added", "widened", "kept"),
    [
        ("a int", "a bigint", (), ("a",), []),
        ("a tinyint", "a smallint", (), ("a",), []),
        ("a bigint", "a int", (), (), ["a"]),
        ("a float", "a double, b int", ("b",), ("a",), []),
        ("s struct<a:int,b:bigint>", "s struct<a:bigint,b:int,c:int>", ("s.c",), ("s.a",), ["s.b"]),
    ],
)
def test_what_changes(has: str, wants: str, added: Any, widened: Any, kept: list[str]) -> None:
    """H-08, H-09: by path."""
    change = schema_change(has, wants, "/t")
    assert (change.added, change.widened, [*change.kept]) == (added, widened, kept)


@pytest.mark.parametrize(
    ("has", "wants"),
    [
        ("a int", "a float"),
        ("a int", "a double"),
        ("a bigint", "a string"),
        ("a int", "a decimal(10,0)"),
        ("a array<int>", "a array<bigint>"),
        ("a map<string,int>", "a map<string,bigint>"),
        ("a date", "a timestamp"),
    ],
)
def test_what_cannot_change(has: str, wants: str) -> None:
    """H-08: in both directions."""
    for pair in ((has, wants), (wants, has)):
        with pytest.raises(ConfigurationError, match="has the column a of type"):
            schema_change(*pair, "/t")
