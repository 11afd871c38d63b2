"""CL-272: ``kfast ingest --format iceberg`` over a fake cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

import kfast
from kfast import cli
from tests.end_to_end.ingests import Table, Truth
from tests.reference.batches import Record
from tests.unit.table.test_iceberg import NAME, catalog

pytest.importorskip("pyiceberg")


@pytest.fixture(autouse=True)
def _catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog(tmp_path, monkeypatch)


def test_an_iceberg_table_goes_on_where_it_ends(
    truth: Truth, table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """CL-272: with all columns; readers of the folder see the same."""
    from kfast.table.iceberg_log import load_iceberg  # noqa: PLC0415 - needs the package

    words = table.command("--format", "iceberg", "--iceberg-table", NAME, "--rows-per-file", "20")
    for count in (0, 7):
        truth.write(1, count)
        assert cli.main([*words, "-c", "topic,partition,offset,key,value,timestamp,headers"]) == 0
        table.check(truth)
        found = load_iceberg(NAME).scan().to_arrow()
        columns = ("topic", "partition", "offset", "key", "value")
        rows = zip(*(found.column(name).to_pylist() for name in columns), strict=True)
        assert sorted(rows, key=lambda row: row[:3]) == table.rows()
    assert len(kfast.table_files(str(table.folder))) == len(table.names())
    assert cli.main(table.command("--format", "iceberg")) == 2
    assert "not a table of a catalog" in capsys.readouterr().err
    assert cli.main([*words[:-2], "--partition-by", "date"]) == 2


def test_a_timestamp_that_python_does_not_have(truth: Truth, table: Table) -> None:
    """CL-272: it stops no ingest; the batch has no bounds."""
    from kfast.table.iceberg_log import load_iceberg  # noqa: PLC0415 - needs the package

    late = [Record(b"k", b"v", timestamp=sign * 9_000_000_000_000_000) for sign in (1, -1)]
    truth.cluster.append("t", 0, late)
    given = {"format": "iceberg", "iceberg_table": NAME, "columns": ["offset", "timestamp"]}
    table.ingest(**given)
    truth.write(1, 3)
    table.ingest(**given)
    found = load_iceberg(NAME)
    scan = found.scan(row_filter="offset >= 0", selected_fields=("offset",))
    assert scan.to_arrow().num_rows == 85
    bounds = found.inspect.files().column("upper_bounds").to_pylist()
    assert sum(bool(each) for each in bounds) == 1


def test_typed_columns(truth: Truth, table: Table) -> None:
    """CL-272, CL-273: nested ones, and those that are added later."""
    from kfast.table.iceberg_log import load_iceberg  # noqa: PLC0415 - needs the package

    truth.cluster.create_topic("trades", 1)
    document = b'{"id": %d, "lines": [{"sku": "a"}], "prices": {"eur": 1.5}, "note": "x"}'
    schema = {"id": "int64", "lines": [{"sku": "string"}], "prices": "map<string,double>"}
    for number, more in enumerate(({}, {"note": "string"})):
        truth.cluster.append("trades", 0, [document % number])
        table.ingest(
            "trades", format="iceberg", iceberg_table=NAME, value=kfast.Json({**schema, **more})
        )
    values = load_iceberg(NAME).scan().to_arrow().sort_by("offset").column("value").to_pylist()
    for number, value in enumerate(values):
        assert value == {
            "id": number,
            "lines": [{"sku": "a"}],
            "prices": [("eur", 1.5)],
            "note": "x" if number else None,
        }
    assert len(values) == 2
