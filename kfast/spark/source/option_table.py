"""The options of ``format("kfast")``: names, values, defaults and meanings, declared once.

Parsing and checks (``options``, ``format_options``), what ``kfast ingest`` calls an option, and the
documents are made of these tables. Names are those of ``format("kafka")``, with some of kfast's
own. A parser raises ``ValueError`` saying what it accepts. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kfast.errors import ConfigurationError, did_you_mean
from kfast.schemas.formats import BYTES, FORMATS, format_named
from kfast.settings.names import REGISTRY_ARGUMENTS

LATEST: Final = "latest"
KAFKA: Final = "kafka."
REGISTRY: Final = "schemaregistry."
"""What options begin with, in lower case, that are settings of Kafka, and of a schema registry."""

_UNITS_MS: Final = {
    "": 1.0,
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_DURATION: Final = re.compile(r"\s*(-?\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_INT64_MAX: Final = 2**63 - 1

Parser = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table."""

    name: str
    parse: Parser
    default: object = None
    doc: str = ""
    field: str = ""
    """The attribute of `SourceOptions` that has its value; "" where others are made of it."""
    command: str = ""
    """What ``kfast ingest`` has in its place."""
    kind: str = ""
    """``batch`` or ``stream``: the queries that it is for."""
    argument: str = ""
    """The argument of ``deserializer_of`` that has its value."""


# --- values ---------------------------------------------------------------------------------------


def boolean(text: str) -> bool:
    """Return a bool written as Spark does."""
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise ValueError("true or false")
    return value


