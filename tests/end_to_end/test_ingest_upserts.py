"""Z-09 to Z-13: ``kfast ingest --upsert``: a Delta table that equals the source of the events."""

from __future__ import annotations

import io
import json
import os
import random
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import fastavro
import pyarrow as pa
import pytest

import kfast
from kfast.cli import main
from kfast.errors import ConfigurationError, DeserializationError, KafkaError
from kfast.table.delta_upserts import DeltaUpserts
from kfast.table.ingest import Ingest
from kfast.table.ingest.options import IngestOptions
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer
from tests.delta_reading import delta_rows
from tests.document_examples import blocks, examples, sections
from tests.end_to_end.change_source import SCHEMA, TOPIC, ChangeSource, table_rows
from tests.end_to_end.ingest_processes import Death, Starter, starter
from tests.end_to_end.ingests import Table
from tests.end_to_end.stage import eventually
from tests.fake_registry.server import FakeRegistry
from tests.soaking import soaking

WORDS = (
    *("--format", "delta", "--upsert", "id", "--value", "json", "--value-schema", SCHEMA),
    *("--debezium", "envelope", "--debezium-decimals", "precise"),
    *("-X", "max.poll.records=10"),
)


@pytest.fixture(scope="module")
def processes() -> Iterator[Starter]:
    with starter() as made:
        yield made


def ingest(folder: Path, servers: str, **options: Any) -> kfast.IngestSummary:
    """Upsert events of rows with an id and a name into a table."""
    given: dict[str, Any] = {
        "value": kfast.Debezium({"id": "int64", "name": "string"}),
        "upsert": "id",
        "format": "delta",
        **options,
    }
    return kfast.ingest("t", to=str(folder), bootstrap_servers=servers, **given)


def event(op: str, after: Any = None, before: Any = None) -> bytes:
    return json.dumps({"op": op, "ts_ms": 1, "before": before, "after": after}).encode()


def key(number: int) -> bytes:
    return json.dumps({"id": number}).encode()


def row(number: int, name: str | None = "a") -> dict[str, Any]:
    return {"id": number, "name": name}


def cluster(*records: Record, partitions: int = 1) -> FakeCluster:
    made = FakeCluster()
    made.create_topic("t", partitions)
    made.append("t", 0, list(records), batch_records=2)
    return made


def names(folder: Path) -> dict[int, str]:
    """The rows of a table with an id and a name."""
    rows = delta_rows(folder)
    by_id = {each["id"]: each["name"] for each in rows}
    assert len(by_id) == len(rows)
    return by_id


# --- what the table equals ------------------------------------------------------------------------


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_table_equals_its_source(tmp_path: Path, *, is_wrapped: bool) -> None:
    """Z-09: snapshot, inserts, updates, deletions, changed keys; whatever a batch has."""
    source = ChangeSource(1, is_wrapped=is_wrapped)
    source.snapshot(30)
    with BrokerServer(source.cluster) as server:
        folder = tmp_path / "t"
        for number, rows_per_file in enumerate((4_000_000, 40, 30)):
            summary = kfast.ingest(
                TOPIC,
                to=str(folder),
                format="delta",
                value=kfast.Debezium(SCHEMA, decimals="precise", payload=is_wrapped),
                upsert=["id"],
                rows_per_file=rows_per_file,
                max_poll_records=10,
                bootstrap_servers=server.bootstrap_servers,
            )
            assert table_rows(folder) == source.rows
            assert summary.rows > 0
            assert (summary.batches > 1) == (number > 0)
            source.change(100)
        assert table_rows(folder) != source.rows


def test_offsets_are_in_the_commit_of_the_rows(tmp_path: Path) -> None:
    """Z-09: also of records that change nothing; a run without records commits nothing."""
    topic = cluster(Record(key(1), event("c", row(1))), Record(key(9), None))
    with BrokerServer(topic) as server:
        ingest(tmp_path, server.bootstrap_servers)
        topic.append("t", 0, [Record(key(9), None)])
        ingest(tmp_path, server.bootstrap_servers)
        ingest(tmp_path, server.bootstrap_servers)
        table = deltalake.DeltaTable(str(tmp_path))
        entries = [json.loads(commit["kfast"]) for commit in table.history() if "kfast" in commit]
        assert [entry["ends"]["t"]["0"] for entry in entries[:2]] == [3, 2]
        assert table.version() == 2
        assert names(tmp_path) == {1: "a"}


