"""The options of ``kfast ingest --spark`` as those of the source, with secrets out of sight."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kfast.cli.ingest import command
from kfast.cli.ingest_spark import query_options
from kfast.cli.options import Common
from kfast.errors import ConfigNotFoundError, ConfigurationError
from kfast.spark.ingest.query import QueryOptions
from kfast.spark.source.options import parse_options, shared_options
from kfast.spark.source.schema import default_schema
from kfast.table.option_spelling import OptionSpelling

NOT_GIVEN = {
    "kafka.allow.auto.create.topics": "false",
    "keyFormat": "bytes",
    "mode": "FAILFAST",
    "failOnDataLoss": "true",
    "startingOffsets": "earliest",
    "maxRecordsPerPartition": "5000000",
}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "SCHEMA_REGISTRY_URL", "KFAST_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PW", "user:from the environment")


def options_of(*words: str) -> QueryOptions:
    """Return the options of a query for the words of a command."""
    common = Common()
    needed = ["--to", "/nowhere/t", "--spark", "--checkpoint", "/nowhere/c"]
    with command.make_context("ingest", [*words, *needed], obj=common) as context:
        return query_options(common, context.params)


def source_of(*words: str) -> Mapping[str, str]:
    """Return the source's options that follow from the words, without those of every ingest."""
    source = options_of(*words).source
    return {name: text for name, text in source.items() if NOT_GIVEN.get(name) != text}


def ddl_of(options: QueryOptions) -> str:
    """Return the columns of the table."""
    shared = parse_options(shared_options(options.source), is_stream=False)
    return default_schema(shared, options.columns, options.types)


def test_options_without_any() -> None:
    options = options_of("t")
    assert options.source == {
        **NOT_GIVEN,
        "kafka.bootstrap.servers": "localhost:9092",
        "subscribe": "t",
        "valueFormat": "bytes",
    }
    assert options.trigger_arguments == {"availableNow": True}
    assert options.schema is None
    assert options.spelling is OptionSpelling.COMMAND
    assert options.orphan_age_ms == 86_400_000


def test_the_spellings_of_kfast_ingest() -> None:
    """CL-131, CL-132"""
    source = source_of(
        *("a", "b", "-b", "h:1", "-X", "security.protocol=SSL", "--timeout", "5s", "-g", "g"),
        *("--value", "text", "--key", "int32", "--on-error", "skip", "--lost", "skip"),
        *("--option", "maxOffsetsPerTrigger=10"),
    )
    assert source == {
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SSL",
        "kafka.request.timeout.ms": "5000",
        "kafka.default.api.timeout.ms": "5000",
        "kafka.group.id": "g",
        "commitOffsets": "true",
        "subscribe": "a,b",
        "valueFormat": "text",
        "keyFormat": "int32",
        "mode": "DROPMALFORMED",
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "10",
    }
    options = options_of("a", "--follow", "--every", "5s", "--orphan-age", "0s")
    assert options.trigger_arguments == {"processingTime": "5000 milliseconds"}
    assert options.orphan_age_ms == 0
    assert source_of("a.b", "c-?", "[!d]*")["subscribePattern"] == r"a\.b|c-.|[^d].*"
    assert source_of("--option", 'assign={"t":[0]}')["assign"] == '{"t":[0]}'


def test_columns(tmp_path: Path) -> None:
    """CL-131: named, or by a schema of JSON; columns with types are Spark's."""
    options = options_of("t", "-c", "offset,timestamp_type,headers,value", "--value", "int64")
    assert ddl_of(options) == (
        "offset bigint, timestampType int, headers array<struct<key:string,value:binary>>, "
        "value bigint"
    )
    assert options.source["includeHeaders"] == "true"
    (tmp_path / "s.json").write_text('{"id": "int64", "name": "string"}')
    words = ("t", "--value", "json", "--value-schema", f"@{tmp_path}/s.json")
    assert ddl_of(options_of(*words, "-c", "value,_rescued_data")) == (
        "value STRUCT<id: BIGINT, name: STRING>, _rescued_data string"
    )
    assert ddl_of(options_of(*words)).startswith("key binary, value STRUCT<id: BIGINT")
    assert options_of("t", "--value", "struct", "--schema", "value struct<a: int>").schema == (
        "value struct<a: int>"
    )
    with pytest.raises(ConfigurationError, match="--schema and --value-schema both say"):
        options_of(*words, "--schema", "value struct<id: long>")
    with pytest.raises(ConfigurationError, match="--schema and -c both say"):
        options_of("t", "--schema", "offset long", "-c", "offset")


