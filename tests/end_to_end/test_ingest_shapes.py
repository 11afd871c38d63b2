"""Columns that are added, folders by values, and what a Delta log has of columns."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

import kfast
from kfast import TopicPartition, cli
from kfast.errors import ConfigurationError
from kfast.table.dead_letters import DeadLetters
from kfast.table.schema_changes import check_schema
from kfast.testing.batches import Record
from tests.end_to_end.ingests import START_MS, Table, Truth

pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")

OLD = kfast.Json({"id": "int64"})
NEW = kfast.Json({"id": "int64", "user": "string"})


def write(truth: Truth, *documents: Any, partition: int = 0) -> None:
    values = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in documents]
    records = [Record(None, value, timestamp=START_MS) for value in values]
    truth.cluster.append("j", partition, records, batch_records=2)


def values(folder: Path, *columns: str) -> list[dict[str, Any]]:
    """Return a Parquet table by offset, by all columns that any of its files has."""
    files = sorted(folder.rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    newest = ds.dataset(files[-1], partitioning="hive").schema
    read = ds.dataset(folder, schema=newest, partitioning="hive").to_table([*columns])
    found: list[dict[str, Any]] = read.to_pylist()
    return sorted(found, key=lambda row: row["offset"])


@pytest.fixture(autouse=True)
def documents(truth: Truth) -> None:
    truth.cluster.create_topic("j", 1)


# --- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_added_columns_are_null_in_older_files(truth: Truth, table: Table, format: str) -> None:
    """W-09: at the top and in structs, and the table goes on with its batches."""
    if format == "delta":
        delta = pytest.importorskip("deltalake")
    write(truth, {"id": 1}, {"id": 2})
    table.ingest("j", value=OLD, columns=["offset", "value"], format=format)
    write(truth, {"id": 3, "user": "c"})
    given = {"columns": ["offset", "value", "key"], "format": format}
    assert table.ingest("j", value=NEW, **given).rows == 1
    assert (
        table.last.shape.schema == "offset bigint, value struct<id:bigint,user:string>, key binary"
    )
    write(truth, {"id": 4, "user": "d"})
    assert table.ingest("j", value=NEW, **given).rows == 1
    if format == "delta":
        rows = delta.DeltaTable(str(table.folder)).to_pyarrow_table().to_pylist()
        rows.sort(key=lambda row: row["offset"])
        assert {"offset", "value", "key"} == rows[0].keys()
    else:
        import duckdb  # noqa: PLC0415 - a reader that knows columns by name

        at = f"read_parquet('{table.folder}/*.parquet', union_by_name=true)"
        found = duckdb.sql(f'select "offset", value, key from {at} order by 1')
        assert found is not None
        cells = found.fetchall()
        rows = [dict(zip(("offset", "value", "key"), row, strict=True)) for row in cells]
    assert [row["value"] for row in rows] == [
        {"id": 1, "user": None},
        {"id": 2, "user": None},
        {"id": 3, "user": "c"},
        {"id": 4, "user": "d"},
    ]


@pytest.mark.parametrize(
    ("wanted", "columns", "message", "found"),
    [
        (kfast.Json({"id": "string"}), "offset,value", r"value\.id of type bigint", "has string"),
        (kfast.Json({"n": "int64"}), "offset,value", r"value\.id of type bigint", "no such column"),
        (OLD, "offset", "column value of type struct<id: bigint>", "no such column"),
    ],
    ids=["type", "member left out", "column left out"],
)
def test_changed_columns_are_refused_by_name(
    truth: Truth, table: Table, wanted: kfast.Json, columns: str, message: str, found: str
) -> None:
    """W-09: what differs is named with both types, and the table stays as it is."""
    write(truth, {"id": 1})
    table.ingest("j", value=OLD, columns=["offset", "value"])
    before = table.last
    with pytest.raises(ConfigurationError, match=message) as raised:
        table.ingest("j", value=wanted, columns=columns.split(","))
    assert found in str(raised.value)
    assert table.last == before


def test_added_columns_may_be_null() -> None:
    """W-09: those of older files are."""
    added = check_schema("a int, s struct<b:int>", "s struct<c:int,b:int>, a int, d date", "/t")
    assert added == ["s.c", "d"]
    with pytest.raises(ConfigurationError, match="no column b, and it is NOT NULL"):
        check_schema("a int", "a int, b int NOT NULL", "/t")
    with pytest.raises(ConfigurationError, match="column a of type int not null"):
        check_schema("a int NOT NULL", "a int", "/t")
    with pytest.raises(ConfigurationError, match="column l of type array<struct<a: int>>"):
        check_schema("l array<struct<a:int>>", "l array<struct<a:int,b:int>>", "/t")


# --- folders --------------------------------------------------------------------------------------


EVENTS = kfast.Json(
    {
        "country": "string",
        "ts": "timestamp[ms, UTC]",
        "n": "int32",
        "ok": "bool",
        "f": "float64",
        "_n": "int32",
    }
)


def test_folders_by_values(truth: Truth, table: Table) -> None:
    """W-10: text with any characters, null and empty, times before 1970."""
    countries = ["DE", "a/b=c %", "", None, "Zoë", "DE", "x" * 300]
    write(
        truth,
        *({"country": name, "ts": f"2026-01-0{at + 1}T23:59:59.999Z"} for at, name in
          enumerate(countries)),
        {"country": "DE", "ts": "1969-12-31T23:00:00Z"},
        b"no document",
    )  # fmt: skip
    summary = table.ingest(
        "j",
        value=EVENTS,
        on_error="null",
        columns=["offset", "value"],
        partition_by=["value.country", "date(value.ts)"],
    )
    assert summary.rows == 9
    found = ds.dataset(table.folder, partitioning="hive").to_table().to_pylist()
    rows = sorted(found, key=lambda row: row["offset"])
    assert [row["offset"] for row in rows] == list(range(9))
    assert [row["country"] for row in rows] == [
        *("DE", "a/b=c %", None, None, "Zoë", "DE", None, "DE", None)
    ]
    assert [row["value"] and row["value"]["country"] for row in rows[:7]] == countries
    assert [row["date"] and str(row["date"]) for row in rows] == [
        *(f"2026-01-0{day}" for day in range(1, 8)),
        "1969-12-31",
        None,
    ]
    assert "country=a%2Fb%3Dc%20%25/date=2026-01-02/j-0-0-9.parquet" in table.names()
    assert "country=__HIVE_DEFAULT_PARTITION__/date=__HIVE_DEFAULT_PARTITION__/j-0-0-9.parquet" in (
        table.names()
    )


def test_folders_by_a_value_that_is_different_in_each_record(truth: Truth, table: Table) -> None:
    """W-10: some at a time, and none is lost when its file ends for another's."""
    write(truth, *({"n": number} for number in range(40)))
    assert table.ingest("j", value=EVENTS, partition_by="value.n").files == 40
    found = ds.dataset(table.folder, partitioning="hive").to_table().to_pylist()
    assert sorted((row["offset"], row["n"], row["value"]["n"]) for row in found) == [
        (number, number, number) for number in range(40)
    ]


