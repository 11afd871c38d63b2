"""The options of ``format("kfast")``: one table, parsed and checked before a query starts.

Owns names, types, defaults and the rules between options; they are those of ``format("kafka")``,
with some of kfast's own (`OPTIONS`). ``kafka.*`` options are checked by ``ConsumerConfig``; those
that Spark decides itself are rejected here. Pure: imports no pyspark, and asks no broker. Messages
never show a value that may be a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kfast._base.logs import get_logger
from kfast.config import ConsumerConfig
from kfast.errors import ConfigurationError, did_you_mean
from kfast.spark.source.format_options import (
    BYTES_AS_THEY_ARE,
    FormatOptions,
    column_options,
    format_options,
    registry_arguments,
)
from kfast.spark.source.offset_limits import END_OPTIONS, OffsetLimit, ending_limit, starting_limit
from kfast.spark.source.option_kinds import (
    Parser,
    anything,
    boolean,
    choice,
    duration_ms,
    text,
    whole_number,
)
from kfast.spark.source.setting_errors import as_option_error
from kfast.spark.source.topic_selection import TopicSelection, topic_selection
from kfast.table.offset_ranges import BUNDLE_OFFSETS

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table."""

    name: str
    parse: Parser
    default: object = None
    doc: str = ""


_ROWS: Final = (
    Option("subscribe", anything, doc="topics, separated by commas"),
    Option("subscribePattern", anything, doc="regular expression; a topic must match as a whole"),
    Option("assign", anything, doc='partitions: {"topicA":[0,1]}'),
    Option("startingOffsets", anything, doc="earliest, latest or JSON"),
    Option("endingOffsets", anything, doc="latest or JSON; batch only"),
    Option("startingTimestamp", anything, doc="ms since 1970, for all partitions"),
    Option("endingTimestamp", anything, doc="ms since 1970, for all partitions; batch only"),
    Option("startingOffsetsByTimestamp", anything, doc="ms since 1970 by partition, JSON"),
    Option("endingOffsetsByTimestamp", anything, doc="the same for the end; batch only"),
    Option(
        "startingOffsetsByTimestampStrategy",
        choice("error", "latest"),
        "error",
        "what a starting time after the last record means",
    ),
    Option("failOnDataLoss", boolean, True, "fail when offsets to be read are gone"),
    Option("skipCorruptBatches", boolean, False, "leave out batches that cannot be decoded"),
    Option(
        "checkpointLocation",
        text,
        doc="the query's checkpoint, where ids of topics are kept; streams only",
    ),
    Option(
        "minPartitions",
        whole_number(1),
        doc="fewest tasks; in a stream small ranges share one if it is left out",
    ),
    Option("maxRecordsPerPartition", whole_number(1), doc="most offsets of one task"),
    Option("maxOffsetsPerTrigger", whole_number(1), doc="most offsets of one micro-batch"),
    Option("minOffsetsPerTrigger", whole_number(1), doc="fewest offsets worth a micro-batch"),
    Option("maxTriggerDelay", duration_ms, 900_000, "longest wait for minOffsetsPerTrigger"),
    Option("includeHeaders", boolean, False, "add the column headers"),
    Option("groupIdPrefix", text, "spark-kafka-source", "first part of client ids"),
    Option("kafkaConsumer.pollTimeoutMs", whole_number(1), 120_000, "longest wait for records"),
    Option("fetchOffset.numRetries", whole_number(0), 3, "tries of a look-up on the driver"),
    Option("fetchOffset.retryIntervalMs", whole_number(0), 1_000, "time between them"),
    # kfast's own
    *(Option(*row) for source in ("key", "value") for row in column_options(source)),
    Option("valueByteOrder", choice("big", "little"), "big", "of numbers inside a struct"),
    Option(
        "mode",
        choice("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
        "PERMISSIVE",
        "malformed values: null, drop the record, or fail",
    ),
    Option("columnNameOfCorruptRecord", text, "_corrupt_record", "where PERMISSIVE keeps it"),
    Option("pushdown", boolean, False, "turn filters into offset ranges; batch only"),
    Option("commitOffsets", boolean, False, "commit finished batches to kafka.group.id"),
)

OPTIONS: Final[Mapping[str, Option]] = {row.name.lower(): row for row in _ROWS}
"""Every option by its name in lower case."""

_KAFKA: Final = "kafka."
_REGISTRY: Final = "schemaregistry."
_NO_OBJECTS: Final = (
    "objects are not sent to workers: use kafka.sasl.oauthbearer.token.endpoint.url with client id "
    "and secret, or kafka.sasl.mechanism=AWS_MSK_IAM"
)
_NOT_OURS: Final = {
    "auto.offset.reset": "use startingOffsets; Spark keeps the offsets, not Kafka",
    "key.deserializer": "keys are binary; cast the column",
    "value.deserializer": "values are binary; use valueFormat, or cast the column",
    "enable.auto.commit": "Spark keeps the offsets; for Kafka's lag tools set commitOffsets=true",
    "interceptor.classes": "an interceptor could break the query",
    "sasl.login.callback.handler.class": _NO_OBJECTS,
    "sasl.oauth.token.provider": _NO_OBJECTS,
    "ssl.context": "workers make their own: use kafka.ssl.truststore.location and its neighbours",
}
"""Settings of a consumer that are rejected, and what to use instead."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one query, checked: see `OPTIONS`; None where one without default is left out.

    ``end`` has no meaning for a stream.
    """

    is_stream: bool
    topics: TopicSelection
    start: OffsetLimit
    end: OffsetLimit
    group_id: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)
    """Settings of kfast's consumers, by Kafka's names."""
    fail_on_data_loss: bool = True
    skip_corrupt_batches: bool = False
    checkpoint_location: str | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    include_headers: bool = False
    group_id_prefix: str = "spark-kafka-source"
    poll_timeout_ms: int = 120_000
    num_retries: int = 3
    retry_interval_ms: int = 1_000
    value: FormatOptions = BYTES_AS_THEY_ARE
    key: FormatOptions = BYTES_AS_THEY_ARE
    registry: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Arguments of `SchemaRegistry`; none without one."""
    value_byte_order: str = "big"
    mode: str = "PERMISSIVE"
    corrupt_column: str = "_corrupt_record"
    pushdown: bool = False
    commit_offsets: bool = False

    def format_of(self, source: str) -> FormatOptions:
        """Return how ``key`` or ``value`` is decoded."""
        return self.key if source == "key" else self.value

    @property
    def bundle_offsets(self) -> int:
        """Most offsets of the ranges that share a task; 0 for a task per range."""
        if self.min_partitions is not None:  # many tasks are wanted
            return 0
        return min(BUNDLE_OFFSETS, self.max_records_per_partition or BUNDLE_OFFSETS)

    def __repr__(self) -> str:
        kind = "stream" if self.is_stream else "batch"
        return f"<SourceOptions {kind} {self.topics}>"


def parse_options(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Check all options of a query, spelled in any case.

    Raises ``ConfigurationError`` if one is malformed or missing, or excludes another or the kind of
    query.
    """
    given, kafka, registry = _sort(options)
    values = {name: _parse(row, given.get(name)) for name, row in _by_name().items()}
    if is_stream:
        _refuse_in_stream(given)
    elif "maxOffsetsPerTrigger" in given:
        logger.warning("maxOffsetsPerTrigger is for streams: a batch query reads everything")
    low, high = values["minOffsetsPerTrigger"], values["maxOffsetsPerTrigger"]
    if low is not None and high is not None and low > high:
        raise ConfigurationError(
            f"minOffsetsPerTrigger ({low}) is more than maxOffsetsPerTrigger ({high})",
            hint="raise the one or lower the other",
        )
    group_id = kafka.pop("group.id", None)
    if values["commitOffsets"] and group_id is None:
        raise ConfigurationError(
            "commitOffsets needs a group to commit to", hint="set kafka.group.id"
        )
    formats = {
        source: format_options(source, values, has_registry=bool(registry))
        for source in ("key", "value")
    }
    if registry and not any(each.takes_registry for each in formats.values()):
        raise ConfigurationError(
            "a schema registry is given, and neither keys nor values have schemas",
            hint="set valueFormat or keyFormat to avro, protobuf or json",
        )
    return SourceOptions(
        is_stream=is_stream,
        topics=topic_selection(given),
        start=starting_limit(
            given,
            is_stream=is_stream,
            is_miss_latest=values["startingOffsetsByTimestampStrategy"] == "latest",
        ),
        end=ending_limit({} if is_stream else given),
        group_id=group_id,
        kafka=_consumer_settings(kafka, group_id, values["groupIdPrefix"]),
        fail_on_data_loss=values["failOnDataLoss"],
        skip_corrupt_batches=values["skipCorruptBatches"],
        checkpoint_location=values["checkpointLocation"],
        min_partitions=values["minPartitions"],
        max_records_per_partition=values["maxRecordsPerPartition"],
        max_offsets_per_trigger=high,
        min_offsets_per_trigger=low,
        max_trigger_delay_ms=values["maxTriggerDelay"],
        include_headers=values["includeHeaders"],
        group_id_prefix=values["groupIdPrefix"],
        poll_timeout_ms=values["kafkaConsumer.pollTimeoutMs"],
        num_retries=values["fetchOffset.numRetries"],
        retry_interval_ms=values["fetchOffset.retryIntervalMs"],
        value=formats["value"],
        key=formats["key"],
        registry=registry_arguments(registry),
        value_byte_order=values["valueByteOrder"],
        mode=values["mode"],
        corrupt_column=values["columnNameOfCorruptRecord"],
        pushdown=values["pushdown"],
        commit_offsets=values["commitOffsets"],
    )


