"""The options of a query, parsed and checked before it starts.

Owns the rules between options, which ``option_table`` declares. ``kafka.*`` options are checked by
``ConsumerConfig``; those that Spark decides itself are rejected here. Pure: imports no pyspark, and
asks no broker. Messages never show a value that may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kfast._base.logs import get_logger
from kfast.config import ConsumerConfig
from kfast.errors import ConfigurationError, did_you_mean
from kfast.internals import check_topic
from kfast.spark.source.format_options import FormatOptions, format_options, registry_arguments
from kfast.spark.source.java_pattern import java_pattern
from kfast.spark.source.offset_limits import OffsetLimit, ending_limit, starting_limit
from kfast.spark.source.option_table import KAFKA, OPTIONS, REGISTRY, Option
from kfast.spark.source.setting_errors import as_option_error
from kfast.table.offset_ranges import BUNDLE_OFFSETS
from kfast.table.offsets_json import format_partitions, parse_partitions
from kfast.types import TopicPartition

logger = get_logger(__name__)


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


_SELECTION: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """What a query reads: topics, a pattern, or partitions; the other two are empty.

    Topics are read with all partitions they have or get. A pattern is one of Java's and matches
    whole names of topics that are not internal.
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def names(self) -> frozenset[str] | None:
        """Topics to request metadata of; None for all."""
        if self.pattern:
            return None
        return frozenset(self.topics or (tp.topic for tp in self.partitions))

    def choose(self, topic: str, numbers: Iterable[int], is_internal: bool) -> set[TopicPartition]:
        """Return the partitions read of a topic that has these."""
        partitions = {TopicPartition(topic, number) for number in numbers}
        if self.partitions:
            return partitions.intersection(self.partitions)
        if self.pattern:
            matches = not is_internal and java_pattern(self.pattern).fullmatch(topic) is not None
            return partitions if matches else set()
        return partitions if topic in self.topics else set()

    def has(self, partition: TopicPartition) -> bool:
        """Return whether a partition is read, if it exists."""
        return bool(self.choose(partition.topic, [partition.partition], is_internal=False))

    def __str__(self) -> str:
        if self.partitions:
            return f"assign {format_partitions(self.partitions)}"
        return f"pattern {self.pattern}" if self.pattern else f"topics {', '.join(self.topics)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one query, checked: see `OPTIONS`; None where one without default is left out.

    ``end`` has no meaning for a stream.
    """

    is_stream: bool
    topics: TopicSelection
    start: OffsetLimit
    end: OffsetLimit
    group_id: str | None
    kafka: Mapping[str, str]
    """Settings of kfast's consumers, by Kafka's names."""
    fail_on_data_loss: bool
    skip_corrupt_batches: bool
    checkpoint_location: str | None
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    include_headers: bool
    group_id_prefix: str
    poll_timeout_ms: int
    num_retries: int
    retry_interval_ms: int
    value: FormatOptions
    key: FormatOptions
    registry: Mapping[str, object] = field(repr=False)
    """Arguments of `SchemaRegistry`; none without one."""
    value_byte_order: str
    mode: str
    corrupt_column: str
    pushdown: bool
    commit_offsets: bool

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
    texts, kafka, registry = _sort(options)
    values = {row.name: _parse(row, texts.get(row.name)) for row in OPTIONS.values()}
    if is_stream:
        _refuse_in_stream(texts, values)
    elif "maxOffsetsPerTrigger" in texts:
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
    if registry and not any(form.takes_registry for form in formats.values()):
        raise ConfigurationError(
            "a schema registry is given, and neither keys nor values have schemas",
            hint="set valueFormat or keyFormat to avro, protobuf or json",
        )
    return SourceOptions(
        is_stream=is_stream,
        topics=_topic_selection(texts),
        start=starting_limit(
            texts,
            is_stream=is_stream,
            is_miss_latest=values["startingOffsetsByTimestampStrategy"] == "latest",
        ),
        end=ending_limit({} if is_stream else texts),
        group_id=group_id,
        kafka=_consumer_settings(kafka, group_id, values["groupIdPrefix"]),
        value=formats["value"],
        key=formats["key"],
        registry=registry_arguments(registry),
        **{row.field: values[row.name] for row in OPTIONS.values() if row.field},
    )


def shared_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that have the same meaning in batch queries and streams.

    Spark asks a source for its schema without the kind of query.
    """
    return {
        name: value
        for name, value in options.items()
        if not (
            name.lower().startswith("starting")
            or (name.lower() in OPTIONS and OPTIONS[name.lower()].kind)
        )
    }


