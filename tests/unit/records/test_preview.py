"""What ``repr`` and a notebook show of records."""

from __future__ import annotations

import pytest

import kfast
from kfast.columns.table_text import width_of
from kfast.records import ConsumerRecords, PartitionRecords, build_partition_records
from tests.unit.records.sample_index import Sample, sample_index
from tests.unit.records.sample_records import build


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_a_batch_is_a_title_and_a_table() -> None:
    """B-25, B-09: topic and partition, offsets, size and next offset; then the rows."""
    records = build(offsets=[10, 12, 15, 16], next_offset=30)
    assert repr(records).splitlines() == [
        "orders-3: 4 records, offsets 10-16, 405 B, next 30",
        "offset  timestamp                key   value",
        "    10  1970-01-01 00:00:01.000  k0    first",
        "    12  1970-01-01 00:00:01.005        null",
        "    15  null                     null",
        "    16  1970-01-01 00:00:02.000  k3    xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…",
    ]
    assert str(records) == "<PartitionRecords orders-3 n=4 offsets 10..16 next_offset=30>"
    assert repr(build([])) == "orders-3: 0 records, next 100"


@pytest.mark.parametrize("count", [9, 10, 11, 5000])
def test_five_rows_of_either_end_are_shown(count: int) -> None:
    records = build([f"v{row}".encode() for row in range(count)])
    rows = repr(records).splitlines()[2:]
    values = [row.split()[-1] for row in rows]
    if count <= 10:
        assert values == [f"v{row}" for row in range(count)]
    else:
        last = [f"v{row}" for row in range(count - 5, count)]
        assert values == ["v0", "v1", "v2", "v3", "v4", "…", *last]


def test_only_the_rows_that_are_shown_are_decoded() -> None:
    seen: list[bytes] = []

    class Column(kfast.BytesColumn):
        def __getitem__(self, rows: object) -> object:  # type: ignore[override]
            seen.append(b"")
            return super().__getitem__(rows)  # type: ignore[call-overload]

    values = [b"x"] * 1000
    records = build(values)
    records._rows.values = Column.from_values(values)
    repr(records)
    assert len(seen) <= 10


def batch(topic: str, partition: int, count: int) -> PartitionRecords:
    index = sample_index([Sample(b"v%d" % row, None, [], 0) for row in range(count)])
    return build_partition_records(topic, partition, index).records


def test_a_result_has_columns_for_what_differs() -> None:
    one = ConsumerRecords([batch("a", 0, 2), batch("a", 1, 1)])
    title, headings, *rows = repr(one).splitlines()
    assert title.startswith("a: 3 records in 2 partitions, ")
    assert headings.split() == ["partition", "offset", "timestamp", "key", "value"]
    assert [row.split()[0] for row in rows] == ["0", "0", "1"]
    two = ConsumerRecords([batch("b", 0, 1200), batch("a", 0, 1)])
    every, first, second, headings, *rows = repr(two).splitlines()
    assert every.startswith("1 201 records of 2 topics, ")
    assert (first.split(",")[0], second.split(",")[0]) == (
        "a: 1 record in 1 partition",
        "b: 1 200 records in 1 partition",
    )
    assert headings.split()[:3] == ["topic", "partition", "offset"]
    assert [row.split()[0] for row in rows] == ["a", *["b"] * 4, "…", *["b"] * 5]
    assert repr(ConsumerRecords([])) == "no records"


def test_columns_that_were_not_selected_are_not_shown() -> None:
    index = sample_index([b"x"])
    records = build_partition_records("t", 0, index, columns=frozenset({"value"})).records
    assert repr(records).splitlines()[1].split() == ["offset", "timestamp", "value"]


def test_hostile_records_are_shown_as_text() -> None:
    hostile = b"\x1b]0;title\x07<script>alert(1)</script>\xe2\x80\xae"
    records = build([hostile] * 100, offsets=range(100))
    shown = repr(records)
    assert "\x1b" not in shown
    assert "\\x1b]0;title\\x07<script>" in shown
    assert max(map(width_of, shown.splitlines())) <= 80
    page = records._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert page.count("<tr>") == 22
    assert len(page) < 20_000
    assert ConsumerRecords([records])._repr_html_().count("<tr>") == 22