def shared_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that have the same meaning in batch queries and streams.

    Spark asks a source for its schema without the kind of query.
    """
    return {
        name: value
        for name, value in options.items()
        if not name.lower().startswith(("starting", "ending", "pushdown", "maxoffsets"))
    }


def _by_name() -> dict[str, Option]:
    return {row.name: row for row in _ROWS}


def _sort(
    options: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the source's options by their full names, and settings of Kafka and of a registry."""
    given: dict[str, str] = {}
    kafka: dict[str, str] = {}
    registry: dict[str, str] = {}
    for spelling, value in options.items():
        name = spelling.lower()
        if name.startswith(_KAFKA):
            kafka[name.removeprefix(_KAFKA)] = value
        elif name.startswith(_REGISTRY):
            registry[name.removeprefix(_REGISTRY)] = value
        elif name in OPTIONS:
            given[OPTIONS[name].name] = value
        else:
            near = did_you_mean(name, OPTIONS)
            if near is not None:
                right = OPTIONS[near].name
                raise ConfigurationError(
                    f"unknown option {spelling}; did you mean {right}?", hint=f"use {right}"
                )
            # Options may be shared with other sources, and Spark adds some of its own.
            logger.info("option %s is ignored by this source", spelling)
    return given, kafka, registry


def _parse(row: Option, value: str | None) -> Any:
    if value is None:
        return row.default
    try:
        return row.parse(value)
    except ValueError as error:
        raise ConfigurationError(
            f"option {row.name} = {value}: not understood", hint=str(error)
        ) from None


