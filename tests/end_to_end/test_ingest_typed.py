"""Tables of typed columns, and tables without records."""

from __future__ import annotations

import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import pytest

import kfast
from kfast import cli
from kfast.errors import ConfigurationError, DeserializationError
from kfast.table.ingest.options import IngestOptions
from kfast.testing.batches import Record
from tests.end_to_end.ingests import START_MS, Table, Truth
from tests.fake_registry.server import FakeRegistry

pa = pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")
fastavro = pytest.importorskip("fastavro")

SCHEMA = {"id": "int64 not null", "at": "timestamp[ms, UTC]", "side": "dictionary", "n": ["uint8"]}
TRADES = kfast.Json(SCHEMA)
OLD = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}'
NEW = (
    '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, '
    '{"name": "user", "type": "string", "default": ""}]}'
)


def write(truth: Truth, values: list[bytes | None], topic: str = "t") -> None:
    records = [Record(None, value, timestamp=START_MS) for value in values]
    truth.cluster.append(topic, 0, records, batch_records=7)


def read(table: Table, *columns: str, format: str = "parquet") -> list[Any]:
    found = ds.dataset(table.folder, format=format, partitioning="hive").to_table([*columns])
    return list(found.to_pylist())


@pytest.fixture
def documents() -> list[bytes | None]:
    made = [
        json.dumps({"id": n, "at": "2026-01-02T03:04:05Z", "side": "buy", "n": [n]}).encode()
        for n in range(20)
    ]
    return [*made, None]


@pytest.mark.parametrize("format", ["parquet", "arrow", "delta"])
def test_values_become_columns(
    truth: Truth, table: Table, documents: list[bytes | None], format: str
) -> None:
    """TC-156: in Spark's types, over several files, and the next run goes on."""
    if format == "delta":
        pytest.importorskip("deltalake")
    truth.cluster.create_topic("j", 1)
    write(truth, documents, "j")
    given = {"value": TRADES, "columns": ["offset", "value"], "format": format}
    assert table.ingest("j", rows_per_file=8, **given).rows == 21
    write(truth, documents[:2], "j")
    assert table.ingest("j", **given).rows == 2
    found = sorted(
        read(table, "offset", "value", format="arrow" if format == "arrow" else "parquet"),
        key=lambda row: row["offset"],
    )
    assert [row["value"] and row["value"]["id"] for row in found] == [*range(20), None, 0, 1]
    when = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert found[7]["value"] == {"id": 7, "at": when, "side": "buy", "n": [7]}
    assert table.last.shape.schema == (
        "offset bigint, value struct<id:bigint,at:timestamp,side:string,n:array<smallint>>"
    )


def test_other_columns_are_refused(truth: Truth, table: Table) -> None:
    """TC-156: the table keeps those that it has."""
    truth.cluster.create_topic("j", 1)
    write(truth, [b'{"id": 1}'], "j")
    table.ingest("j", value=kfast.Json({"id": "int32"}))
    with pytest.raises(ConfigurationError, match=r"has the column value\.id of type int") as raised:
        table.ingest("j", value=kfast.Json({"id": "string"}))
    assert "this one has string" in str(raised.value)


def test_bad_values(truth: Truth, table: Table) -> None:
    """TC-153: as on_error says."""
    truth.cluster.create_topic("j", 1)
    write(truth, [b'{"id": 1}', b'{"id": "x"}', b"", b'{"id": 4}'], "j")
    with pytest.raises(DeserializationError, match=r"offset 1: value\.id is a string") as raised:
        table.ingest("j", value=TRADES)
    assert 'on_error="null"' in str(raised.value)
    assert table.names() == []
    summary = table.ingest("j", value=TRADES, on_error="null")
    assert (summary.rows, summary.bad_records) == (4, 2)
    rows = sorted(read(table, "offset", "value"), key=lambda row: row["offset"])
    assert [row["value"] and row["value"]["id"] for row in rows] == [1, None, None, 4]
    other = Table(table.folder / "../other", table.servers)
    summary = other.ingest("j", value=TRADES, on_error="skip")
    assert (summary.rows, summary.bad_records) == (2, 2)


