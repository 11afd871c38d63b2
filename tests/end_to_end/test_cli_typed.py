"""``kfast read`` with schemas: typed columns, flattened, and a file of what could not be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.end_to_end.test_cli_read import Shell
from tests.fake_broker.cluster import FakeCluster

SCHEMA = '{"id": "int64", "at": {"x": "float64"}}'
ROWS = [b'{"id":%d,"at":{"x":0.5}}' % i for i in range(6)]


@pytest.fixture
def shell(capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Shell]:
    """Give a shell whose topic has one bad document."""
    values = list(ROWS)
    values[3] = b'{"id":"three"}'
    cluster = FakeCluster(1)
    cluster.create_topic("orders", 1)
    cluster.append("orders", 0, values, batch_records=2)
    made = Shell(cluster, capfdbinary)
    with made.server:
        yield made


def test_typed_columns_of_parquet(shell: Shell, tmp_path: Path) -> None:
    """TC-58: documents become the columns of a schema, and what is bad is in a file of its own."""
    out, errors = tmp_path / "o.parquet", tmp_path / "bad.jsonl"
    given = ["--value", "json", "--value-schema", SCHEMA, "--on-error", "null"]
    shell("read", "orders", *given, "--flatten", "--errors", str(errors), "--output", str(out))
    table = pq.read_table(out)
    names = ["topic", "partition", "offset", "timestamp", "key", "id", "at", "headers"]
    assert table.schema.names == names
    assert table.column("id").to_pylist() == [0, 1, 2, None, 4, 5]
    (bad,) = map(json.loads, errors.read_text().splitlines())
    assert (bad["offset"], bad["code"], bad["path"]) == (3, "type", "id")
    assert bytes.fromhex(bad["raw_hex"]) == b'{"id":"three"}'


def test_a_schema_of_a_file_and_errors_in_parquet(shell: Shell, tmp_path: Path) -> None:
    out, errors = tmp_path / "o.arrow", tmp_path / "bad.parquet"
    ddl = tmp_path / "orders.sql"
    ddl.write_text("id BIGINT, at STRUCT<x: DOUBLE>")
    given = ["--value", "json", "--value-schema", f"@{ddl}", "--on-error", "skip"]
    shell("read", "orders", *given, "--errors", str(errors), "--output", str(out))
    table = pa.ipc.open_file(out).read_all()
    assert table.schema.field("value").type.names == ["id", "at"]
    assert table.column("offset").to_pylist() == [0, 1, 2, 4, 5]
    assert pq.read_table(errors).column("offset").to_pylist() == [3]


def test_a_bad_document_ends_the_read_by_default(shell: Shell, tmp_path: Path) -> None:
    given = ["--value", "json", "--value-schema", SCHEMA, "--output", str(tmp_path / "o.parquet")]
    shell("read", "orders", *given, status=6)
    assert b"orders-0 offset 3: value.id is a string, not int64" in shell.error
    assert not (tmp_path / "o.parquet").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--value-schema", SCHEMA, "-f", "arrow"], "--value json"),
        (["--value-framing", "confluent", "-f", "arrow"], "without a schema"),
        (["--value", "json", "--value-schema", "{", "-f", "arrow"], "is not JSON"),
        (["--value", "json", "--value-schema", "@/nowhere.json", "-f", "arrow"], "cannot be read"),
        (["--value", "json", "--value-schema", SCHEMA, "-f", "jsonl"], "no effect"),
        (["--flatten", "-f", "jsonl"], "no effect"),
        (["--errors", "bad.txt", "-f", "arrow"], "unknown ending"),
    ],
)
def test_options_that_cannot_be(shell: Shell, words: list[str], text: str) -> None:
    shell("read", "orders", *words, status=2)
    assert text in shell.error.decode()