def test_folders_by_numbers_and_with_those_of_the_record(truth: Truth, table: Table) -> None:
    """W-10: in the order they are given in."""
    write(truth, {"n": 1, "ok": True}, {"n": 2, "ok": False}, {"n": 1, "ok": True})
    table.ingest("j", value=EVENTS, partition_by=["value.ok", "topic", "value.n"])
    assert table.names() == [
        "ok=false/topic=j/n=2/j-0-0-3.parquet",
        "ok=true/topic=j/n=1/j-0-0-3.parquet",
    ]


def test_a_delta_table_with_folders_by_values(truth: Truth, table: Table) -> None:
    """W-10, W-11: its log has the values as they are."""
    delta = pytest.importorskip("deltalake")
    names = ["DE", "a/b=c %", None, "Zoë"]
    write(truth, *({"country": name, "n": 5} for name in names))
    table.ingest("j", value=EVENTS, partition_by=["value.country", "value.n"], format="delta")
    rows = delta.DeltaTable(str(table.folder)).to_pyarrow_table().to_pylist()
    found = {row["offset"]: (row["country"], row["n"], row["value"]["country"]) for row in rows}
    assert found == {at: (name, 5, name) for at, name in enumerate(names)}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["value.nothing"], r"by value\.nothing: it has no such column"),
        (["value.f"], r"by value\.f: it is double"),
        (["value.ts"], r"by value\.ts: it is timestamp"),
        (["date(value.n)"], r"by date\(value\.n\): it is int"),
        (["value"], "cannot partition the table by value"),
        (["date", "date(value.ts)"], "two folders would be date="),
        (["value._n"], "readers ignore folders"),
        (["key.id"], r"by key\.id: it has no such column"),
    ],
)
def test_folders_that_cannot_be(truth: Truth, table: Table, names: list[str], message: str) -> None:
    """W-10: refused before anything is written."""
    write(truth, {"n": 1})
    with pytest.raises(ConfigurationError, match=message):
        table.ingest("j", value=EVENTS, partition_by=names)
    assert not table.names()