def _refuse_in_stream(given: Mapping[str, str]) -> None:
    for name in END_OPTIONS:
        if name in given:
            raise ConfigurationError(
                f"{name} is not for streams: a stream has no end",
                hint="leave it out, or read a batch; to read what the topics have now, use "
                "trigger(availableNow=True)",
            )
    if given.get("pushdown", "").strip().lower() == "true":
        raise ConfigurationError(
            "pushdown is not for streams: a stream has all offsets in turn", hint="leave it out"
        )


def _consumer_settings(
    kafka: dict[str, str], group_id: str | None, group_id_prefix: str
) -> dict[str, str]:
    """Check Kafka's settings and return them."""
    if not kafka.get("bootstrap.servers", "").strip():
        raise ConfigurationError(
            "option kafka.bootstrap.servers is missing",
            hint='.option("kafka.bootstrap.servers", "host:9092")',
        )
    for name, advice in _NOT_OURS.items():
        if name in kafka:
            raise ConfigurationError(f"option kafka.{name} is not supported", hint=advice)
    if "tokenauth" in kafka.get("sasl.jaas.config", "").lower():
        raise ConfigurationError(
            "delegation tokens are not supported",
            found="tokenauth in kafka.sasl.jaas.config",
            hint="log in with user and password",
        )
    settings = {"client.id": group_id or group_id_prefix, **kafka}
    try:
        ConsumerConfig(settings)
    except ConfigurationError as error:
        raise as_option_error(error, settings) from None
    return settings
