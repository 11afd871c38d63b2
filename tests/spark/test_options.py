"""The option table: what is accepted, what it means, what is refused and with which words."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest

from kfast.errors import ConfigurationError, InvalidTopicError, KafkaError
from kfast.spark.source.consumer_cache import ConsumerCache, _key
from kfast.spark.source.format_options import FormatOptions
from kfast.spark.source.offset_limits import LimitKind
from kfast.spark.source.option_table import OPTIONS, OWN_OPTIONS
from kfast.spark.source.options import (
    SourceOptions,
    TopicSelection,
    parse_options,
    shared_options,
)
from tests.document_examples import ROOT
from tests.spark.support import GIVEN, at, options, tp


def parse(given: Mapping[str, str], is_stream: bool = False) -> SourceOptions:
    return parse_options({**GIVEN, **given}, is_stream=is_stream)


def test_defaults_are_those_of_the_connector() -> None:
    batch, stream = options(), options(is_stream=True)
    assert (batch.start.kind, batch.end.kind) == (LimitKind.EARLIEST, LimitKind.LATEST)
    assert stream.start.kind is LimitKind.LATEST
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert (batch.min_partitions, batch.max_records_per_partition) == (None, None)
    assert (stream.max_offsets_per_trigger, stream.min_offsets_per_trigger) == (None, None)
    assert stream.max_trigger_delay_ms == 15 * 60 * 1000
    assert (batch.poll_timeout_ms, batch.num_retries, batch.retry_interval_ms) == (120_000, 3, 1000)
    assert batch.kafka["client.id"] == "spark-kafka-source"


def test_names_of_options_have_no_case() -> None:
    shouted = {name.upper(): value for name, value in GIVEN.items()}
    parsed = parse_options({**shouted, "FAILONDATALOSS": "FALSE"}, is_stream=False)
    assert not parsed.fail_on_data_loss
    assert parsed.topics == TopicSelection(topics=("t",))


VALUES = [
    ("failOnDataLoss", "false", "fail_on_data_loss", False),
    ("minPartitions", "7", "min_partitions", 7),
    ("maxRecordsPerPartition", "1", "max_records_per_partition", 1),
    ("maxOffsetsPerTrigger", "100", "max_offsets_per_trigger", 100),
    ("minOffsetsPerTrigger", "5", "min_offsets_per_trigger", 5),
    ("maxTriggerDelay", "2m", "max_trigger_delay_ms", 120_000),
    ("maxTriggerDelay", "2min", "max_trigger_delay_ms", 120_000),
    ("maxTriggerDelay", "250", "max_trigger_delay_ms", 250),
    ("maxTriggerDelay", "1h", "max_trigger_delay_ms", 3_600_000),
    ("includeHeaders", "true", "include_headers", True),
    ("kafkaConsumer.pollTimeoutMs", "512", "poll_timeout_ms", 512),
    ("fetchOffset.numRetries", "0", "num_retries", 0),
    ("fetchOffset.retryIntervalMs", "10", "retry_interval_ms", 10),
    ("valueFormat", "UTF8", "value", FormatOptions("text")),
    ("keyFormat", "binary", "key", FormatOptions("bytes")),
    ("keyFormat", "uuid", "key", FormatOptions("uuid")),
    ("valueFormat", "json", "value", FormatOptions("json")),
    ("mode", "failfast", "mode", "FAILFAST"),
    ("columnNameOfCorruptRecord", "bad", "corrupt_column", "bad"),
    ("valueByteOrder", "little", "value_byte_order", "little"),
]


@pytest.mark.parametrize(("name", "text", "attribute", "value"), VALUES)
def test_values(name: str, text: str, attribute: str, value: object) -> None:
    assert getattr(parse({name: text}, is_stream=True), attribute) == value


BAD_VALUES = [
    ("failOnDataLoss", "yes"),
    ("minPartitions", "0"),
    ("minPartitions", "-3"),
    ("maxRecordsPerPartition", "0"),
    ("maxOffsetsPerTrigger", "many"),
    ("maxTriggerDelay", "soon"),
    ("maxTriggerDelay", "-1m"),
    ("maxTriggerDelay", "5 parsecs"),
    ("includeHeaders", "1"),
    ("startingOffsetsByTimestampStrategy", "earliest"),
    ("fetchOffset.numRetries", "-1"),
    ("valueFormat", "jason"),
    ("keyFormat", "xyz"),
    ("valueOptions", "[1]"),
    ("valueOptions", "{"),
    ("valueVersion", "0"),
    ("mode", "IGNORE"),
    ("groupIdPrefix", " "),
]


@pytest.mark.parametrize(("name", "text"), BAD_VALUES)
def test_bad_values_name_option_value_and_what_belongs_there(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse({name: text}, is_stream=True)
    assert raised.value.message == f"option {name} = {text}: not understood"
    assert raised.value.hint


# --- what is read ---------------------------------------------------------------------------------


def test_exactly_one_way_to_say_what_is_read() -> None:
    servers = {"kafka.bootstrap.servers": "h:1"}
    for given in (
        {},
        {"subscribe": "a", "subscribePattern": "a.*"},
        {"subscribe": "a", "assign": '{"a":[0]}'},
    ):
        with pytest.raises(ConfigurationError, match=r"one of the options subscribe, subscribePat"):
            parse_options({**servers, **given}, is_stream=False)


def test_subscribe() -> None:
    assert parse({"subscribe": " b, a,b "}).topics == TopicSelection(topics=("b", "a"))
    with pytest.raises(ConfigurationError, match="names no topic"):
        parse({"subscribe": " , "})
    with pytest.raises(InvalidTopicError, match="cannot be the name"):
        parse({"subscribe": "a b"})


def test_pattern_matches_whole_names_and_no_internal_topic() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "orders|__consumer.*"}
    topics = parse_options(given, is_stream=False).topics
    assert topics.names is None
    assert topics.choose("orders", [0, 1], False) == {tp(0, "orders"), tp(1, "orders")}
    assert topics.choose("orders2", [0], False) == set()
    assert topics.choose("__consumer_offsets", [0], True) == set()
    for pattern in ("", "a(", "a*{", r"\y"):
        with pytest.raises(ConfigurationError, match="option subscribePattern"):
            parse_options({**given, "subscribePattern": pattern}, is_stream=False)


def test_assign() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "assign": '{"b":[3,1],"a":[0]}'}
    topics = parse_options(given, is_stream=False).topics
    assert topics.partitions == (tp(0, "a"), tp(1, "b"), tp(3, "b"))
    assert topics.names == frozenset({"a", "b"})
    assert topics.choose("b", range(10), False) == {tp(1, "b"), tp(3, "b")}
    for text in ("", "a", "[]", '{"a":0}', '{"a":["0"]}', '{"a":[-1]}', '{"a":[true]}'):
        with pytest.raises(ConfigurationError, match=r"option assign = .*: not understood"):
            parse_options({**given, "assign": text}, is_stream=False)
    with pytest.raises(ConfigurationError, match="names no partition"):
        parse_options({**given, "assign": "{}"}, is_stream=False)


# --- where it starts and ends ---------------------------------------------------------------------


def test_a_time_goes_before_times_before_offsets() -> None:
    given = {
        "startingOffsets": "not looked at",
        "startingOffsetsByTimestamp": '{"t":{"0":5}}',
        "endingOffsets": '{"t":{"0":9}}',
        "endingOffsetsByTimestamp": '{"t":{"0":8}}',
    }
    parsed = parse(given)
    assert (parsed.start.kind, parsed.start.by_partition) == (LimitKind.TIMESTAMPS, at(5))
    assert (parsed.end.kind, parsed.end.by_partition) == (LimitKind.TIMESTAMPS, at(8))
    parsed = parse({**given, "startingTimestamp": "3", "endingTimestamp": "4"})
    assert (parsed.start.kind, parsed.start.timestamp_ms) == (LimitKind.TIMESTAMP, 3)
    assert (parsed.end.kind, parsed.end.timestamp_ms) == (LimitKind.TIMESTAMP, 4)


def test_a_time_that_misses_is_an_error_at_the_start_and_the_end_of_the_log_at_the_end() -> None:
    given = {"startingTimestamp": "3", "endingTimestamp": "4"}
    parsed = parse(given)
    assert not parsed.start.is_miss_latest
    assert parsed.end.is_miss_latest
    assert parse({**given, "startingOffsetsByTimestampStrategy": "latest"}).start.is_miss_latest


def test_offsets_by_partition() -> None:
    parsed = parse({"startingOffsets": '{"t":{"1":7,"0":-2}}', "endingOffsets": '{"t":{"0":-1}}'})
    assert parsed.start.by_partition == at(-2, 7)
    parsed.start.check_names_all({tp(0), tp(1)})
    with pytest.raises(ConfigurationError) as raised:
        parsed.start.check_names_all({tp(0), tp(2)})
    assert raised.value.message.startswith("startingOffsets must name all partitions")
    assert raised.value.found == "t-2 not named; t-1 not read by this query"


def test_a_stream_may_start_at_the_latest_by_partition() -> None:
    parsed = parse({"startingOffsets": '{"t":{"0":-1}}'}, is_stream=True)
    assert parsed.start.by_partition == at(-1)


REFUSED_LIMITS = [
    ({"startingOffsets": "latest"}, "a batch query cannot start at the latest offset"),
    ({"startingOffsets": '{"t":{"0":-1}}'}, "a batch query cannot start at the latest offset"),
    ({"endingOffsets": "earliest"}, "a query cannot end at the earliest offset"),
    ({"endingOffsets": '{"t":{"0":-2}}'}, "a query cannot end at the earliest offset"),
    ({"startingOffsets": "first"}, "option startingOffsets = first: not understood"),
    ({"startingOffsets": '{"t":{"0":-3}}'}, "option startingOffsets gives t-0 the offset -3"),
    ({"startingOffsets": '{"t":{"x":1}}'}, "option startingOffsets = "),
    ({"startingOffsets": '{"t":{"0":1.5}}'}, "option startingOffsets = "),
    ({"startingOffsets": '{"t":[0]}'}, "option startingOffsets = "),
    ({"startingOffsets": '{"t":'}, "option startingOffsets = "),
    ({"startingTimestamp": "yesterday"}, "option startingTimestamp = yesterday: not a time"),
    ({"startingTimestamp": "-5"}, "option startingTimestamp = -5: not a time"),
    (
        {"startingTimestamp": "1767225600"},
        "option startingTimestamp = 1767225600: reads as seconds",
    ),
    ({"endingTimestamp": "20260131"}, "option endingTimestamp = 20260131: reads as a day"),
    (
        {"startingOffsetsByTimestamp": '{"t":{"0":1767225600}}'},
        "option startingOffsetsByTimestamp of t-0 = 1767225600: reads as seconds",
    ),
    (
        {"endingOffsetsByTimestamp": '{"t":{"0":-1}}'},
        "option endingOffsetsByTimestamp of t-0 = -1: not a time",
    ),
]


@pytest.mark.parametrize(("given", "message"), REFUSED_LIMITS)
def test_refused_limits(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse(given)
    assert raised.value.message.startswith(message)
    assert raised.value.hint
    assert "datetime" not in raised.value.hint


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is not for streams"):
        parse({name: "5"}, is_stream=True)


# --- rules between options ------------------------------------------------------------------------


def test_the_minimum_of_a_trigger_is_not_above_its_maximum() -> None:
    with pytest.raises(ConfigurationError, match=r"minOffsetsPerTrigger \(6\) is more than max"):
        parse({"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}, is_stream=True)


def test_a_maximum_per_trigger_in_a_batch_is_only_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert parse({"maxOffsetsPerTrigger": "5"}).max_offsets_per_trigger == 5
    assert "a batch query reads everything" in caplog.text


def test_pushdown_is_for_batches() -> None:
    assert parse({"pushdown": "true"}).pushdown
    with pytest.raises(ConfigurationError, match="pushdown is not for streams"):
        parse({"pushdown": "true"}, is_stream=True)


def test_commits_need_a_group() -> None:
    with pytest.raises(ConfigurationError, match="commitOffsets needs a group"):
        parse({"commitOffsets": "true"}, is_stream=True)
    parsed = parse({"commitOffsets": "true", "kafka.group.id": "g"}, is_stream=True)
    assert (parsed.group_id, parsed.commit_offsets) == ("g", True)


def test_groups_are_names_only() -> None:
    assert "group.id" not in parse({"kafka.group.id": "g"}).kafka
    assert parse({"kafka.group.id": "g"}).kafka["client.id"] == "g"
    assert parse({"groupIdPrefix": "p"}).kafka["client.id"] == "p"
    assert parse({"kafka.client.id": "c", "groupIdPrefix": "p"}).kafka["client.id"] == "c"


# --- Kafka's settings -----------------------------------------------------------------------------


def test_settings_of_kafka_are_passed_on() -> None:
    parsed = parse({"kafka.fetch.max.bytes": "1000000", "kafka.check.crcs": "false"})
    assert parsed.kafka["fetch.max.bytes"] == "1000000"
    assert parsed.kafka["check.crcs"] == "false"
    assert parsed.kafka["bootstrap.servers"] == "localhost:9092"


REFUSED_SETTINGS = [
    ("auto.offset.reset", "latest", "startingOffsets"),
    ("key.deserializer", "x", "cast the column"),
    ("value.deserializer", "x", "valueFormat"),
    ("enable.auto.commit", "true", "commitOffsets"),
    ("interceptor.classes", "x", "interceptor"),
    ("sasl.login.callback.handler.class", "x.Handler", "AWS_MSK_IAM"),
    ("sasl.oauth.token.provider", "x", "token.endpoint.url"),
    ("ssl.context", "x", "kafka.ssl.truststore.location"),
]


@pytest.mark.parametrize(("name", "value", "advice"), REFUSED_SETTINGS)
def test_refused_settings_say_what_to_do_instead(name: str, value: str, advice: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse({f"kafka.{name}": value})
    assert raised.value.message == f"option kafka.{name} is not supported"
    assert advice in str(raised.value.hint)


def test_delegation_tokens_are_refused_without_showing_them() -> None:
    jaas = 'ScramLoginModule required tokenauth="true" username="u" password="hunter2";'
    with pytest.raises(ConfigurationError) as raised:
        parse({"kafka.sasl.jaas.config": jaas})
    assert "delegation tokens are not supported" in str(raised.value)
    assert "hunter2" not in str(raised.value)


SECURED = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": "/etc/kafka/ca.pem",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="app" password="hunter2";',
}


def test_options_of_tls_and_sasl_are_those_of_kafka() -> None:
    """S-01, S-09: as PEM and as a line for JAAS, and not shown."""
    parsed = parse(SECURED)
    assert parsed.kafka["ssl.truststore.location"] == "/etc/kafka/ca.pem"
    assert "hunter2" not in repr(parsed)
    assert "hunter2" not in repr(_key(parsed.kafka))
    assert _key(parsed.kafka) == _key(dict(parsed.kafka))
    other = {**parsed.kafka, "sasl.jaas.config": "another"}
    assert _key(parsed.kafka) != _key(other)


def test_java_keystores_are_refused_when_a_query_is_planned(tmp_path: Path) -> None:
    """S-02, E-02: by their type, or else by what the file holds; with the names of options."""
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(20))
    is_java = {**SECURED, "kafka.ssl.truststore.location": str(store)}
    texts = []
    for type_given in ({"kafka.ssl.truststore.type": "JKS"}, {"kafka.ssl.truststore.type": "PEM"}):
        with pytest.raises(ConfigurationError) as raised:
            ConsumerCache().borrow(parse({**is_java, **type_given}).kafka)
        texts.append(str(raised.value))
    expected = [
        f"option kafka.*: kafka.ssl.truststore.location: {store} is a Java keystore (JKS), "
        "kfast reads PEM and PKCS#12",
        f"try: keytool -exportcert -rfc -keystore {store} -alias ALIAS -file ca.pem",
    ]
    assert [text.splitlines() for text in texts] == [expected, expected]


def test_servers_are_required() -> None:
    for servers in ({}, {"kafka.bootstrap.servers": " "}):
        with pytest.raises(ConfigurationError, match=r"kafka.bootstrap.servers is missing"):
            parse_options({"subscribe": "t", **servers}, is_stream=False)


def test_unknown_settings_have_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean fetch.min.bytes"):
        parse({"kafka.fetch.min.bytez": "1"})


def test_options_nearly_right_are_refused_and_strange_ones_passed_over() -> None:
    with pytest.raises(ConfigurationError, match="did you mean startingOffsets"):
        parse({"startingOfsets": "earliest"})
    assert parse({"path": "/x", "some.other.source": "1"}) == parse({})


# --- all of it ------------------------------------------------------------------------------------


def test_no_message_shows_a_password() -> None:
    with pytest.raises(KafkaError) as raised:
        parse({"kafka.sasl.password": "hunter2", "kafka.fetch.min.bytes": "x"})
    assert "hunter2" not in str(raised.value)


def test_options_travel_to_workers() -> None:
    parsed = options(startingOffsets='{"t":{"0":5}}')
    assert pickle.loads(pickle.dumps(parsed)) == parsed
    assert repr(parsed) == "<SourceOptions batch topics t>"


def test_options_for_the_schema_fit_batch_and_stream() -> None:
    given = {**GIVEN, "startingOffsets": "latest", "endingOffsets": "5", "includeHeaders": "true"}
    assert parse_options(shared_options(given), is_stream=False).include_headers


def test_the_table_is_documented() -> None:
    assert all(row.doc and row.name.lower() == name for name, row in OPTIONS.items())
    document = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    for row in OWN_OPTIONS:
        is_in_words = row.name.endswith("Format") or row.name.startswith("key")
        assert is_in_words or f"| `{row.name}` | {row.doc} |\n" in document


# --- formats and registries -----------------------------------------------------------------------

SECRET = "hush-hush"
REGISTRY = {
    "schemaRegistry.url": "https://registry:8081",
    "schemaRegistry.basic.auth.user.info": f"reader:{SECRET}",
    "schemaRegistry.ssl.ca.location": "/ca.pem",
    "schemaRegistry.ssl.certificate.location": "/cert.pem",
    "schemaRegistry.ssl.key.location": "/key.pem",
    "schemaRegistry.ssl.key.password": SECRET,
    "schemaRegistry.ssl.endpoint.identification.algorithm": "",
    "schemaRegistry.timeout.ms": "500",
}


def test_formats_with_schemas() -> None:
    """TC-151."""
    parsed = parse(
        {
            "valueFormat": "Avro",
            "valueSubject": "orders-v",
            "valueVersion": "3",
            "valueFraming": "apicurio",
            "valueOptions": '{"max_depth": 8}',
            "keyFormat": "json",
            "keyFraming": "none",
            **REGISTRY,
        }
    )
    arguments = {"framing": "apicurio", "options": {"max_depth": 8}}
    assert parsed.value == FormatOptions("avro", arguments, "orders-v", 3)
    assert parsed.key == FormatOptions("json", {"framing": "none"})
    assert parsed.registry == {
        "url": "https://registry:8081",
        "basic_auth": f"reader:{SECRET}",
        "ssl_cafile": "/ca.pem",
        "ssl_certfile": "/cert.pem",
        "ssl_keyfile": "/key.pem",
        "ssl_key_password": SECRET,
        "ssl_check_hostname": False,
        "timeout_ms": 500,
    }
    assert SECRET not in repr(parsed)
    assert pickle.loads(pickle.dumps(parsed)) == parsed
    latest = parse({"valueFormat": "avro", "valueVersion": "latest", **REGISTRY})
    assert latest.value.version is None


AVRO = {"valueFormat": "avro"}
URL = {"schemaRegistry.url": "http://registry:8081"}
UNFIT = [
    ({"valueFormat": "json", "valueSchema": "x"}, "option valueSchema is not for valueFormat=json"),
    ({"valueSchema": "x"}, "option valueSchema is not for valueFormat=bytes"),
    ({**AVRO, "valueMessage": "x.Y"}, "option valueMessage is not for valueFormat=avro"),
    ({"keyFormat": "int32", "keyOptions": '{"a": 1}'}, 'option keyOptions: int32 has no "a"'),
    ({**AVRO, "valueOptions": '{"max_dept": 1}'}, 'has no "max_dept"; did you mean "max_depth"?'),
    ({**AVRO, "valueOptions": '{"columns": []}'}, "columns are those of the query's schema"),
    ({**AVRO, "valueSubject": "s"}, "option valueSubject is for schemas of a registry"),
    (
        {**AVRO, **URL, "valueSubject": "s", "valueSchema": '"long"'},
        "valueSchema and valueSubject both say which columns there are",
    ),
    (URL, "a schema registry is given, and neither keys nor values have schemas"),
    ({**AVRO, "schemaRegistry.timeout.ms": "5"}, "option schemaRegistry.url is missing"),
    (
        {**AVRO, **URL, "schemaRegistry.basic.auth.user.inf": f"a:{SECRET}"},
        "unknown option schemaRegistry.basic.auth.user.inf; did you mean",
    ),
    ({**AVRO, **URL, "schemaRegistry.timeout.ms": SECRET}, "schemaRegistry.timeout.ms: not und"),
    (
        {**AVRO, **URL, "schemaRegistry.basic.auth.user.info": SECRET},
        "SchemaRegistry: schemaRegistry.basic.auth.user.info is not a user",
    ),
    (
        {**AVRO, "schemaRegistry.url": f"http://u:{SECRET}@registry"},
        "option schemaRegistry.*: ",
    ),
]


@pytest.mark.parametrize(("given", "message"), UNFIT)
def test_what_does_not_belong_to_a_format(given: dict[str, str], message: str) -> None:
    """TC-151, TC-157: and no message has a secret."""
    with pytest.raises(ConfigurationError) as raised:
        parse(given)
    assert message in raised.value.message
    assert SECRET not in str(raised.value)
    assert raised.value.hint