def test_a_restored_table_is_continued_from_its_own_offsets(tmp_path: Path) -> None:
    """Z-09: the changes since are read again."""
    topic = cluster(Record(key(1), event("c", row(1))))
    with BrokerServer(topic) as server:
        ingest(tmp_path, server.bootstrap_servers)
        topic.append("t", 0, [Record(key(1), event("d", None, row(1)))])
        ingest(tmp_path, server.bootstrap_servers)
        assert names(tmp_path) == {}
        deltalake.DeltaTable(str(tmp_path)).restore(1)
        assert names(tmp_path) == {1: "a"}
        ingest(tmp_path, server.bootstrap_servers)
        assert names(tmp_path) == {}


def test_a_batch_that_another_commit_has_overtaken_is_merged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Z-09: into the newest version, such as that of an OPTIMIZE."""
    topic = cluster(Record(key(1), event("c", row(1))), Record(key(2), event("c", row(2))))
    real, versions = DeltaUpserts.write, []

    def overtaken(upserts: DeltaUpserts, table: Any, *more: Any) -> None:
        versions.append(table.version())
        if len(versions) == 1:
            deltalake.DeltaTable(str(tmp_path)).optimize.compact()
        real(upserts, table, *more)

    with BrokerServer(topic) as server:
        for _ in range(2):  # two files, which can be compacted
            ingest(tmp_path, server.bootstrap_servers)
            topic.append("t", 0, [Record(key(3), event("c", row(3)))])
        topic.append("t", 0, [Record(key(1), event("u", row(1, "b"))), Record(key(2), None)])
        monkeypatch.setattr(DeltaUpserts, "write", overtaken)
        ingest(tmp_path, server.bootstrap_servers)
    assert names(tmp_path) == {1: "b", 3: "a"}
    assert versions == [2, 3]


def test_flattened_rows(tmp_path: Path) -> None:
    """Z-10: as ExtractNewRecordState writes them; a deletion is marked, or has no value."""

    def flat(number: int, is_deleted: str) -> bytes:
        return json.dumps({**row(number), "__deleted": is_deleted, "__op": "u"}).encode()

    topic = cluster(
        Record(key(1), flat(1, "false")),
        Record(key(2), flat(2, "false")),
        Record(key(3), flat(3, "false")),
        Record(key(2), flat(2, "true")),
        Record(key(3), None),
    )
    with BrokerServer(topic) as server:
        options = {
            "value": kfast.Json({"id": "int64", "name": "string", "__deleted": "string"}),
            "key": kfast.Json({"id": "int64"}),
        }
        ingest(tmp_path, server.bootstrap_servers, **options)
    assert names(tmp_path) == {1: "a"}
    fields = deltalake.DeltaTable(str(tmp_path)).schema().fields
    assert [field.name for field in fields] == ["id", "name"]


def test_keys_of_one_column_and_columns_of_records(tmp_path: Path) -> None:
    """Z-10: plain keys, and where each row comes from."""
    topic = cluster(Record(b"x", b'{"name": "x", "id": 1}'), Record(b"y", b'{"name": "y"}'))
    with BrokerServer(topic) as server:
        ingest(
            tmp_path,
            server.bootstrap_servers,
            value=kfast.Json({"id": "int64", "name": "string"}),
            key="text",
            upsert="name",
            columns=["offset", "partition"],
        )
    rows = delta_rows(tmp_path)
    assert sorted(rows, key=lambda each: each["offset"]) == [
        {"id": 1, "name": "x", "offset": 0, "partition": 0},
        {"id": None, "name": "y", "offset": 1, "partition": 0},
    ]


def test_a_truncation(tmp_path: Path) -> None:
    """Z-10: of one partition it deletes all rows before it; of several it is refused."""
    topic = cluster(
        Record(key(1), event("c", row(1))),
        Record(None, event("t")),
        Record(None, event("m")),
        Record(key(2), event("c", row(2))),
    )
    with BrokerServer(topic) as server:
        ingest(tmp_path / "one", server.bootstrap_servers)
        assert names(tmp_path / "one") == {2: "a"}
        topic.append("t", 0, [Record(None, event("t"))])
        ingest(tmp_path / "one", server.bootstrap_servers)
        assert names(tmp_path / "one") == {}
    topic = cluster(Record(None, event("t")), partitions=2)
    with BrokerServer(topic) as server, pytest.raises(KafkaError, match="truncates") as raised:
        ingest(tmp_path / "two", server.bootstrap_servers)
    assert (raised.value.partition, raised.value.offset) == (0, 0)


def test_the_page_of_the_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Z-09: its command and its Python, run on topics with their names."""
    price = {"price": "AfQ="}
    topic = cluster()
    topic.create_topic("items", 1)
    topic.create_topic("shop.public.items", 1)
    topic.append("shop.public.items", 0, [Record(key(1), event("c", {**row(1), **price}))])
    events = [event("c", {**row(1), "price": 5}), event("d", None, row(1))]
    topic.append("items", 0, [Record(key(1), each) for each in events])
    with BrokerServer(topic) as server:
        monkeypatch.setenv("KFAST_BOOTSTRAP_SERVERS", server.bootstrap_servers)
        shown = blocks(sections("docs/cdc.md")["A table that equals its source"])[0][1]
        shown = shown.replace("\\\n", " ").replace("/data/items", str(tmp_path / "one"))
        words = shlex.split(shown)
        assert main(words[1:]) == 0
        rows = delta_rows(tmp_path / "one")
        assert rows == [{"id": 1, "name": "a", "price": Decimal("5.00")}]
        capsys.readouterr()
        scope: dict[str, Any] = {}
        (first,) = examples("docs/cdc.md", "From Python")
        (second,) = examples("docs/cdc.md", "Events as columns")
        for code in (first, second):
            code = code.replace("/data/items", str(tmp_path / "two"))
            exec(code.replace("localhost:9092", server.bootstrap_servers), scope)
    assert names(tmp_path / "two") == {}
    assert capsys.readouterr().out.splitlines()[0] == "2"
    assert scope["batch"].values["op"].to_list() == ["c", "d"]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (Record(None, event("c", row(1))), "has no id in its key"),
        (Record(key(2), event("c", row(1))), "has a row whose id is not that of its key"),
        (Record(key(1), event("c")), "has a row whose id is not that of its key"),
        (Record(key(1), event("x", row(1))), "has no operation of Debezium's"),
        (
            Record(key(1), event("u", row(1, "__debezium_unavailable_value"))),
            "does not have the value of name",
        ),
    ],
    ids=["no key", "other key", "no row", "operation", "unavailable"],
)
def test_a_record_that_cannot_be_applied_is_named(
    tmp_path: Path, record: Record, message: str
) -> None:
    """Z-11: with topic, partition and offset; nothing of its batch is in the table."""
    topic = cluster(Record(key(1), event("c", row(1))), record)
    with BrokerServer(topic) as server, pytest.raises(KafkaError, match=message) as raised:
        ingest(tmp_path, server.bootstrap_servers)
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("t", 0, 1)
    assert names(tmp_path) == {}