def _sort(
    options: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the source's options by their full names, and settings of Kafka and of a registry."""
    texts: dict[str, str] = {}
    kafka: dict[str, str] = {}
    registry: dict[str, str] = {}
    for spelling, value in options.items():
        name = spelling.lower()
        if name.startswith(KAFKA):
            kafka[name.removeprefix(KAFKA)] = value
        elif name.startswith(REGISTRY):
            registry[name.removeprefix(REGISTRY)] = value
        elif name in OPTIONS:
            texts[OPTIONS[name].name] = value
        else:
            near = did_you_mean(name, OPTIONS)
            if near is not None:
                right = OPTIONS[near].name
                raise ConfigurationError(
                    f"unknown option {spelling}; did you mean {right}?", hint=f"use {right}"
                )
            # Options may be shared with other sources, and Spark adds some of its own.
            logger.info("option %s is ignored by this source", spelling)
    return texts, kafka, registry


def _parse(row: Option, value: str | None) -> Any:
    if value is None:
        return row.default
    try:
        return row.parse(value)
    except ValueError as error:
        raise ConfigurationError(
            f"option {row.name} = {value}: not understood", hint=str(error)
        ) from None


def _refuse_in_stream(texts: Mapping[str, str], values: Mapping[str, Any]) -> None:
    if values["pushdown"]:
        raise ConfigurationError(
            "pushdown is not for streams: a stream has all offsets in turn", hint="leave it out"
        )
    ends = [name for name in texts if OPTIONS[name.lower()].kind == "batch" and name != "pushdown"]
    if ends:
        raise ConfigurationError(
            f"{ends[0]} is not for streams: a stream has no end",
            hint="leave it out, or read a batch; to read what the topics have now, use "
            "trigger(availableNow=True)",
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


def _topic_selection(texts: Mapping[str, str]) -> TopicSelection:
    """Return the topics that the options select.

    Raises ``ConfigurationError`` if none or several of the three are given or the one is malformed,
    and ``InvalidTopicError`` for a name no topic can have.
    """
    chosen = [name for name in _SELECTION if name in texts]
    if len(chosen) != 1:
        raise ConfigurationError(
            f"exactly one of the options {', '.join(_SELECTION)} must be given",
            found=f"{' and '.join(chosen)} are given" if chosen else "none of them is given",
            hint='for example .option("subscribe", "topicA,topicB")',
        )
    (option,) = chosen
    text = texts[option].strip()
    if option == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
        if not topics:
            raise ConfigurationError("option subscribe names no topic", hint="name one at least")
        for topic in topics:
            check_topic(topic)
        return TopicSelection(topics=topics)
    if option == "subscribePattern":
        return TopicSelection(pattern=_pattern(text))
    partitions = parse_partitions(text, option)
    if not partitions:
        raise ConfigurationError("option assign names no partition", hint="name one at least")
    for tp in partitions:
        check_topic(tp.topic)
    return TopicSelection(partitions=partitions)


def _pattern(text: str) -> str:
    if not text:
        raise ConfigurationError("option subscribePattern is empty", hint="give a pattern")
    try:
        java_pattern(text)
    except ValueError as error:
        raise ConfigurationError(
            f"option subscribePattern = {text}: {error}", hint="write a regular expression of Java"
        ) from None
    return text
