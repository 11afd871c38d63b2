"""H-01 to H-05: timestamps of records that no column can hold, in ``kfast ingest``."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import kfast
from kfast import TopicPartition, cli
from kfast.errors import ConfigurationError, DeserializationError
from kfast.table.file_names import parts_of
from kfast.testing.batches import Record
from tests.end_to_end.ingests import START_MS, Table, Truth
from tests.unit.table.iceberg_tables import NAME, catalog

NANOSECONDS: Final = START_MS * 1_000_000
"""A time of 2026 in nanoseconds: as milliseconds it is in no year that a column has."""
IN_MICROSECONDS: Final = START_MS * 1000
"""The same in microseconds: as milliseconds it is in the year 57,970."""
T0 = TopicPartition("t", 0)


def write_times(truth: Truth, *times: int) -> None:
    """Append a record per time to partition 0, behind the 50 that are there, in its own batch."""
    records = [Record(b"k", b"v", timestamp=time) for time in times]
    truth.cluster.append("t", 0, records, batch_records=1)


def status(words: list[str]) -> int:
    """Run a command as its process does; return the exit status."""
    try:
        return cli.main(words)
    except SystemExit as ended:
        return int(str(ended.code))


def rows_behind(table: Table, offset: int = 50) -> dict[int, dict[str, Any]]:
    """Return what readers see of the records from an offset on, by offset."""
    found = ds.dataset(table.folder, partitioning="hive").to_table(
        filter=ds.field("partition") == 0
    )
    rows = found.to_pylist()
    return {row["offset"]: row for row in rows if row["offset"] >= offset}


def test_an_error_names_the_record_and_the_option_of_the_call(truth: Truth, table: Table) -> None:
    """H-01: and nothing of the table is there."""
    write_times(truth, START_MS, NANOSECONDS)
    with pytest.raises(DeserializationError, match=r"t-0 offset 51: timestamp 17672") as caught:
        table.ingest()
    error = caught.value
    assert (error.topic, error.partition, error.offset) == ("t", 0, 51)
    assert (error.column, error.code) == ("timestamp", "range")
    assert error.hint == 'on_error="null", or on_error="skip"'
    assert table.names() == []
    other = Table(table.folder / "../other", table.servers)
    assert other.ingest(columns=["offset", "partition"]).rows == 82, "the column is not asked for"


def test_an_error_names_the_option_of_the_command(
    truth: Truth, table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """H-01: of the command that was typed, for values too."""
    write_times(truth, NANOSECONDS)
    assert status(table.command()) == 6
    shown = capsys.readouterr().err
    assert "t-0 offset 50: timestamp" in shown
    assert "try: --on-error null, or --on-error skip\n" in shown
    other = Table(table.folder / "../other", table.servers)
    assert status(other.command("--value", "int32", "-c", "value")) == 6
    assert "try: --on-error null, or --on-error skip\n" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["bytes", "json"])
def test_a_timestamp_becomes_null_and_a_dead_letter(
    truth: Truth, table: Table, tmp_path: Path, value: str
) -> None:
    """H-02: the record stays, counted once; the table goes on."""
    letters = tmp_path / "letters"
    form = kfast.Json({"v": "int64"}) if value == "json" else value
    write_times(truth, START_MS, NANOSECONDS, -(2**63), START_MS)
    columns = ("offset", "partition", "timestamp", "key")
    given = {"on_error": "null", "dead_letter": str(letters), "value": form, "columns": columns}
    summary = table.ingest(**given)
    assert (summary.rows, summary.bad_records, summary.dead_letters) == (84, 2, 2)
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    times = {offset: row["timestamp"] for offset, row in rows_behind(table).items()}
    assert times == {50: start, 51: None, 52: None, 53: start}
    rows = ds.dataset(letters, ignore_prefixes=["_"]).to_table().to_pylist()
    assert [
        (row["offset"], row["timestamp"], row["column"], row["code"], row["path"], row["raw"])
        for row in rows
    ] == [
        (51, None, "timestamp", "range", "", b"%d" % NANOSECONDS),
        (52, None, "timestamp", "range", "", b"-9223372036854775808"),
    ]
    assert rows[0]["message"].startswith(f"t-0 offset 51: timestamp {NANOSECONDS} ms is beyond")
    truth.write(0, 3)
    assert table.ingest(**given).rows == 3


def test_a_record_with_such_a_timestamp_is_left_out(truth: Truth, table: Table) -> None:
    """H-02: with skip; its offset is not read again."""
    write_times(truth, NANOSECONDS, START_MS)
    summary = table.ingest(on_error="skip")
    assert (summary.rows, summary.bad_records, summary.ends[T0]) == (81, 1, 52)
    assert set(rows_behind(table)) == {51}
    assert table.ingest(on_error="skip").rows == 0


def test_the_range_of_a_column_is_used_to_its_ends(truth: Truth, table: Table) -> None:
    """H-03: a column of Parquet holds what 64 bits of microseconds hold, no more."""
    most = (2**63 - 1) // 1000
    write_times(truth, most, -most, IN_MICROSECONDS, most + 1, -most - 1)
    summary = table.ingest(on_error="null")
    assert summary.bad_records == 2
    found = ds.dataset(table.folder).to_table(filter=ds.field("offset") >= 50)
    column = found.column("timestamp").cast("int64").to_pylist()
    assert column == [most * 1000, -most * 1000, IN_MICROSECONDS * 1000, None, None]
    (file,) = [file for part in table.last.ranges if part.partition == 0 for file in part.files]
    assert (file.min_timestamp_ms, file.max_timestamp_ms) == (-most, most)


@pytest.mark.parametrize("partition_by", ["date", "hour", "topic,date,hour"])
def test_folders_of_such_a_timestamp_are_those_of_null(
    truth: Truth, table: Table, partition_by: str
) -> None:
    """H-04: dates and hours are of the years 1 to 9999, also if no column has the timestamp."""
    write_times(truth, START_MS, IN_MICROSECONDS, NANOSECONDS)
    given = {"partition_by": partition_by, "columns": ("partition", "offset", "value")}
    with pytest.raises(DeserializationError, match="t-0 offset 51: timestamp 17672256") as caught:
        table.ingest(**given)
    assert "years 1 to 9999" in str(caught.value)
    summary = table.ingest(**given, on_error="null")
    assert (summary.rows, summary.bad_records) == (83, 2)
    names = [name for name in table.names() if "__HIVE_DEFAULT_PARTITION__" in name]
    (parts,) = [parts_of(name) for name in names]
    assert {parts[name] for name in partition_by.split(",") if name != "topic"} == {None}
    found = pq.read_table(table.folder / names[0], partitioning=None)
    assert found.column("offset").to_pylist() == [51, 52]
    rows = rows_behind(table)
    assert {offset: row.get("date") for offset, row in rows.items()} == {
        50: "2026-01-01" if "date" in partition_by else None,
        51: None,
        52: None,
    }
    other = Table(table.folder / "../skipped", table.servers)
    assert other.ingest(**given, on_error="skip").rows == 81
    assert not [name for name in other.names() if "__HIVE" in name]


def test_a_file_of_such_timestamps_only(truth: Truth, table: Table) -> None:
    """H-04: has no least and no greatest timestamp in the manifest."""
    table.ingest()
    write_times(truth, NANOSECONDS)
    table.ingest(on_error="null")
    (file,) = table.last.table_files
    assert (file.rows, file.min_timestamp_ms, file.max_timestamp_ms) == (1, -1, -1)


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_years_after_9999_are_read_as_they_are(
    truth: Truth, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """H-05: a column can hold them, so they stop no table of any format."""
    more: dict[str, Any] = {}
    if format == "iceberg":
        pytest.importorskip("pyiceberg")
        catalog(tmp_path, monkeypatch)
        more["iceberg_table"] = NAME
    write_times(truth, IN_MICROSECONDS, START_MS)
    for _ in range(2):
        table.ingest(format=format, columns=["partition", "offset", "timestamp"], **more)
        truth.write(1, 3)
    if format == "delta":
        deltalake = pytest.importorskip("deltalake")
        found = deltalake.DeltaTable(str(table.folder)).to_pyarrow_table()
    elif format == "iceberg":
        from kfast.table.iceberg_catalog import load_iceberg  # noqa: PLC0415 - needs the package

        found = load_iceberg(NAME).scan(row_filter="offset >= 50").to_arrow()
    else:
        found = ds.dataset(table.folder).to_table()
    found = found.filter((ds.field("partition") == 0) & (ds.field("offset") >= 50)).sort_by(
        "offset"
    )
    assert found.column("timestamp").cast("int64").to_pylist() == [
        IN_MICROSECONDS * 1000,
        START_MS * 1000,
    ]


def test_folders_of_values_after_9999_are_those_of_null(truth: Truth, table: Table) -> None:
    """H-05: the values are in the files."""
    truth.cluster.create_topic("j", 1)
    truth.cluster.append("j", 0, [b'{"day": 4000000, "ts": %d}' % NANOSECONDS, b'{"day": 20000}'])
    form = kfast.Json({"day": "date32", "ts": "timestamp[us, UTC]"})
    table.ingest("j", value=form, partition_by=["value.day", "date(value.ts)"])
    assert sorted(name.rsplit("/", 1)[0] for name in table.names()) == [
        "day=2024-10-04/date=__HIVE_DEFAULT_PARTITION__",
        "day=__HIVE_DEFAULT_PARTITION__/date=__HIVE_DEFAULT_PARTITION__",
    ]
    values = ds.dataset(table.folder).to_table().column("value").combine_chunks()
    assert sorted(values.field("day").cast("int32").to_pylist()) == [20000, 4000000]


def test_dead_letters_need_something_that_can_be_bad(truth: Truth, table: Table) -> None:
    """H-02: bytes without a timestamp cannot be."""
    del truth
    given = {"dead_letter": str(table.folder.parent / "letters"), "on_error": "skip"}
    with pytest.raises(ConfigurationError, match="no column timestamp") as caught:
        table.ingest(columns=["offset", "value"], **given)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith('on_error="skip"')
    assert table.ingest(columns=["offset", "value"], partition_by="hour", **given).rows == 80