def test_values_that_cannot_be_read(tmp_path: Path) -> None:
    """Z-11: end the ingest, or are left out and counted; never null, which would delete."""
    topic = cluster(Record(key(1), event("c", row(1))), Record(key(1), b"{"))
    with BrokerServer(topic) as server:
        with pytest.raises(DeserializationError) as raised:
            ingest(tmp_path, server.bootstrap_servers)
        assert 'on_error="skip"' in str(raised.value.hint)
        assert "null" not in str(raised.value.hint), "which is refused with keys"
        summary = ingest(tmp_path, server.bootstrap_servers, on_error="skip")
    assert summary.bad_records == 1
    assert names(tmp_path) == {1: "a"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "parquet"}, "upsert is not for the format parquet"),
        ({"format": "iceberg", "iceberg_table": "a.b.c"}, "upsert is not for the format iceberg"),
        ({"on_error": "null"}, "would delete rows"),
        ({"partition_by": "date"}, "upsert is not for partition-by"),
        ({"dead_letter": "/x"}, "upsert is not for dead-letter"),
        ({"columns": ["key", "offset"]}, "has the columns of its rows, not key"),
        ({"upsert": "ident"}, "the rows have no column ident"),
        ({"value": "text", "key": "text"}, "upsert needs values with columns"),
        ({"value": kfast.Json({"id": "int64"})}, "the keys of the records need id as bigint"),
        ({"value": kfast.Json({"id": "int64"}), "key": "int32"}, "need id as bigint"),
        (
            {"value": kfast.Json({"id": "float64"}), "key": "float64"},
            "id is double, which cannot be compared",
        ),
        ({"upsert": ("id", "id")}, "twice"),
        (
            {
                "value": kfast.Debezium({"id": "int64", "offset": "int64"}),
                "columns": ["offset"],
            },
            "offset is a column of the rows, too",
        ),
    ],
)
def test_what_does_not_go_with_it(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """Z-12: is refused before anything is read."""
    topic = cluster(Record(key(1), event("c", row(1))))
    with BrokerServer(topic) as server, pytest.raises(ConfigurationError, match=message):
        ingest(tmp_path / "t", server.bootstrap_servers, **options)
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_tables_of_another_kind(tmp_path: Path) -> None:
    """Z-12: with other keys, of records, of others, or with columns that rows do not have."""
    topic = cluster(Record(key(1), event("c", row(1))))
    with BrokerServer(topic) as server:
        servers = server.bootstrap_servers
        ingest(tmp_path / "t", servers)
        with pytest.raises(ConfigurationError, match="has rows with the key id"):
            ingest(tmp_path / "t", servers, upsert=(), value="bytes")
        value = kfast.Debezium({"id": "int64", "name": "string"})
        with pytest.raises(ConfigurationError, match="has rows with the key id"):
            ingest(tmp_path / "t", servers, value=value, upsert=("id", "name"))
        with pytest.raises(ConfigurationError, match="has the column name"):
            ingest(tmp_path / "t", servers, value=kfast.Debezium({"id": "int64"}))
        ingest(tmp_path / "records", servers, upsert=(), value="bytes")
        with pytest.raises(ConfigurationError, match="a row for each record"):
            ingest(tmp_path / "records", servers)
        deltalake.write_deltalake(str(tmp_path / "other"), pa.table({"id": [1], "name": ["a"]}))
        with pytest.raises(ConfigurationError, match="a row for each record"):
            ingest(tmp_path / "other", servers)
        more = kfast.Debezium({"id": "int64", "name": "string", "more": "int32"})
        topic.append("t", 0, [Record(key(2), event("c", {**row(2), "more": 5}))])
        ingest(tmp_path / "t", servers, value=more)
    rows = delta_rows(tmp_path / "t")
    assert sorted(each["more"] or 0 for each in rows) == [0, 5]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--value text --debezium envelope", "values of kind text have no columns"),
        ("--value json --debezium envelope", "events of JSON need the columns of their rows"),
        ("--value bytes --debezium-decimals double", "--debezium-decimals is for --debezium"),
        (
            "--value json --value-schema id:int64 --value-message A --debezium rows",
            "--value-message is not for json",
        ),
    ],
)
def test_options_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    """Z-12: that do not go together are refused before a broker is asked."""
    command = ["ingest", "t", "--to", str(tmp_path / "t"), "-b", "localhost:1", *words.split()]
    assert main([*command, "--format", "delta", "--upsert", "id"]) == 2
    assert message in capsys.readouterr().err