def whole_number(low: int) -> Callable[[str], int]:
    """Return a parser of integers from ``low`` up."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= _INT64_MAX:
            raise ValueError(f"an integer >= {low}")
        return value

    return parse


def duration_ms(text: str) -> int:
    """Return a time such as ``15m`` or ``200ms`` in milliseconds; no unit means milliseconds."""
    match = _DURATION.fullmatch(text)
    unit = _UNITS_MS.get(match[2].lower()) if match else None
    if match is None or unit is None or int(match[1]) < 0:
        raise ValueError("a time such as 15m, 30s or 200ms")
    return int(int(match[1]) * unit)


def choice(*values: str) -> Callable[[str], str]:
    """Return a parser of one of ``values``, in any case."""
    spellings = {value.lower(): value for value in values}

    def parse(text: str) -> str:
        value = spellings.get(text.strip().lower())
        if value is None:
            raise ValueError(" or ".join(values))
        return value

    return parse


def text(value: str) -> str:
    """Return the text, which must not be blank."""
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def anything(value: str) -> str:
    """Return the text unchanged; another module parses it."""
    return value


def _format_name(value: str) -> str:
    try:
        return format_named(value.strip().lower(), "").name
    except ConfigurationError as error:
        near = did_you_mean(value.strip().lower(), FORMATS)
        raise ValueError(f"did you mean {near}?" if near else str(error.hint)) from None


def _version(value: str) -> int | str:
    return LATEST if value.strip().lower() == LATEST else whole_number(1)(value)


def _object(value: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError('a JSON object such as {"coerce": ["number_text"]}')
    return parsed


# --- the table ------------------------------------------------------------------------------------


def _column_options(source: str) -> Iterator[Option]:
    """The options of ``key`` or ``value``."""
    rows: tuple[tuple[str, Parser, str, str, str], ...] = (
        ("Format", _format_name, "", "", f"how {source}s are decoded"),
        ("Schema", text, "schema", "-schema", "Avro: the writer's schema, or with schema ids the "
         f"reader's schema. JSON needs none: the type of `{source}` is its schema"),
        ("Message", text, "message", "-message", "Protobuf: name of the message"),
        ("DescriptorSet", text, "descriptor_set", "-schema", "Protobuf: base64 of a "
         "FileDescriptorSet, or a file of the driver"),
        ("Imports", text, "imports", "-imports", "Protobuf: folders of the driver, separated by "
         "commas, with the files that a `.proto` file imports. The folder of the file itself is "
         "searched last"),
        ("Framing", text, "framing", "-framing", f"the prefix of {source}s: `none`, `confluent` "
         "(default with a registry), `apicurio`, `avro-single-object`"),
        ("Subject", text, "", "-schema", "the subject whose schema gives the columns, "
         f"`<topic>-{source}` by default. It is looked up once, when the query is planned, and "
         "logged"),
        ("Version", _version, "", "-schema", "the version of the subject: a number, or `latest` "
         "(default)"),
        ("Options", _object, "options", "", "further arguments of [the "
         'deserializer](typed-columns.md), in JSON: `{"coerce": ["number_text"]}`'),
    )  # fmt: skip
    for ending, parse, argument, command, doc in rows:
        default = BYTES if ending == "Format" else None
        has_command = ending != "Options"
        yield Option(
            f"{source}{ending}", parse, default, doc, "", f"--{source}{command}" * has_command,
            argument=argument,
        )  # fmt: skip


_OF_KAFKA: Final = (
    Option("subscribe", anything, None, "topics, separated by commas", command="TOPIC"),
    Option("subscribePattern", anything, None, "regular expression that matches whole topics"),
    Option("assign", anything, None, 'partitions: {"topicA":[0,1]}'),
    Option("startingOffsets", anything, None, "earliest, latest or JSON"),
    Option("endingOffsets", anything, None, "latest or JSON; batch only", kind="batch"),
    Option("startingTimestamp", anything, None, "ms since 1970, for all partitions"),
    Option("endingTimestamp", anything, None, "the same for the end; batch only", kind="batch"),
    Option("startingOffsetsByTimestamp", anything, None, "ms since 1970 by partition, JSON"),
    Option("endingOffsetsByTimestamp", anything, None, "the same; batch only", kind="batch"),
    Option("startingOffsetsByTimestampStrategy", choice("error", "latest"), "error",
           "what a starting time after the last record means"),
    Option("failOnDataLoss", boolean, True, "fail when offsets to be read are gone",
           "fail_on_data_loss", "--lost"),
    Option("minPartitions", whole_number(1), None, "fewest tasks; in a stream small ranges share "
           "one if it is left out", "min_partitions"),
    Option("maxRecordsPerPartition", whole_number(1), None, "most offsets of one task",
           "max_records_per_partition"),
    Option("maxOffsetsPerTrigger", whole_number(1), None, "most offsets of one micro-batch",
           "max_offsets_per_trigger", kind="stream"),
    Option("minOffsetsPerTrigger", whole_number(1), None, "fewest offsets worth a micro-batch",
           "min_offsets_per_trigger"),
    Option("maxTriggerDelay", duration_ms, 900_000, "longest wait for minOffsetsPerTrigger",
           "max_trigger_delay_ms"),
    Option("includeHeaders", boolean, False, "add the column headers", "include_headers"),
    Option("groupIdPrefix", text, "spark-kafka-source", "first part of client ids",
           "group_id_prefix"),
    Option("kafkaConsumer.pollTimeoutMs", whole_number(1), 120_000, "longest wait for records",
           "poll_timeout_ms"),
    Option("fetchOffset.numRetries", whole_number(0), 3, "tries of a look-up on the driver",
           "num_retries"),
    Option("fetchOffset.retryIntervalMs", whole_number(0), 1_000, "time between them",
           "retry_interval_ms"),
)  # fmt: skip
OWN_OPTIONS: Final = (
    *(row for source in ("value", "key") for row in _column_options(source)),
    Option("valueByteOrder", choice("big", "little"), "big",
           "`big` (default) or `little`: of numbers inside a struct", "value_byte_order"),
    Option("mode", choice("PERMISSIVE", "DROPMALFORMED", "FAILFAST"), "PERMISSIVE",
           "how to treat a record whose key or value is malformed: `PERMISSIVE` (null), "
           "`DROPMALFORMED`, `FAILFAST`. With `PERMISSIVE`, the schema may have the columns "
           "`_corrupt_record binary` (the bytes of the value) and `_corrupt_reason string` (code "
           "and path). A timestamp that Spark's microseconds cannot hold is malformed too: "
           "`timestamp range`", "mode", "--on-error"),
    Option("columnNameOfCorruptRecord", text, "_corrupt_record",
           "another name for the column `_corrupt_record`", "corrupt_column"),
    Option("skipCorruptBatches", boolean, False, "`true` leaves out batches that fail their "
           "checksum or cannot be decoded. Each is logged and counted. A batch whose end is not "
           "known, because its length is corrupt, is still an error", "skip_corrupt_batches"),
    Option("checkpointLocation", text, None, "for a stream's source: the checkpoint of the query, "
           'see "A topic created anew"', "checkpoint_location"),
    Option("pushdown", boolean, False, "`true` turns filters of batch queries into offset ranges; "
           "needs `spark.sql.python.filterPushdown.enabled`", "pushdown", kind="batch"),
    Option("commitOffsets", boolean, False, "`true` commits finished batches to `kafka.group.id`, "
           "for Kafka's own tools. These offsets are never read back", "commit_offsets", "-g"),
)  # fmt: skip
"""Options that ``format("kafka")`` does not have."""

OPTIONS: Final[Mapping[str, Option]] = {row.name.lower(): row for row in (*_OF_KAFKA, *OWN_OPTIONS)}
"""Every option by its name in lower case."""

_ALGORITHM: Final = "ssl.endpoint.identification.algorithm"
REGISTRY_OPTIONS: Final[Mapping[str, tuple[str, Parser]]] = {
    "url": ("url", text),
    "ssl.truststore.location": ("ssl_cafile", text),
    "ssl.keystore.location": ("ssl_certfile", text),
    **{name.replace("_", "."): (argument, text) for name, argument in REGISTRY_ARGUMENTS.items()},
    "ssl.key.password": ("ssl_key_password", anything),
    _ALGORITHM: ("ssl_check_hostname", lambda value: value.strip().lower() not in ("", "none")),
    "ssl.check.hostname": ("ssl_check_hostname", boolean),
    "timeout.ms": ("timeout_ms", whole_number(1)),
    "deadline.ms": ("deadline_ms", whole_number(1)),
}
"""What may follow ``schemaRegistry.``: names of Confluent's clients, and the argument of each."""


def command_of(name: str) -> str:
    """Return the argument of ``kfast ingest`` in place of an option, "" for none."""
    lower = name.lower()
    if lower.startswith(KAFKA):
        return "-X NAME=VALUE, -F FILE or -b"
    if lower.startswith(REGISTRY):
        return "--schema-registry, and schema.registry.NAME in a file (-F)"
    return OPTIONS[lower].command if lower in OPTIONS else ""