# --- Delta ----------------------------------------------------------------------------------------


def test_a_delta_log_has_bounds_and_nulls(truth: Truth, table: Table) -> None:
    """W-11: per file, of the columns whose bounds are exact; times rounded to the outside."""
    pytest.importorskip("deltalake")
    nan = b'{"f": 1.5, "n": -4, "ts": "2026-01-01T00:00:00.001Z", "country": "x"}'
    write(truth, {"n": 7, "f": 2.5, "ok": True}, nan, {"n": None})
    table.ingest(
        "j", value=EVENTS, columns=["topic", "offset", "timestamp", "value"], format="delta"
    )
    added = [
        json.loads(line)["add"]
        for path in sorted((table.folder / "_delta_log").glob("*.json"))
        for line in path.read_text().splitlines()
        if "add" in json.loads(line)
    ]
    (stats,) = [json.loads(each["stats"]) for each in added]
    time = dt.datetime.fromtimestamp(START_MS / 1000, dt.UTC).isoformat(timespec="milliseconds")
    assert stats["numRecords"] == 3
    assert stats["minValues"] == {
        "topic": "j",
        "offset": 0,
        "timestamp": time.replace("+00:00", "Z"),
        "value": {"n": -4, "ok": True, "ts": "2026-01-01T00:00:00.001Z"},
    }
    assert stats["maxValues"]["offset"] == 2
    assert stats["maxValues"]["value"] == {"n": 7, "ok": True, "ts": "2026-01-01T00:00:00.001Z"}
    assert stats["nullCount"]["value"] == {"n": 1, "ok": 2, "ts": 2, "f": 1, "_n": 3}
    assert stats["nullCount"]["offset"] == 0


def test_a_delta_table_goes_on_without_its_old_commits(truth: Truth, table: Table) -> None:
    """W-21: by the transactions in its checkpoint."""
    deltalake = pytest.importorskip("deltalake")
    write(truth, {"n": 1})
    table.ingest("j", format="delta")
    delta = deltalake.DeltaTable(str(table.folder))
    delta.alter.set_table_properties({"delta.appendOnly": "false"})
    delta.create_checkpoint()
    for version in (0, 1):
        (table.folder / "_delta_log" / f"{version:020d}.json").unlink()
    write(truth, {"n": 2})
    table.ingest("j", format="delta")
    rows = deltalake.DeltaTable(str(table.folder)).to_pyarrow_table().to_pylist()
    assert sorted(row["offset"] for row in rows) == [0, 1]


# --- dead letters ---------------------------------------------------------------------------------


BAD = [{"id": 1}, {"id": "x"}, b"", {"id": 4}, b'{"id": 9223372036854775808}', {"id": 6}, b"oops"]


def letters(folder: Path) -> list[tuple[Any, ...]]:
    names = ["partition", "offset", "column", "code", "path", "raw"]
    rows = ds.dataset(folder).to_table(names).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


EXPECTED = [
    (0, 1, "value", "type", "id", b'{"id": "x"}'),
    (0, 2, "value", "empty", "", b""),
    (0, 4, "value", "range", "id", b'{"id": 9223372036854775808}'),
    (0, 6, "value", "syntax", "", b"oops"),
]


@pytest.mark.parametrize("on_error", ["null", "skip"])
def test_bad_values_go_to_dead_letters(
    truth: Truth, table: Table, tmp_path: Path, on_error: str
) -> None:
    """W-12: with place, code, path and bytes, each once over files and runs."""
    folder = tmp_path / "letters"
    given = {"value": OLD, "on_error": on_error, "dead_letter": str(folder), "rows_per_file": 2}
    write(truth, *BAD)
    summary = table.ingest("j", **given)
    assert (summary.bad_records, summary.dead_letters) == (4, 4)
    assert summary.rows == (7 if on_error == "null" else 3)
    assert letters(folder) == EXPECTED
    assert table.ingest("j", **given).dead_letters == 0
    write(truth, b"more")
    assert table.ingest("j", **given).dead_letters == 1
    assert letters(folder) == [*EXPECTED, (0, 7, "value", "syntax", "", b"more")]
    row = ds.dataset(folder).to_table().to_pylist()[0]
    assert row["topic"] == "j"
    assert row["message"].startswith("j-0 offset 1: value.id is a string")
    assert row["timestamp"] == dt.datetime.fromtimestamp(START_MS / 1000, dt.UTC)
    assert table.last.bytes == sum(path.stat().st_size for path in table.folder.glob("*.parquet"))