def test_the_schema_of_a_message_as_a_file(tmp_path: Path) -> None:
    """Z-10: rows are in the payload, and have the types of Connect."""
    fields = [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "int32", "optional": True, "field": "day", "name": "io.debezium.time.Date"},
    ]
    schema = {
        "type": "struct",
        "fields": [
            {"type": "struct", "optional": True, "field": "after", "fields": fields},
            {"type": "string", "field": "op"},
        ],
    }
    (tmp_path / "schema.json").write_text(json.dumps(schema), encoding="utf-8")
    payload = {"op": "c", "ts_ms": 1, "after": {"id": 1, "day": 20_000}}
    value = json.dumps({"schema": schema, "payload": payload}).encode()
    topic = cluster(Record(json.dumps({"schema": {}, "payload": {"id": 1}}).encode(), value))
    with BrokerServer(topic) as server:
        words = "--format delta --upsert id --value json --debezium payload -c timestampType"
        command = ["ingest", "t", "--to", str(tmp_path / "t"), *words.split()]
        command += ["-b", server.bootstrap_servers]
        assert main([*command, "--value-schema", f"@{tmp_path / 'schema.json'}"]) == 0
    assert delta_rows(tmp_path / "t") == [{"id": 1, "day": date(2024, 10, 4), "timestampType": 0}]


# --- death ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "death",
    [
        Death("kfast.table.delta_upserts:DeltaUpserts.put"),
        Death("kfast.table.delta_upserts:DeltaUpserts.write"),
        Death("kfast.table.delta_upserts:DeltaUpserts.write", is_after=True),
        Death("kfast.table.delta_upserts:DeltaUpserts._fsync_files"),
        Death("kfast.table.publish:Publisher.publish", is_after=True),
    ],
    ids=lambda death: f"{death.method.rpartition('.')[2]}-{death.number}{'+' * death.is_after}",
)
def test_a_run_that_dies_at_a_step_is_continued_by_the_next(
    processes: Starter, tmp_path: Path, death: Death
) -> None:
    """Z-13: before and after the commit of a batch."""
    source = ChangeSource(5)
    source.snapshot(20)
    source.change(60)
    with BrokerServer(source.cluster) as server:
        table = Table(tmp_path / "t", server.bootstrap_servers)
        words = table.command(*WORDS, "--rows-per-file", "15", topics=(TOPIC,))
        assert processes.run(words, death) == -signal.SIGKILL
        assert processes.run(words) == 0
        assert table_rows(table.folder) == source.rows


