"""``kfast read`` with schemas: typed columns, their text, and a file of what could not be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2

from kfast.cli.options import Common
from kfast.cli.registry import registry_if_needed
from kfast.errors import IllegalStateError
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from tests.end_to_end.cli_shell import Shell
from tests.end_to_end.groups import committed
from tests.fake_registry.server import FakeRegistry, answer, fake_registry
from tests.reference.avro_encoder import encode
from tests.unit._native.framed_values import confluent

SCHEMA = '{"id": "int64", "at": {"x": "float64"}}'
JSON = ["--value", "json", "--value-schema", SCHEMA]
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
        (["--value-framing", "confluent", "--value", "json", "-f", "arrow"], "without a schema"),
        (["--value-framing", "confluent", "-f", "arrow"], "values of kind auto have no schema"),
        (["--value", "json", "--value-schema", "{", "-f", "arrow"], "is not JSON"),
        (["--value", "json", "--value-schema", "@x.avsc", "-f", "arrow"], "no file of a schema"),
        (["--value", "json", "--value-schema", SCHEMA, "-f", "raw"], "-f raw has the bytes"),
        (["--value", "avro", "-f", "arrow"], "try: --value-schema, or --schema-registry URL"),
        (["--value", "avro", "--value-schema", "{", "-f", "jsonl"], "value:"),
        (["--value", "avro", "--value-message", "A", "--value-schema", '"int"'], "--value-message"),
        (["--schema-registry", "http://x:1"], "no key or value has a schema"),
        (["--flatten", "-f", "jsonl"], "no key or value has a schema"),
        (["--flatten", *JSON, "-f", "%s"], "--flatten has no effect on a template"),
        (["--errors", "bad.txt", "-f", "arrow"], "unknown ending"),
        (["--errors", "bad.jsonl", "-f", "jsonl"], "--errors has no effect on jsonl"),
    ],
)
def test_options_that_cannot_be(shell: Shell, words: list[str], text: str) -> None:
    """CL-204: before anything is connected to."""
    shell("read", "orders", *words, status=2)
    assert text in shell.error.decode()
    assert shell.cluster.connections_made == 0


def test_a_schema_file_that_is_not_there(shell: Shell) -> None:
    """CL-204"""
    given = ["--value", "json", "--value-schema", "@/nowhere.json"]
    shell("read", "orders", *given, "-f", "arrow", status=5)
    assert b"--value-schema @/nowhere.json: there is no such file" in shell.error


# --- text -----------------------------------------------------------------------------------------


def test_json_lines(shell: Shell) -> None:
    """CL-205: a typed value is an object; of a bad one all is null."""
    out = shell("read", "orders", *JSON, "--on-error", "null", "-c", "offset,value")
    assert out.decode().splitlines() == [
        '{"offset":0,"value":{"id":0,"at":{"x":0.5}}}',
        '{"offset":1,"value":{"id":1,"at":{"x":0.5}}}',
        '{"offset":2,"value":{"id":2,"at":{"x":0.5}}}',
        '{"offset":3,"value":null}',
        '{"offset":4,"value":{"id":4,"at":{"x":0.5}}}',
        '{"offset":5,"value":{"id":5,"at":{"x":0.5}}}',
    ]


FLAT = ["--flatten", "-o", "2:5", "--on-error", "null", "-c", "offset,value,key"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "jsonl",
            '{"offset":2,"id":2,"at":{"x":0.5},"key":null}\n'
            '{"offset":3,"id":null,"at":null,"key":null}\n'
            '{"offset":4,"id":4,"at":{"x":0.5},"key":null}\n',
        ),
        (
            "json",
            '[\n{"offset":2,"id":2,"at":{"x":0.5},"key":null},\n'
            '{"offset":3,"id":null,"at":null,"key":null},\n'
            '{"offset":4,"id":4,"at":{"x":0.5},"key":null}\n]\n',
        ),
        (
            "csv",
            'offset,id,at,key\n2,2,"{""x"":0.5}",\n3,,,\n4,4,"{""x"":0.5}",\n',
        ),
        (
            "tsv",
            'offset\tid\tat\tkey\n2\t2\t{"x":0.5}\t\\N\n3\t\\N\t\\N\t\\N\n4\t4\t{"x":0.5}\t\\N\n',
        ),
        (
            "table",
            "offset    id  at         key\n"
            '     2     2  {"x":0.5}  null\n'
            "     3  null  null       null\n"
            '     4     4  {"x":0.5}  null\n',
        ),
    ],
)
def test_members_as_columns(shell: Shell, name: str, expected: str) -> None:
    """CL-206: with --flatten a column per member, in the place of the struct."""
    assert shell("read", "orders", *JSON, *FLAT, "-f", name).decode() == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-f", "%o %s|%S|%s{hex}\\n"], '1 {"id":1,"at":{"x":0.5}}|23|7b226964223a312c226174'),
        (["-f", "%s{json} %k\\n", "--null-as", "-"], '{"id":1,"at":{"x":0.5}} -\n'),
        (["-f", "line"], '1 null {"id":1,"at":{"x":0.5}}\n'),
        (["-f", "csv", "-c", "value"], 'value\n"{""id"":1,""at"":{""x"":0.5}}"\n'),
    ],
)
def test_values_as_json_text(shell: Shell, words: list[str], expected: str) -> None:
    """CL-205: in templates and in cells, too."""
    assert expected in shell("read", "orders", *JSON, "-o", "1:2", *words).decode()


def test_scalars_are_plain_in_cells(shell: Shell) -> None:
    """CL-205"""
    given = ["--value", "json", "--value-schema", "raw", "-o", "1:2", "-c", "value"]
    assert shell("read", "orders", *given, "-f", "jsonl") == b'{"value":{"id":1,"at":{"x":0.5}}}\n'
    cluster = shell.cluster
    cluster.create_topic("texts", 1)
    cluster.append("texts", 0, [b'"a,\\"b"', b'""', None])
    given = ["--value", "json", "--value-schema", "string"]
    assert shell("read", "texts", *given, "-c", "value", "-f", "csv") == b'value\n"a,""b"\n""\n\n'
    assert shell("read", "texts", *given, "-f", "%s\\n") == b'"a,\\"b"\n""\n\n'


def test_keys_and_values_with_members_of_the_same_names(shell: Shell) -> None:
    """CL-206: a name that is taken gets that of its column before it."""
    cluster = shell.cluster
    cluster.create_topic("pairs", 1)
    record = Record(b'{"offset":7,"id":"a"}', b'{"id":1,"value.id":2}')
    cluster.append("pairs", 0, [record])
    words = ["--key", "json", "--key-schema", "offset INT, id STRING"]
    words += ["--value", "json", "--value-schema", '{"id": "int8", "value.id": "int8"}']
    out = shell("read", "pairs", *words, "--flatten", "-f", "csv", "-c", "offset,key,value")
    assert out == b"offset,key.offset,id,value.id,value.value.id\n0,7,a,1,2\n"
    out = shell("read", "pairs", *words, "--flatten", "-f", "arrow", "-c", "offset,key,value")
    names = pa.ipc.open_stream(out).schema.names
    assert names == ["offset", "key.offset", "id", "value.id", "value.value.id"]


def test_no_records_have_a_heading(shell: Shell) -> None:
    """CL-206: where the schema does not depend on records."""
    shell.cluster.create_topic("empty", 1)
    for words, expected in (
        (["-f", "csv", "--flatten", "-c", "offset,value"], b"offset,id,at\n"),
        (["-f", "table", "--flatten", "-c", "offset,value"], b"offset  id  at\n"),
        (["-f", "json"], b"[]\n"),
    ):
        assert shell("read", "empty", *JSON, *words) == expected


def test_columns_that_are_not_written_are_not_decoded(shell: Shell) -> None:
    """CL-205"""
    out = shell("read", "orders", *JSON, "-c", "offset", "-f", "csv")
    assert out == b"offset\n0\n1\n2\n3\n4\n5\n"


# --- what is bad ----------------------------------------------------------------------------------

OFFSETS = ["-f", "%o:%s "]


def offsets(out: bytes) -> str:
    """Return what comes before the values."""
    return " ".join(part.partition(":")[0] for part in out.decode().split())


def test_a_bad_value_ends_text_behind_the_good_ones(shell: Shell) -> None:
    """CL-207: exit 6, and what to type."""
    for word in ("fail", "raise"):
        out = shell("read", "orders", *JSON, "--on-error", word, "-f", "%o:%s ", status=6)
        assert out.decode().split() == [f'{n}:{{"id":{n},"at":{{"x":0.5}}}}' for n in range(3)]
        assert shell.error.decode().splitlines() == [
            'kfast: orders-0 offset 3: value.id is a string, not int64 (byte 6: "three")',
            "found: 7b 22 69 64 22 3a 22 74 … (14 bytes)",
            "try: --on-error null, or --on-error skip",
        ]


def test_bad_values_are_left_out_and_listed(shell: Shell, tmp_path: Path) -> None:
    """CL-207: a line or a row for each, and how many in the summary."""
    for name in ("bad.jsonl", "bad.parquet"):
        errors = tmp_path / name
        given = ["--on-error", "skip", "--errors", str(errors), "-v"]
        out = shell("read", "orders", *JSON, *given, *OFFSETS)
        assert offsets(out) == "0 1 2 4 5"
        assert shell.error.decode().rstrip().endswith("1 undecodable ones left out")
        if name == "bad.jsonl":
            (bad,) = map(json.loads, errors.read_text().splitlines())
        else:
            (bad,) = pq.read_table(errors).to_pylist()
        found = (bad["topic"], bad["partition"], bad["offset"], bad["column"], bad["code"])
        assert found == ("orders", 0, 3, "value", "type")
    shell("read", "orders", *JSON, "--on-error", "null", "-v", "-f", "%s ")
    assert b"1 undecodable ones null" in shell.error


def test_only_what_was_written_counts_as_bad(shell: Shell, tmp_path: Path) -> None:
    """CL-207: a limit before the bad value ends the read without it."""
    errors = tmp_path / "bad.jsonl"
    given = ["--errors", str(errors), *OFFSETS, "-v"]
    for mode in ("fail", "null", "skip"):
        out = shell("read", "orders", *JSON, "-n", "3", "--on-error", mode, *given)
        assert (offsets(out), errors.read_text()) == ("0 1 2", "")
        assert b"undecodable" not in shell.error
    shell("read", "orders", *JSON, "-n", "4", "--on-error", "skip", *given)
    assert len(errors.read_text().splitlines()) == 1


def test_an_error_leaves_the_file_of_errors_as_it_was(shell: Shell, tmp_path: Path) -> None:
    """CL-207"""
    errors = tmp_path / "bad.jsonl"
    errors.write_text("old")
    shell("read", "orders", *JSON, "--errors", str(errors), "-f", "%s", status=6)
    assert errors.read_text() == "old"
    assert [*tmp_path.iterdir()] == [errors]


def test_a_group_commits_when_the_errors_are_there(shell: Shell, tmp_path: Path) -> None:
    """CL-207: what is committed has been written, the errors too."""
    errors = tmp_path / "bad.jsonl"
    given = ["-g", "g", "-o", "start", "-n", "6", "--on-error", "null", "--errors", str(errors)]
    assert offsets(shell("read", "orders", *JSON, *given, *OFFSETS)) == "0 1 2 3 4 5"
    assert committed(shell.cluster, "g") == {0: 6}
    assert len(errors.read_text().splitlines()) == 1


def test_framed_values_say_so(shell: Shell) -> None:
    """CL-207: the hint is an option."""
    shell.cluster.create_topic("framed", 1)
    shell.cluster.append("framed", 0, [confluent(7, b'{"id":1}')])
    shell("read", "framed", *JSON, "-f", "%s", status=6)
    assert shell.error.endswith(b"try: --value-framing confluent\n")
    out = shell("read", "framed", *JSON, "--value-framing", "confluent", "-f", "%s")
    assert out == b'{"id":1,"at":null}'


# --- Avro and registries --------------------------------------------------------------------------

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
    ],
}
NEXT = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": "int", "default": 7}]}


@pytest.fixture
def avro(shell: Shell) -> Iterator[FakeRegistry]:
    """Give a registry with two schemas, of which the topic "avro" has three records."""
    with fake_registry() as registry:
        ids = [registry.register("avro-value", json.dumps(each)) for each in (ORDER, NEXT)]
        at = 1_732_000_000_031
        first = encode(ORDER, {"id": 1, "at": at, "note": (0, None)})
        second = encode(NEXT, {"id": 2, "at": at + 1, "note": (1, "é"), "more": -3})
        shell.cluster.create_topic("avro", 1)
        values = [confluent(ids[0], first), confluent(ids[1], second), confluent(99, first)]
        shell.cluster.append("avro", 0, values)
        yield registry


def test_avro_by_the_schemas_of_a_registry(shell: Shell, avro: FakeRegistry) -> None:
    """CL-208: each value by its writer's schema, in one reader's."""
    words = ["read", "avro", "--value", "avro", "--schema-registry", avro.url, "-o", ":2"]
    assert shell(*words, "-f", "%s\\n").decode().splitlines() == [
        '{"id":1,"at":"2024-11-19T07:06:40.031Z","note":null}',
        '{"id":2,"at":"2024-11-19T07:06:40.032Z","note":"é"}',
    ]
    flat = shell(*words, "--value-schema", "latest", "--flatten", "-f", "csv", "-c", "value")
    assert flat.decode().splitlines() == [
        "id,at,note,more",
        "1,2024-11-19T07:06:40.031Z,,7",
        "2,2024-11-19T07:06:40.032Z,é,-3",
    ]
    assert avro.paths.count("/schemas/ids/1") == 2  # once for each command


def test_numbers_of_a_registry(shell: Shell, avro: FakeRegistry) -> None:
    """CL-208: what is known of the first value only is no schema with other columns."""
    number = avro.register("numbers-value", '"long"')
    shell.cluster.create_topic("numbers", 1)
    frame = b"\0" + number.to_bytes(4, "big")
    shell.cluster.append("numbers", 0, [frame + b"\x02", frame + b"\x04"])
    words = ["read", "numbers", "--value", "avro", "--schema-registry", avro.url, "-c", "value"]
    assert shell(*words, "-f", "csv") == b"value\n1\n2\n"
    assert shell(*words, "-f", "jsonl", "--flatten") == b'{"value":1}\n{"value":2}\n'
    assert shell(*words, "-f", "table").splitlines()[1:] == [b"1", b"2"]


def test_no_records_have_the_columns_of_the_registry(shell: Shell, avro: FakeRegistry) -> None:
    """CL-206: of the reader that is named."""
    shell.cluster.create_topic("none", 1)
    avro.register("none-value", json.dumps(NEXT))
    words = ["read", "none", "--value", "avro", "--schema-registry", avro.url, "-c", "value"]
    words += ["--value-schema", "latest"]
    assert shell(*words, "-f", "csv", "--flatten") == b"id,at,note,more\n"
    assert shell(*words, "-f", "csv") == b"value\n"
    table = pa.ipc.open_stream(shell(*words, "-f", "arrow", "--flatten")).read_all()
    assert (table.schema.names, table.num_rows) == (["id", "at", "note", "more"], 0)


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_avro_to_columns(shell: Shell, avro: FakeRegistry, tmp_path: Path, ending: str) -> None:
    """CL-208"""
    out = tmp_path / f"o{ending}"
    words = ["--value", "avro", "--schema-registry", avro.url, "--on-error", "null", "--flatten"]
    shell("read", "avro", *words, "--output", str(out))
    table = pq.read_table(out) if ending == ".parquet" else pa.ipc.open_file(out).read_all()
    assert table.column("id").to_pylist() == [1, 2, None]


def test_an_unknown_schema_is_a_bad_value(shell: Shell, avro: FakeRegistry) -> None:
    """CL-208"""
    words = ["read", "avro", "--value", "avro", "--schema-registry", avro.url, "-f"]
    out = shell(*words, "%o %S %s\\n", status=6)
    assert len(out.splitlines()) == 2
    assert b"has schema id 99, which the registry does not have" in shell.error
    out = shell(*words, "%o %s{json}\\n", "--on-error", "null")
    assert out.splitlines()[2] == b"2 null"


def test_the_registry_is_that_of_a_file_or_the_environment(
    shell: Shell, avro: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-209: so are its secrets, which no argument has and no message shows."""
    avro.authorization = "Basic YXBwOlMzY3IzdA=="
    words = ["read", "avro", "--value", "avro", "-n", "1", "-f", "%s"]
    file = tmp_path / "client.properties"
    file.write_text(f"schema.registry.url={avro.url}\nbasic.auth.user.info=app:S3cr3t\n")
    file.chmod(0o600)
    assert shell(*words, "-F", str(file)).startswith(b'{"id":1,')
    monkeypatch.setenv("KFAST_SCHEMA_REGISTRY_URL", avro.url)
    monkeypatch.setenv("KFAST_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO", "app:S3cr3t")
    assert shell(*words).startswith(b'{"id":1,')
    monkeypatch.setenv("KFAST_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO", "app:wrong-S3cr3t")
    shell(*words, status=4)
    assert b"did not accept the credentials" in shell.error
    assert b"S3cr3t" not in shell.error


