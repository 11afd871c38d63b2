"""H-06, H-10: fields of JSON documents that have no column, in ``kfast ingest``."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
import pytest

import kfast
from kfast import cli
from kfast.errors import ConfigurationError
from kfast.table.batches import ReadRange
from kfast.table.manifest_log import ManifestLog
from tests.end_to_end.ingests import Table, Truth

FORM: Final = kfast.Json({"id": "int64", "user": {"name": "string"}, "lines": [{"sku": "string"}]})


def document(at: int, **more: Any) -> bytes:
    """Return a document with the columns of `FORM`."""
    body = {"id": at, "user": {"name": "n"}, "lines": [{"sku": "a"}]}
    return json.dumps({**body, **more}).encode()


def write(truth: Truth, *documents: bytes, batch_records: int = 3) -> None:
    """Append documents to the only partition of the topic ``j``."""
    if "j" not in truth.cluster.topics:
        truth.cluster.create_topic("j", 1)
    truth.cluster.append("j", 0, documents, batch_records=batch_records)


def written(table: Table) -> list[ReadRange]:
    """The ranges of all batches that have files."""
    log = ManifestLog(table.store)
    entries = [log.entry(number) for number in range(table.entries())]
    ranges = (part for entry in entries if entry is not None for part in entry.ranges)
    return [part for part in ranges if part.files]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about such fields."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and "have no column" in record.getMessage()
    ]


@pytest.mark.parametrize("given", [{}, {"dead_letter": "letters", "on_error": "null"}])
def test_fields_without_a_column_are_counted_where_they_are_written(
    truth: Truth, table: Table, tmp_path: Path, caplog: pytest.LogCaptureFixture, given: Any
) -> None:
    """H-06: per file, decoded ahead or not; one warning of a run has the first names."""
    if given:
        given = {**given, "dead_letter": str(tmp_path / "letters")}
    write(
        truth,
        *(document(at) for at in range(10)),
        *(document(at, age=1, tags=[{"x": 1}]) for at in range(10, 20)),
        document(20, user={"name": "n", "city": "Y"}, lines=[{"sku": "b", "n": 1}, {"n": 2}]),
    )
    summary = table.ingest("j", value=FORM, rows_per_file=5, **given)
    assert (summary.rows, summary.unknown_fields, summary.bad_records) == (21, 23, 0)
    by_file = {part.from_offset: part.unknown_fields for part in written(table)}
    assert by_file == {0: 0, 5: 0, 10: 10, 15: 10, 20: 3}
    (text,) = warnings(caplog)
    assert "value.age, value.tags" in text
    assert {"value.user.city", "value.lines[].n"} <= set(table.last.unknown_paths)
    write(truth, document(21, age=3))
    assert table.ingest("j", value=FORM, **given).unknown_fields == 1
    assert len(warnings(caplog)) == 2, "one of each run"


def test_records_that_are_left_out_have_no_fields(truth: Truth, table: Table) -> None:
    """H-06: those of malformed documents are not counted."""
    write(truth, document(0, age=1), b'{"id": "x", "age": 2}', b'{"age": 3, "id": }', document(1))
    for name in ("skip", "null"):
        other = Table(table.folder / "../" / name, table.servers)
        summary = other.ingest("j", value=FORM, on_error=name)
        assert (summary.unknown_fields, summary.bad_records) == (1, 2)


def test_a_value_that_the_table_cannot_hold_has_no_fields(truth: Truth, table: Table) -> None:
    """H-06: its row is null."""
    form = kfast.Json({"at": "timestamp[s, UTC]"})
    write(truth, b'{"at": 1, "x": 1}', b'{"at": 9000000000000000, "x": 1}')
    summary = table.ingest("j", value=form, on_error="null")
    assert (summary.unknown_fields, summary.bad_records) == (1, 1)


def test_a_run_without_such_fields_says_nothing(
    truth: Truth, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """H-06: nor does one of values that are no JSON."""
    write(truth, *(document(at) for at in range(4)), b"null")
    assert table.ingest("j", value=FORM).unknown_fields == 0
    assert table.ingest("t", to=str(table.folder / "../bytes")).unknown_fields == 0
    assert warnings(caplog) == []


def test_the_command_prints_the_count(
    truth: Truth, table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """H-06: in its summary, as text and as JSON."""
    write(truth, document(0, age=1))
    words = table.command("--value", "json", "--value-schema", "id long", topics=("j",))
    assert cli.main([*words, "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["unknown_fields"] == 3
    write(truth, document(1, age=1))
    assert cli.main([*words, "-v"]) == 0
    assert "3 fields without a column" in capsys.readouterr().err


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_column_of_what_has_no_column(
    truth: Truth, table: Table, caplog: pytest.LogCaptureFixture, format: str
) -> None:
    """H-10: as JSON, null for records without such fields; then nothing is left out."""
    if format == "delta":
        pytest.importorskip("deltalake")
    write(
        truth,
        document(0),
        document(1, age=1, user={"name": "n", "city": "Y"}),
        b'{"id": "x", "age": 1}',
        document(2, lines=[{"sku": "b"}, {"n": 2}]),
    )
    columns = ["offset", "value", "_rescued_data"]
    summary = table.ingest("j", value=FORM, columns=columns, on_error="null", format=format)
    assert (summary.rows, summary.unknown_fields) == (4, 3)
    rows = ds.dataset(table.folder).to_table().sort_by("offset").to_pylist()
    assert [row["_rescued_data"] and json.loads(row["_rescued_data"]) for row in rows] == [
        None,
        {"age": 1, "user": {"city": "Y"}},
        None,
        {"lines": {"1": {"n": 2}}},
    ]
    assert [row["value"] and row["value"]["id"] for row in rows] == [0, 1, None, 2]
    assert warnings(caplog) == []


def test_the_column_is_one_of_values_in_json(truth: Truth, table: Table) -> None:
    """H-10: refused elsewhere, with what to type."""
    write(truth, document(0))
    with pytest.raises(ConfigurationError, match="_rescued_data is for values in JSON") as caught:
        table.ingest("j", columns=["value", "_rescued_data"])
    assert "kfast.Json" in str(caught.value)
    with pytest.raises(ConfigurationError, match="_rescued_data is for values in JSON"):
        table.ingest("j", value=FORM, columns=["offset", "_rescued_data"])
    words = table.command("-c", "value,_RESCUED_DATA", "--value", "json", topics=("j",))
    assert cli.main([*words, "--value-schema", "id long"]) == 0
    assert table.last.shape.schema == "value struct<id:bigint>, _rescued_data string"
