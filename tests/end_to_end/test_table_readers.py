"""RC-09 to RC-11: what the documents show to read a table gives each record exactly once.

The readers run while the table's folder ``_kfast`` has all that an ingest and a compaction leave
there: log, locks, staging files of a dead run, replaced and compacted files.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, Final

import datafusion
import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pytest

import kfast
from kfast.table.table_log import FOLDER, STAGING
from tests.document_examples import ROOT, examples, sections
from tests.end_to_end.ingests import Row, Table, Truth
from tests.unit.table.iceberg_tables import NAME, catalog

COLUMNS: Final = ("topic", "partition", "offset", "key", "value")
CODE: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def readers(heading: str = "") -> dict[str, str]:
    """Return the code of a subsection, by what it reads with; without those that need Spark."""
    section = sections("docs/ingest.md")["Reading the table"]
    first, *others = re.split(r"^### ", section, flags=re.MULTILINE)
    if heading:
        (first,) = (text for text in others if text.startswith(f"{heading}\n"))
    codes = [code for code in CODE.findall(first) if "spark." not in code]
    names = [re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE)[0] for code in codes]
    return {
        f"{name}-{number}": code
        for number, (name, code) in enumerate(zip(names, codes, strict=True))
    }


PLAIN: Final = readers()
ADDED: Final = readers("Columns that were added")
DELTA: Final = readers("Delta")
(ICEBERG,) = readers("Iceberg tables").values()


def read(code: str, folder: Path) -> pa.Table:
    """Execute an example on a table; return the records that it has."""
    assert '"/data/orders' in code or "'/data/orders" in code
    scope: dict[str, Any] = {"kfast": kfast}
    exec(code.replace("/data/orders", str(folder)), scope)
    orders = scope["orders"]
    if isinstance(orders, pl.LazyFrame):
        orders = orders.collect()
    for method in ("to_arrow", "to_arrow_table"):
        if hasattr(orders, method):
            return pa.table(getattr(orders, method)())
    return orders if isinstance(orders, pa.Table) else pa.Table.from_pandas(orders)


def rows(records: pa.Table) -> list[Row]:
    """Return records in the order of their offsets."""
    columns = [records.column(name).to_pylist() for name in COLUMNS]
    return sorted(zip(*columns, strict=True), key=lambda row: row[:3])


def leave_traces(table: Table) -> None:
    """Compact the table, whose old files stay, and leave what a dead run leaves."""
    assert kfast.compact_table(str(table.folder)).files
    staging = table.folder / STAGING / "dead"
    staging.mkdir(parents=True)
    shutil.copy(table.folder / table.names()[0], staging / "t-0-0.0123456789abcdef")
    (staging / "t-0-7.0123456789abcdef").write_bytes(b"PAR1")


def hidden(table: Table) -> set[str]:
    """Return the names of folders below ``_kfast`` that have files."""
    own = table.folder / FOLDER
    return {path.relative_to(own).parts[0] for path in own.rglob("*") if path.is_file()}


@pytest.fixture(params=["", "topic,date,hour"])
def written(request: pytest.FixtureRequest, truth: Truth, table: Table) -> Table:
    """A table of many small files, in one folder or in folders as in Hive."""
    more = {"partition_by": request.param.split(",")} if request.param else {}
    for _ in range(2):
        table.ingest(rows_per_file=12, **more)
        truth.write(1, 9)
    table.ingest(**more)
    leave_traces(table)
    return table


def test_the_documents_name_each_reader() -> None:
    """RC-09: nothing promised is left out of the tests."""
    names = {"pyarrow", "pandas", "polars", "duckdb", "datafusion"}
    for codes in (PLAIN, ADDED):
        assert {name for name in names for code in codes if name in code} == names
    assert [name.partition("-")[0] for name in PLAIN].count("polars") == 2
    found = examples("docs/ingest.md", "Reading the table")
    assert len(found) == len(PLAIN) + len(ADDED) + len(DELTA) + 3  # Iceberg, and two of Spark


@pytest.mark.parametrize("reader", PLAIN)
def test_each_record_is_read_once(reader: str, truth: Truth, written: Table) -> None:
    """RC-09: in one folder and in folders as in Hive."""
    assert {"log", "lock", "finished", "staging", "compacted", "compactions"} <= hidden(written)
    records = read(PLAIN[reader], written.folder)
    if "topic" not in records.column_names:
        assert "datafusion" in reader
        records = records.append_column("topic", pa.array(["t"] * records.num_rows))
    assert rows(records) == sorted(truth.rows, key=lambda row: row[:3])
    if "date=" in written.names()[0] and "datafusion" not in reader:
        assert {str(date) for date in records.column("date").to_pylist()} == {"2026-01-01"}
        assert {int(hour) for hour in records.column("hour").to_pylist()} == {0}


@pytest.mark.parametrize("written", ["topic,date,hour"], indirect=True)
def test_folders_of_datafusion(truth: Truth, written: Table) -> None:
    """RC-09: columns of folders are there if they are named."""
    text = (ROOT / "docs/ingest.md").read_text(encoding="utf-8")
    assert 'read_parquet("/data/orders", table_partition_cols=[("date", pyarrow.string())])' in text
    names = [(name, pa.string()) for name in ("topic", "date", "hour")]
    frame = datafusion.SessionContext().read_parquet(
        str(written.folder), table_partition_cols=names
    )
    assert rows(frame.to_arrow_table()) == sorted(truth.rows, key=lambda row: row[:3])


def test_what_takes_every_file_fails(written: Table) -> None:
    """RC-09: readers that do not know of hidden folders need the pattern, as documented."""
    with pytest.raises(pl.exceptions.InvalidOperationError, match="different file extensions"):
        pl.scan_parquet(written.folder).collect()
    with pytest.raises(duckdb.InvalidInputException, match=r"magic bytes|too small"):
        duckdb.execute(f"FROM read_parquet('{written.folder}/**')").fetchall()


def test_no_hidden_file_has_the_ending_of_the_table(written: Table) -> None:
    """RC-10: patterns such as ``**/*.parquet`` find hidden folders too."""
    endings = {path.suffix for path in (written.folder / FOLDER).rglob("*") if path.is_file()}
    assert endings == {"", ".json", ".0123456789abcdef"}


@pytest.mark.parametrize("partition_by", [(), ("date",)])
@pytest.mark.parametrize("reader", ADDED)
def test_added_columns(
    reader: str, partition_by: tuple[str, ...], truth: Truth, table: Table
) -> None:
    """RC-11: of the record and inside of a value; null in files that were written before."""
    truth.cluster.create_topic("trades", 1)
    added: dict[str, Any] = {"note": "string"}
    for number, more in enumerate(({}, added)):
        truth.cluster.append("trades", 0, [b'{"id": %d, "note": "x"}' % number] * 5)
        columns = ["topic", "partition", "offset", "value", *(["key"] if more else [])]
        table.ingest(
            "trades",
            value=kfast.Json({"id": "int64", **more}),
            columns=columns,
            partition_by=partition_by,
            rows_per_file=2,
        )
    leave_traces(table)
    records = read(ADDED[reader], table.folder)
    read_rows: list[Any] = [*rows(records)]
    assert read_rows == [
        ("trades", 0, at, None, {"id": at // 5, "note": None if at < 5 else "x"})
        for at in range(10)
    ]
    assert ("date" in records.column_names) == bool(partition_by and "datafusion" not in reader)


@pytest.mark.parametrize("reader", DELTA)
def test_a_delta_table(reader: str, truth: Truth, table: Table) -> None:
    """RC-09, RC-11: its log has columns and files, which its own engine has compacted."""
    more: dict[str, Any] = {"format": "delta", "partition_by": ["date"], "rows_per_file": 12}
    table.ingest(columns=["topic", "partition", "offset", "value"], **more)
    truth.write(1, 9)
    before = len(truth.rows) - 9
    table.ingest(columns=["topic", "partition", "offset", "value", "key"], **more)
    deltalake.DeltaTable(str(table.folder)).optimize.compact()
    keyless = [(*row[:3], None, row[4]) for row in truth.rows[:before]]
    expected = sorted([*keyless, *truth.rows[before:]], key=lambda row: row[:3])
    assert rows(read(DELTA[reader], table.folder)) == expected


def test_an_iceberg_table(
    truth: Truth, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RC-09: by its catalog."""
    catalog(tmp_path, monkeypatch)
    for _ in range(2):
        table.ingest(format="iceberg", iceberg_table=NAME, rows_per_file=12)
        truth.write(1, 9)
    table.ingest(format="iceberg", iceberg_table=NAME)
    first, _, others = NAME.partition(".")
    scope: dict[str, Any] = {}
    exec(ICEBERG.replace("CATALOG", first).replace("NAMESPACE.TABLE", others), scope)
    assert rows(scope["orders"]) == sorted(truth.rows, key=lambda row: row[:3])