def test_a_schema_needs_no_registry_of_a_setting(
    shell: Shell, avro: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-209: values without an id are read by the schema that is given."""
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", avro.url)
    shell.cluster.create_topic("bare", 1)
    row = {"id": 3, "at": 0, "note": (0, None)}
    shell.cluster.append("bare", 0, [encode(ORDER, row)])
    for name in ("o.avsc", "o.json"):
        file = tmp_path / name
        file.write_text(json.dumps(ORDER))
        out = shell("read", "bare", "--value", "avro", "--value-schema", f"@{file}", "-f", "%s")
        assert out == b'{"id":3,"at":"1970-01-01T00:00:00.000Z","note":null}'
    assert avro.paths == []


def test_a_command_makes_one_registry_and_closes_it(avro: FakeRegistry) -> None:
    """CL-209: for key and value alike."""
    with registry_if_needed(Common(), avro.url) as registry:
        made = registry()
        assert registry() is made
    assert made is not None
    with pytest.raises(IllegalStateError, match="closed"):
        made.schema(1)
    with registry_if_needed(Common(), None) as registry:
        assert registry() is None


def test_a_registry_that_refuses_is_asked_once(shell: Shell, avro: FakeRegistry) -> None:
    """CL-208: exit 4, in every format."""
    words = ["read", "avro", "--value", "avro", "--schema-registry", avro.url]
    words += ["--value-schema", "latest", "--flatten"]
    for form in ("csv", "arrow"):
        avro.requests.clear()
        refusals = [answer(403, {"error_code": 403, "message": "no"})] * 9
        avro.answer_next(*refusals)
        shell(*words, "-f", form, status=4)
        assert len(avro.paths) == len({*avro.paths})
        avro.next.clear()


def test_a_registry_that_is_down_is_asked_as_long_as_timeout_says(
    shell: Shell, avro: FakeRegistry
) -> None:
    """CL-208: exit 3, with the time."""
    words = ["read", "avro", "--value", "avro", "--schema-registry", "http://127.0.0.1:1"]
    shell(*words, "--timeout", "200ms", "-f", "csv", status=3)
    assert b"in 0.2 s" in shell.error


def test_schemas_with_different_members_cannot_be_one_table(
    shell: Shell, avro: FakeRegistry
) -> None:
    """CL-206"""
    other = json.dumps({"type": "record", "name": "O", "fields": [{"name": "x", "type": "int"}]})
    number = avro.register("avro2-value", other)
    shell.cluster.create_topic("avro2", 1)
    shell.cluster.append("avro2", 0, [confluent(number, b"\x02")])
    words = ["--value", "avro", "--schema-registry", avro.url, "--on-error", "null"]
    shell("read", "avro*", *words, "--flatten", "-f", "csv", status=2)
    assert b"the records have schemas with different columns" in shell.error
    out = shell("read", "avro*", *words, "-f", "jsonl", "-c", "value")
    assert b'{"value":{"x":1}}' in out.splitlines()


# --- Protobuf -------------------------------------------------------------------------------------

FILLS = """
    syntax = "proto3";
    package x;
    enum Side { BUY = 0; SELL = 1; }
    message Other { bytes raw = 1; }
    message Fill { int64 id = 1; Side side = 2; map<int32, string> notes = 3; }
"""
FILL = b"\x08\x07\x10\x01\x1a\x05\x08\x02\x12\x01z"


def test_protobuf_by_its_text(shell: Shell, tmp_path: Path) -> None:
    """CL-208: or by descriptors of protoc; names of members are strings."""
    shell.cluster.create_topic("fills", 1)
    shell.cluster.append("fills", 0, [FILL, b"", None])
    text, descriptors = tmp_path / "f.proto", tmp_path / "f.desc"
    text.write_text(FILLS)
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", package="x", syntax="proto3")
    file.message_type.add(name="Fill").field.add(name="id", number=1, type=3, label=1)
    descriptors.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    words = ["read", "fills", "--value", "protobuf", "--value-message", "x.Fill", "-f", "%s\\n"]
    for given in (FILLS, f"@{text}"):
        assert shell(*words, "--value-schema", given).splitlines() == [
            b'{"id":7,"side":"SELL","notes":{"2":"z"}}',
            b'{"id":0,"side":"BUY","notes":{}}',
            b"",
        ]
    out = shell(*words, "--value-schema", f"@{descriptors}")
    assert out.splitlines() == [b'{"id":7}', b'{"id":0}', b""]
    shell(*words[:4], "--value-schema", f"@{text}", status=2)
    assert b"--value-message" in shell.error


def test_imports_are_in_folders(shell: Shell, tmp_path: Path) -> None:
    """TC-190: those of --value-imports, then that of the file; what is missing is named."""
    main = 'syntax = "proto3"; import "x/f.proto"; import "side.proto"; message A { x.Fill f = 1; }'
    shell.cluster.create_topic("fills", 1)
    shell.cluster.append("fills", 0, [b"\x0a\x02\x08\x07"])
    (tmp_path / "a.proto").write_text("\n" + main, encoding="utf-8-sig")
    (tmp_path / "side.proto").write_text('syntax = "proto3"; import "x/f.proto";')
    folder = tmp_path / "more" / "x"
    folder.mkdir(parents=True)
    (folder / "f.proto").write_text(FILLS)
    words = ["read", "fills", "--value", "protobuf", "--value-message", "A", "-f", "%s\\n"]
    given = [*words, "--value-schema", f"@{tmp_path / 'a.proto'}"]
    shell(*given, status=2)
    assert b"imported and not given: x/f.proto" in shell.error
    out = shell(*given, "--value-imports", str(tmp_path / "none"), "--value-imports",
                str(tmp_path / "more"))  # fmt: skip
    assert out == b'{"f":{"id":7,"side":"BUY","notes":{}}}\n'
    text = main.replace('import "side.proto";', "")
    words += ["--value-imports", str(tmp_path / "more")]
    assert shell(*words, "--value-schema", text) == out
    shell(*words, "--value-schema", text.replace("x/f", "../f"), status=2)
    assert b'import "../f.proto": no name of a file in a folder' in shell.error
    (folder / "f.proto").write_bytes(b"\xff")
    shell(*words, "--value-schema", text, status=2)
    assert b"f.proto cannot be read" in shell.error
    shell(*words, "--schema-registry", "http://x", status=2)
    assert b"--value-imports is for .proto text" in shell.error


def test_protobuf_by_the_schemas_of_a_registry(shell: Shell) -> None:
    """CL-208: the indexes before a value say which message it is."""
    with fake_registry() as registry:
        number = registry.register("fills-value", FILLS, "PROTOBUF")
        shell.cluster.create_topic("fills", 1)
        values = [confluent(number, b"\x02\x02" + FILL), confluent(number, b"\x00\x0a\x00")]
        shell.cluster.append("fills", 0, values)
        words = ["read", "fills", "--value", "protobuf", "--schema-registry", registry.url]
        out = shell(*words, "--flatten", "-f", "csv", "-c", "value", "--on-error", "null")
        assert out == b'id,side,notes\n7,SELL,"{""2"":""z""}"\n,,\n'
        out = shell(*words, "--value-message", "x.Other", "--on-error", "skip", "-f", "%s")
        assert out == b'{"raw":""}'
        for version in ("latest", "fills-value:1"):  # TC-191: of its first message
            again = shell(*words, "--value-schema", version, "--on-error", "skip", "-f", "%s")
            assert again == out