@pytest.mark.soak
def test_a_table_equals_its_source_whenever_the_ingest_is_killed(
    processes: Starter, tmp_path: Path
) -> None:
    """Z-13: at any instant, while the source changes; no change is lost, and none comes back."""
    chance, kills = random.Random(11), soaking(8, 60)
    source = ChangeSource(7)
    source.snapshot(40)
    with BrokerServer(source.cluster) as server:
        table = Table(tmp_path / "t", server.bootstrap_servers)
        words = table.command(*WORDS, "--rows-per-file", "25", topics=(TOPIC,))
        assert processes.run(words) == 0
        assert table_rows(table.folder) == source.rows
        source.change(80)
        began = time.monotonic()
        assert processes.run(words) == 0
        whole = time.monotonic() - began
        killed = 0
        while killed < kills:
            source.change(chance.randrange(120))
            child = processes.start(words)
            time.sleep(chance.uniform(0, whole))
            os.kill(child, signal.SIGKILL)
            killed += processes.wait() == -signal.SIGKILL
            if chance.random() < 0.3:
                assert processes.run(words) == 0
                assert table_rows(table.folder) == source.rows
        assert processes.run(words) == 0
        assert table_rows(table.folder) == source.rows


# --- a registry -----------------------------------------------------------------------------------


def avro_envelope(*columns: str) -> str:
    """The schema of events whose rows have an id, and texts that may be null."""
    optional = [{"name": name, "type": ["null", "string"], "default": None} for name in columns]
    row_type = {"type": "record", "name": "Value", "fields": [ID, *optional]}
    fields = [
        {"name": "before", "type": ["null", row_type], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]
    return json.dumps({"type": "record", "name": "Envelope", "fields": fields})


ID = {"name": "id", "type": {"type": "int", "connect.name": "io.debezium.time.Date"}}
AVRO_KEY = json.dumps({"type": "record", "name": "Key", "fields": [ID]})


def written(fake: FakeRegistry, subject: str, text: str, value: Any) -> bytes:
    """A value by a schema, which is registered, with the schema's id."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(text)), value)
    return b"\0" + fake.register(subject, text).to_bytes(4, "big") + out.getvalue()


def test_a_follow_takes_columns_of_newer_schemas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Z-09: of events in Avro; keys are read by the latest schema of keys."""
    monkeypatch.setattr("kfast.table.ingest.ingesting.METADATA_MS", 30)
    topic = cluster()

    def write(number: int, text: str, op: str, after: Any) -> None:
        event = {"before": None, "after": after, "op": op, "ts_ms": 1}
        record = Record(
            written(fake, "t-key", AVRO_KEY, {"id": number}),
            written(fake, "t-value", text, event),
        )
        topic.append("t", 0, [record])

    def rows() -> list[dict[str, Any]]:
        if not deltalake.DeltaTable.is_deltatable(str(tmp_path)):
            return []
        return delta_rows(tmp_path)

    first, second = avro_envelope("name"), avro_envelope("name", "city")
    with FakeRegistry() as fake, BrokerServer(topic) as server:
        write(1, first, "c", {"id": 1, "name": "a"})
        write(2, first, "c", {"id": 2, "name": "b"})
        registry = kfast.SchemaRegistry(fake.url)
        options = IngestOptions(
            topics=("t",),
            to=str(tmp_path),
            format="delta",
            follow=True,
            every_ms=20,
            value=kfast.Debezium(kfast.Avro(registry=registry, reader="latest"), source=[]),
            upsert=("id",),
        )
        run = Ingest(options, {"bootstrap_servers": server.bootstrap_servers})
        thread = threading.Thread(target=run.run)
        thread.start()
        try:
            eventually(lambda: len(rows()) == 2)
            fake.register("t-value", second)
            eventually(lambda: "city" in rows()[0])
            write(1, second, "u", {"id": 1, "name": "a", "city": "x"})
            write(2, second, "d", None)
            eventually(lambda: len(rows()) == 1)
        finally:
            run.stop()
            thread.join(30)
        registry.close()
    assert not thread.is_alive()
    assert rows() == [{"id": date(1970, 1, 2), "name": "a", "city": "x"}]
