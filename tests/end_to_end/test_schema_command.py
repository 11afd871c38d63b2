"""kfast schema show on a fake cluster and a fake registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfast import cli
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer
from tests.fake_registry.server import FakeRegistry, fake_registry
from tests.unit._native.framed_values import GUID, NAME, confluent

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerServer]:
    """Serve "orders": 5 old records of id 9, then of ids 2 and 1, one of id 99, and others."""
    cluster = FakeCluster()
    cluster.create_topic("orders", 2)
    old, rest = [confluent(9)] * 5, [confluent(1), confluent(99), b'{"a":1}', None, b""]
    values = [*old, *[confluent(2)] * 3, *rest]
    records = [Record(confluent(1), value) for value in values]
    cluster.append("orders", 0, records, batch_records=4)
    header = ((NAME.decode(), b"\x01" + GUID),)
    cluster.append("orders", 1, [Record(None, b"bare", header)])
    cluster.create_topic("empty")
    with BrokerServer(cluster) as running:
        yield running


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as made:
        made.register("money", '"double"')
        made.register("order", '"Order"', "PROTOBUF", [("m", "money", 1)])
        yield made


@pytest.fixture
def run(
    server: BrokerServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.delenv("SCHEMA_REGISTRY_URL", raising=False)

    def said(*words: str) -> tuple[int, str, str]:
        status = cli.main(["-b", server.bootstrap_servers, "schema", *words])
        printed = capfd.readouterr()
        return status, printed.out, printed.err

    return said


def rows(run: Run, *words: str) -> dict[Any, dict[str, Any]]:
    status, out, err = run("show", *words, "-f", "json")
    assert (status, err) == (0, "")
    return {row["id"] or row["status"]: row for row in json.loads(out)}


def test_the_ids_in_use(run: Run, registry: FakeRegistry) -> None:
    """TC-145: of the newest records, with their schemas, the most used one first."""
    found = rows(run, "orders", "-n", "8", "--schema-registry", registry.url)
    guid = "8f2b2c4e-0000-4000-8000-1234567890ab"
    assert {key: row["records"] for key, row in found.items()} == {
        2: 3,
        1: 1,
        99: 1,
        guid: 1,
        "magic": 1,
        "null": 1,
        "empty": 1,
    }
    assert next(iter(found)) == 2
    assert found[2] == {
        "id": 2,
        "records": 3,
        "status": "found",
        "latest": None,
        "type": "PROTOBUF",
        "references": ["money:1"],
        "schema": '"Order"',
    }
    assert (found[99]["status"], found[99]["type"]) == ("unknown", None)
    assert found[guid]["status"] == "unknown"
    keys = rows(run, "orders", "--column", "key", "--schema-registry", registry.url)
    assert {key: row["records"] for key, row in keys.items()} == {1: 13, "null": 1}


def test_the_registry_comes_from_a_file_or_the_environment(
    run: Run, registry: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-145: so do its secrets, which no message shows."""
    registry.authorization = "Basic YXBwOlMzY3IzdA=="
    file = tmp_path / "client.properties"
    text = f"schema.registry.url={registry.url}\nbasic.auth.user.info=app:S3cr3t\n"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    status, out, _ = run("show", "orders", "-F", str(file), "-f", "csv")
    assert status == 0
    assert out.splitlines()[0] == "id,records,status,latest,type,references,schema"
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", registry.url)
    status, out, err = run("show", "orders")
    assert (status, out) == (4, "")
    assert "did not accept the credentials" in err
    assert "try: check basic.auth.user.info" in err
    monkeypatch.setenv("KFAST_BASIC_AUTH_USER_INFO", "app:wrong-S3cr3t")
    status, _, err = run("show", "orders")
    assert status == 4
    assert "S3cr3t" not in err


def test_an_empty_topic(run: Run, registry: FakeRegistry) -> None:
    """TC-145"""
    assert rows(run, "empty", "--schema-registry", registry.url) == {}
    assert registry.paths == ["/subjects/empty-value/versions/latest"]


def test_what_goes_wrong(run: Run, registry: FakeRegistry) -> None:
    """TC-145: no registry, no topic, another server."""
    status, _, err = run("show", "orders")
    assert status == 2
    assert err.splitlines()[-1] == "try: --schema-registry http://HOST:8081"
    status, _, err = run("show", "oders", "--schema-registry", registry.url)
    assert status == 5
    status, _, err = run("show", "orders", "--schema-registry", registry.url + "/nothing/here")
    assert status == 3
    assert "is the path right" in err
    status, out, _ = run()
    assert status == 0
    assert "kfast schema show" in out


def test_the_latest_schema_of_the_subject(run: Run, registry: FakeRegistry) -> None:
    """TC-145: which of those in use it is, and itself where no record has it."""
    words = ("orders", "-n", "8", "--schema-registry", registry.url)
    registry.register("orders-value", '"double"')
    found = rows(run, *words)
    assert {key: row["latest"] for key, row in found.items() if row["status"] == "found"} == {
        2: False,
        1: True,
    }
    latest = registry.register("orders-value", '"string"')
    found = rows(run, *words)
    assert found[latest] == {
        "id": latest,
        "records": 0,
        "status": "found",
        "latest": True,
        "type": "AVRO",
        "references": [],
        "schema": '"string"',
    }
    assert found[1]["latest"] is False


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": ["null", "bytes"]},
    ],
}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "id: int32 not null\nat: timestamp[us, UTC] not null\nnote: binary\n"),
        (("--ddl",), "id INT NOT NULL, at TIMESTAMP NOT NULL, note BINARY\n"),
        (
            ("--as", "polars"),
            "{\n    'id': pl.Int32,\n    'at': pl.Datetime(\"us\", \"UTC\"),\n"
            "    'note': pl.Binary,\n}\n",
        ),
    ],
)
def test_the_columns_of_a_registered_schema(
    run: Run, registry: FakeRegistry, words: tuple[str, ...], expected: str
) -> None:
    """CL-210: no record is read."""
    registry.register("orders-value", json.dumps(ORDER))
    status, out, err = run("orders", *words, "--schema-registry", registry.url)
    assert (status, out, err) == (0, expected, "")


def test_json_is_looked_at_where_the_registry_has_no_columns(
    run: Run, registry: FakeRegistry, server: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-210: nothing, or a JSON schema; and schema infer asks no registry."""
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", registry.url)
    server.cluster.create_topic("documents", 1)
    server.cluster.append("documents", 0, [b'{"a":1}'])
    assert run("documents")[1] == "a: int64\n"
    registry.register("documents-value", '{"type":"object"}', "JSON")
    status, out, err = run("documents", "-v")
    assert (status, out) == (0, "a: int64\n")
    assert "the registry has no columns for documents-value" in err
    asked = len(registry.requests)
    assert run("infer", "documents", "--as", "arrow")[1] == "a: int64\n"
    assert len(registry.requests) == asked


def test_the_columns_of_a_message(run: Run, registry: FakeRegistry) -> None:
    """CL-210: named where a schema of Protobuf has several."""
    one = 'syntax = "proto3"; message A { int64 id = 1; }'
    registry.register("orders-value", one, "PROTOBUF")
    words = ("orders", "--schema-registry", registry.url)
    assert run(*words) == (0, "id: int64 not null\n", "")
    registry.register("orders-value", f"{one} message B {{ string b = 1; }}", "PROTOBUF")
    status, _, err = run(*words)
    assert status == 2
    assert err.splitlines()[1:] == ["found: A, B", "try: --message A"]
    assert run(*words, "--message", "B") == (0, "b: string not null\n", "")