def test_dead_letters_of_numbers_and_keys(truth: Truth, table: Table, tmp_path: Path) -> None:
    """W-12: of every format."""
    truth.cluster.append(
        "j", 0, [Record(b"12345678", b"1234", timestamp=1), Record(b"1", b"1", timestamp=2)]
    )
    folder = tmp_path / "letters"
    table.ingest("j", key="int64", value="int32", on_error="skip", dead_letter=str(folder))
    assert [(row[1], row[2], row[5]) for row in letters(folder)] == [
        (1, "key", b"1"),
        (1, "value", b"1"),
    ]


def test_dead_letters_take_part_in_the_bound_of_memory(
    truth: Truth, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-12, CL-133: they are written when records would be, and their files count as open."""
    spilled: list[int] = []
    spill = DeadLetters.spill

    def noted(letters: DeadLetters) -> None:
        spilled.append(letters.waiting_bytes)
        spill(letters)

    monkeypatch.setattr(DeadLetters, "spill", noted)
    truth.cluster.append("j", 0, [Record(None, b"no" * 2_000_000)] * 12, batch_records=1)
    folder = tmp_path / "letters"
    given = {"value": OLD, "on_error": "skip", "memory_bytes": 64 << 20}
    summary = table.ingest("j", dead_letter=str(folder), **given)
    assert summary.dead_letters == 12
    assert len(spilled) > 1
    assert max(spilled) <= 40 << 20
    assert len(letters(folder)) == 12


def test_a_time_that_no_column_holds_is_null_there(
    truth: Truth, table: Table, tmp_path: Path
) -> None:
    """W-12: whatever the broker sends is no reason to lose a dead letter."""
    truth.cluster.append("j", 0, [Record(None, b"no", timestamp=2**62)])
    folder = tmp_path / "letters"
    table.ingest(
        "j", value=OLD, on_error="skip", columns=["offset", "value"], dead_letter=str(folder)
    )
    assert ds.dataset(folder).to_table().to_pylist()[0]["timestamp"] is None


def test_dead_letters_have_a_folder_of_their_own(
    truth: Truth, table: Table, tmp_path: Path
) -> None:
    """W-12: not in the table, nor another table's; and there must be some to come."""
    write(truth, *BAD)
    given = {"value": OLD, "on_error": "skip"}
    for inside in (table.folder / "bad", table.folder, table.folder.parent):
        with pytest.raises(ConfigurationError, match="folder of their own"):
            table.ingest("j", dead_letter=str(inside), **given)
    with pytest.raises(ConfigurationError, match="the first one is an error"):
        table.ingest("j", dead_letter=str(tmp_path / "letters"), value=OLD)
    with pytest.raises(ConfigurationError, match="are not decoded"):
        table.ingest(
            "j",
            dead_letter=str(tmp_path / "letters"),
            on_error="skip",
            columns=["offset", "value"],
        )
    assert not table.names()
    table.ingest("j", dead_letter=str(tmp_path / "letters"), **given)
    other = Table(tmp_path / "other", table.servers)
    with pytest.raises(ConfigurationError, match="dead letters of another table"):
        other.ingest("j", dead_letter=str(tmp_path / "letters"), **given)


def test_dead_letters_on_the_command_line(
    truth: Truth, table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """W-12, W-05: the summary counts them."""
    write(truth, *BAD)
    words = ("--value", "json", "--value-schema", '{"id": "int64"}', "--on-error", "skip")
    to = str(tmp_path / "letters")
    assert cli.main(table.command(*words, "--dead-letter", to, "-f", "json", topics=("j",))) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["rows"], summary["bad_records"], summary["dead_letters"]) == (3, 4, 4)
    assert letters(tmp_path / "letters") == EXPECTED
    assert table.last.ends == {TopicPartition("j", 0): 7}