@pytest.mark.parametrize("on_error", ["null", "skip"])
def test_bad_values_count_in_their_range(
    truth: Truth, table: Table, on_error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-193: wherever files and runs end; nothing is decoded again when files are written."""
    bad = {0, 1, 5, 6, 7, 11, 19}
    truth.cluster.create_topic("j", 1)
    write(truth, [b"{" if n in bad else b'{"id": %d}' % n for n in range(20)], "j")
    tp = kfast.TopicPartition("j", 0)

    def refuse(*_: Any) -> Any:
        raise AssertionError("decoded again")

    monkeypatch.setattr("kfast.table.value_decoder.is_native", refuse)
    last = 0
    for end in (1, 6, 7, 8, 19, 20):
        done, before = sum(entry_rows(table)) if end > 1 else 0, last
        summary = table.ingest("j", value=TRADES, on_error=on_error, rows_per_file=3, end={tp: end})
        assert summary.bad_records == len([n for n in bad if before <= n < end])
        assert summary.ends == {tp: end}
        assert summary.rows + done == sum(entry_rows(table))
        last = end
    found = sorted((row["offset"], row["value"] and row["value"]["id"])
                   for row in read(table, "offset", "value"))  # fmt: skip
    kept = [(n, None if n in bad else n) for n in range(20)]
    assert found == [each for each in kept if on_error == "null" or each[1] is not None]


def entry_rows(table: Table) -> list[int]:
    return [found.count_rows() for found in ds.dataset(table.folder).get_fragments()]


def test_what_is_bad_behind_the_end_is_not_read(truth: Truth, table: Table) -> None:
    """TC-193: neither while other partitions are read on."""
    truth.cluster.create_topic("j", 2)
    for partition, values in ((0, [b'{"id": 0}', b"{"]), (1, [b'{"id": 1}'] * 500)):
        records = [Record(None, value, timestamp=START_MS) for value in values]
        truth.cluster.append("j", partition, records, batch_records=7)
    ends = {kfast.TopicPartition("j", 0): 1}
    assert table.ingest("j", value=TRADES, end=ends, rows_per_file=10).rows == 501
    with pytest.raises(DeserializationError, match="j-0 offset 1: value"):
        table.ingest("j", value=TRADES)


def test_times_that_spark_cannot_hold(truth: Truth, table: Table) -> None:
    """TC-153: are bad values, which are found when files are written."""
    truth.cluster.create_topic("j", 1)
    write(truth, [b'{"at": 1}', b'{"at": 9000000000000000}'], "j")
    value = kfast.Json({"at": "timestamp[s, UTC]"})
    with pytest.raises(DeserializationError) as raised:
        table.ingest("j", value=value)
    assert str(raised.value).splitlines()[:2] == [
        "j-0 offset 1: value.at is a time that Spark's microseconds cannot hold",
        "cause: code range",
    ]
    assert table.ingest("j", value=value, on_error="null").bad_records == 1
    assert [row["value"] for row in read(table, "value")][1] is None


def framed(number: int, text: str, row: dict[str, Any]) -> bytes:
    out = io.BytesIO(b"\0" + number.to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(out, json.loads(text), row)
    return out.getvalue()


def test_schemas_of_a_registry(truth: Truth, table: Table) -> None:
    """TC-156: the columns are those of the version that is named; values name their own schema."""
    truth.cluster.create_topic("a", 1)
    with FakeRegistry() as fake, kfast.SchemaRegistry(fake.url) as registry:
        old, new = fake.register("a-value", OLD), fake.register("a-value", NEW)
        values = [framed(old, OLD, {"id": 1}), framed(new, NEW, {"id": 2, "user": "ann"})]
        write(truth, [*values, None], "a")
        with pytest.raises(ConfigurationError, match="the schema of the table is not known"):
            table.ingest("a", value=kfast.Avro(registry=registry))
        assert table.ingest("a", value=kfast.Avro(registry=registry, reader="latest")).rows == 3
        rows = sorted(read(table, "offset", "value"), key=lambda row: row["offset"])
        assert [row["value"] for row in rows] == [
            {"id": 1, "user": ""},
            {"id": 2, "user": "ann"},
            None,
        ]
        first = kfast.Avro(registry=registry, reader="a-value:1")
        with pytest.raises(ConfigurationError, match=r"column value\.user of type string"):
            table.ingest("a", value=first)
        truth.cluster.create_topic("b", 1)
        fake.register("b-value", OLD)
        other = Table(table.folder / "../other", table.servers)
        with pytest.raises(ConfigurationError, match="values of a and b have different schemas"):
            other.ingest("a", "b", value=kfast.Avro(registry=registry, reader="latest"))
        text = kfast.Avro(registry=registry, reader=NEW)
        assert other.ingest("a", "b", value=text).rows == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"value": "json"}, "value: json needs a schema"),
        ({"key": "protobuf"}, "key: protobuf needs a schema"),
        ({"value": kfast.Utf8()}, "value is the name of a format or a deserializer with a schema"),
        ({"value": "jsn"}, 'value: there is no format "jsn"; did you mean "json"?'),
    ],
)
def test_what_is_no_format(given: dict[str, Any], message: str) -> None:
    """TC-150."""
    with pytest.raises(ConfigurationError) as raised:
        IngestOptions(topics=("t",), to="x", **given)
    assert raised.value.message.startswith(message)
    assert raised.value.hint


def test_uuids_are_text(truth: Truth, table: Table) -> None:
    """TC-152."""
    text = "12345678-9abc-def0-1234-56789abcdef0"
    truth.cluster.create_topic("u", 1)
    write(truth, [text.encode(), None], "u")
    table.ingest("u", value="uuid", columns=["value"])
    assert [row["value"] for row in read(table, "value")] == [text, None]


def test_schemas_on_the_command_line(
    truth: Truth, table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TC-156: as in `kfast read`; without one, Avro's is the latest of the subject."""
    truth.cluster.create_topic("j", 1)
    write(truth, [b'{"id": 1}', b"oops"], "j")
    (tmp_path / "s.sql").write_text("id BIGINT, user STRING", encoding="utf-8")
    words = ["--value", "json", "--value-schema", f"@{tmp_path / 's.sql'}", "-c", "offset,value"]
    assert cli.main(table.command(*words, topics=("j",))) != 0
    assert "offset 1: value is not JSON" in capsys.readouterr().err
    assert cli.main(table.command(*words, "--on-error", "skip", topics=("j",))) == 0
    assert read(table, "value") == [{"value": {"id": 1, "user": None}}]
    truth.cluster.create_topic("a", 1)
    other = Table(tmp_path / "other", table.servers)
    with FakeRegistry() as fake:
        old = fake.register("a-value", OLD)
        fake.register("a-value", NEW)
        write(truth, [framed(old, OLD, {"id": 1})], "a")
        words = ["--value", "avro", "--schema-registry", fake.url, "-c", "value"]
        assert cli.main(other.command(*words, topics=("a",))) == 0
    assert read(other, "value") == [{"value": {"id": 1, "user": ""}}]


def test_protobuf_of_a_registry(
    truth: Truth, table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TC-191: the first message of the latest version; values of others are bad ones."""
    text = 'syntax = "proto3"; message A { int64 id = 1; } message B { string name = 1; }'
    other = Table(tmp_path / "other", table.servers)
    truth.cluster.create_topic("p", 1)
    with FakeRegistry() as fake, kfast.SchemaRegistry(fake.url) as registry:
        fake.register("p-value", text.replace("int64 id = 1;", "int64 old = 3;"), "PROTOBUF")
        number = fake.register("p-value", text, "PROTOBUF")
        head = b"\0" + number.to_bytes(4, "big")
        words = ["--value", "protobuf", "--schema-registry", fake.url, "-c", "value"]
        assert cli.main(table.command(*words, topics=("p",))) == 0
        write(truth, [head + b"\0\x08\x07", head + b"\2\2\x0a\1a", None], "p")
        assert cli.main(table.command(*words, topics=("p",))) == 6
        assert "offset 1: value" in capsys.readouterr().err
        words += ["--on-error", "null"]
        assert cli.main(table.command(*words, topics=("p",))) == 0
        assert read(table, "value") == [{"value": {"id": 7}}, {"value": None}, {"value": None}]
        assert cli.main(other.command(*words, "--value-message", "B", topics=("p",))) == 0
        with pytest.raises(ConfigurationError, match="the schema of the table is not known"):
            table.ingest("p", value=kfast.Protobuf(registry=registry))
    assert [row["value"] for row in read(other, "value")] == [None, {"name": "a"}, None]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--value", "json"], "value: json needs a schema"),
        (["--value-schema", "a INT"], "values of kind bytes have no schema"),
        (["--value", "protobuf"], "value: protobuf needs a descriptor set"),
        (["--schema-registry", "http://x"], "no key or value has a schema"),
        (["--key", "avro", "--key-schema", "{"], "key: "),
    ],
)
def test_what_the_command_line_refuses(
    table: Table, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    """TC-150."""
    assert cli.main(table.command(*words)) == 2
    assert text in capsys.readouterr().err


# --- without records ------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize("partition_by", ["", "topic,date"])
def test_a_table_without_records_has_columns(
    truth: Truth, table: Table, format: str, partition_by: str
) -> None:
    """TC-156: in one file, which stays the only one until there are records."""
    truth.cluster.create_topic("j", 2)
    given = {"value": TRADES, "format": format, "partition_by": partition_by}
    for _ in range(2):
        assert table.ingest("j", **given).rows == 0
        (name,) = table.names(format)
        assert name.endswith(f"j-0-0-0.{format}")
    found = ds.dataset(table.folder, format=format, partitioning="hive").to_table()
    assert found.num_rows == 0
    assert found.schema.field("value").type.field("id").type == pa.int64()
    write(truth, [b'{"id": 1}'], "j")
    assert table.ingest("j", **given).rows == 1
    assert len(table.names(format)) == 2
    assert len(read(table, "offset", format=format)) == 1
    assert table.staged() == []


def test_records_that_are_all_left_out(truth: Truth, table: Table) -> None:
    """TC-156: there were some, and none is in the table."""
    truth.cluster.create_topic("j", 1)
    write(truth, [b"oops"], "j")
    summary = table.ingest("j", value=TRADES, on_error="skip")
    assert (summary.rows, summary.bad_records) == (0, 1)
    assert table.names() == ["j-0-1-1.parquet"]
    assert read(table, "value") == []


def test_an_end_of_the_run(truth: Truth, table: Table, tmp_path: Path) -> None:
    """CL-128: also from Python; the next run goes on there."""
    t0 = kfast.TopicPartition("t", 0)
    assert table.ingest(end={t0: 20}).ends == {t0: 20, kfast.TopicPartition("t", 1): 30}
    assert table.ingest(end=dt.datetime.fromtimestamp(START_MS / 1000 + 60 * 25, dt.UTC)).rows == 5
    assert table.ingest(end="earliest").rows == 0
    table.ingest()
    table.check(truth)
    with pytest.raises(ConfigurationError, match="end with follow=True"):
        table.ingest(end="latest", follow=True)
    other = Table(tmp_path / "other", table.servers)
    assert other.ingest(start={t0: 5}, end={t0: 7}).rows == 32