def test_schemas(tmp_path: Path) -> None:
    """CL-131: a text, a file, or a version of a registry."""
    record = '{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}'
    avro = source_of("t", "--value", "avro", "--value-schema", record, "--value-framing", "none")
    assert (avro["valueSchema"], avro["valueFraming"]) == (record, "none")
    registry = ("--schema-registry", "http://r:1", "--value", "avro")
    source = source_of("t", *registry, "--value-schema", "orders-value:3")
    assert source["schemaRegistry.url"] == "http://r:1"
    assert (source["valueSubject"], source["valueVersion"]) == ("orders-value", "3")
    source = source_of("t", *registry, "--value-schema", "latest")
    assert ("valueSubject" in source, source["valueVersion"]) == (False, "latest")
    followed = options_of("t", *registry, "--follow", "-c", "value")
    assert (followed.follows_schema, followed.columns) == (True, ("value",))
    assert not options_of("t", *registry).follows_schema
    assert not options_of("t", *registry, "--follow", "--value-schema", "s:3").follows_schema
    assert not options_of("t", *registry, "--follow", "--schema", "offset long").follows_schema
    file = tmp_path / "a.proto"
    file.write_text('syntax = "proto3"; message A { int32 id = 1; }')
    words = ("t", "--value", "protobuf", "--value-message", "A", "--value-schema")
    source = source_of(*words, f"@{file}", "--value-imports", "/i", "--value-imports", "/j")
    assert source["valueDescriptorSet"] == str(file)
    assert (source["valueMessage"], source["valueImports"]) == ("A", "/i,/j")
    with pytest.raises(ConfigurationError, match=r"\.proto text is a file with --spark"):
        options_of(*words, file.read_text())
    with pytest.raises(ConfigurationError, match="keys of kind bytes have no schema"):
        options_of("t", "--key-framing", "confluent")


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("kafka.client.id=x", "-X NAME=VALUE, -F FILE or -b"),
        ("schemaRegistry.url=http://r", "--schema-registry, and schema.registry.NAME in a file"),
        ("valueSubject=s", "--value-schema"),
        ("Mode=FAILFAST", "--on-error"),
        ("subscribePattern=.*", "TOPIC"),
    ],
)
def test_an_option_of_the_source_with_another_name_here(option: str, hint: str) -> None:
    name = option.partition("=")[0]
    with pytest.raises(ConfigurationError, match=f"--option {name} has another name") as caught:
        options_of("t", "--option", option)
    assert str(caught.value.hint).startswith(hint)


def test_secrets_come_from_variables_and_files(tmp_path: Path) -> None:
    """CL-244: of the cluster, of the registry and of file systems."""
    (tmp_path / "pw").write_text("from a file\n")
    file = tmp_path / "client.properties"
    file.write_text(
        "sasl.username=app\nsasl.password=S3cr3t\nsecurity.protocol=SASL_SSL\n"
        "sasl.mechanism=PLAIN\nschema.registry.url=http://r:1\n"
        "schema.registry.basic.auth.user.info=env:PW\n"
    )
    file.chmod(0o600)
    words = ("t", "-F", str(file), "-X", f"ssl.key.password=@{tmp_path}/pw", "--value", "avro")
    source = source_of(*words)
    assert source["kafka.sasl.password"] == "S3cr3t"
    assert source["kafka.ssl.key.password"] == "from a file"
    assert source["schemaRegistry.url"] == "http://r:1"
    assert source["schemaRegistry.basic.auth.user.info"] == "user:from the environment"
    options = options_of("t", "--storage-option", "secret=env:PW", "--storage-option", "key=env::x")
    assert options.storage_options == {"secret": "user:from the environment", "key": "env:x"}
    assert "from the environment" not in repr(options)
    with pytest.raises(ConfigurationError, match=r"sasl\.password .*: the variable NONE"):
        options_of("t", "-X", "sasl.password=env:NONE")
    with pytest.raises(ConfigNotFoundError, match="there is no file"):
        options_of("t", "-F", str(tmp_path / "none.properties"))


def test_a_secret_on_the_command_line_is_noted_once(capsys: pytest.CaptureFixture[str]) -> None:
    """CL-244: by its name; it is in the list of processes."""
    given = ("-X", "sasl.password=S3cr3t", "--storage-option", "key=AKIA")
    login = (
        "-X",
        "sasl.username=u",
        "-X",
        "sasl.mechanism=PLAIN",
        "-X",
        "security.protocol=SASL_SSL",
    )
    options_of("t", "-v", *given, *login)
    first, second = capsys.readouterr().err.splitlines()
    text = "note: every user of this machine can see {} in the list of processes; try: {}=env:NAME"
    assert first.startswith(text.format("sasl.password", "-X sasl.password"))
    assert second.startswith(text.format("key", "--storage-option key"))
    options_of("t", "-q", *given, *login)
    assert capsys.readouterr().err == ""
