"""``kfast ingest --spark``: the ingest by a query of Spark.

Owns the Spark session that it runs in, and what the command's options are as options of
``format("kfast")``. Lines, summary, signals and exit codes are those of ``kfast ingest``; a batch
that is interrupted is repeated by the next run.

It starts a JVM, connects to a server of Spark Connect (``--remote``), or, below ``spark-submit``,
uses the JVM that has started this program, with its master and settings.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kfast._base.clock import SystemClock
from kfast._base.optional import optional_package
from kfast._base.program import pairs
from kfast.cli.ingest_compact import note_secrets, storage_options
from kfast.cli.ingest_report import BatchLines, ended_by_signals, ingest_watchers, report_end
from kfast.cli.registry import registry_settings
from kfast.cli.typed_values import (
    TypedOptions,
    needs_registry,
    read_schema,
    refuse_schema_options,
    taken_options,
    typed_deserializers,
    version_of,
)
from kfast.deserializers.formats import known_root
from kfast.errors import ConfigurationError, KafkaError
from kfast.internals import is_glob
from kfast.local.spark import (
    deferred_signals,
    errors_into,
    log_accumulator_errors,
    python_launcher,
    python_path,
    spark_java_home,
    stop_spark,
)
from kfast.schemas.ddl import ddl_type
from kfast.schemas.formats import TYPED_FORMATS, format_named
from kfast.settings.names import setting_of
from kfast.settings.secret import Secret
from kfast.settings.sources import DEFAULT_ORIGIN, is_reference
from kfast.spark.ingest.progress import IngestProgress
from kfast.spark.ingest.query import (
    AVAILABLE_NOW,
    FORMATS,
    ORPHAN_AGE_MS,
    QueryOptions,
    start_query,
)
from kfast.spark.ingest.query_end import CAUSE_LENGTH, finish, spark_errors
from kfast.spark.source.option_table import command_of
from kfast.table.iceberg_partitions import split_partition_by
from kfast.table.ingest.options import EVERY_MS, ON_ERROR, check_columns
from kfast.table.ingest_warnings import IngestWarnings
from kfast.table.option_spelling import OptionSpelling
from kfast.table.value_types import in_spark

if TYPE_CHECKING:
    from kfast.cli.options import Common

_SESSION: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}
"""Spark settings for a program on a terminal; ``--conf`` takes precedence."""
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""Set by ``spark-submit``, whose JVM runs already."""
_COLUMNS: Final = ("key", "value")
_LOSS_HINT: Final = ("set failOnDataLoss=false", "--lost skip")
"""What hints of the source say, and what they say here."""


def ingest_with_spark(common: Common, values: Mapping[str, Any]) -> None:
    """Run an ingest with the options of the command."""
    # Malformed options and unwritable folders are reported before Spark starts, which is slow.
    options = query_options(common, values)
    options.check_folders()
    if not common.verbosity:  # py4j logs to the root, which would print stack traces
        logging.basicConfig(handlers=[logging.NullHandler()])
    logging.getLogger("py4j").setLevel(logging.WARNING)
    is_json, is_follow = values["output"] == "json", values["follow"]
    clock = SystemClock()
    watchers = (IngestWarnings(clock), *ingest_watchers(common, has_summary=not is_json))
    try:
        with common.logged_warnings("kfast.table"), _session(common, values) as spark:
            began_ms = clock.now_ms()
            with spark_errors():
                query = start_query(spark, options)
            progress = IngestProgress(
                options.open_log(), published=BatchLines(common).published, watchers=watchers
            )
            progress.begin(", ".join(values["topics"]) or "topics of a pattern")
            with ended_by_signals(lambda: None) as signals:
                is_complete = False
                try:
                    finish(query, lambda: progress.update(query.recentProgress), signals)
                    is_complete = True
                finally:
                    progress.close(is_complete=is_complete)
    except KafkaError as error:
        error.hint = error.hint and error.hint.replace(*_LOSS_HINT)
        raise
    summary = progress.summary((clock.now_ms() - began_ms) / 1000)
    report_end(common, summary, signals, is_json=is_json, is_follow=is_follow)


# --- options --------------------------------------------------------------------------------------


def query_options(common: Common, values: Mapping[str, Any]) -> QueryOptions:
    """Return the options of the query, checked."""
    if values["format"] not in FORMATS:
        raise ConfigurationError(
            f"--format {values['format']} is not for --spark", hint=f"one of {', '.join(FORMATS)}"
        )
    source, columns, types = _source_options(common, values)
    every_ms = EVERY_MS if values["every_ms"] is None else values["every_ms"]
    age_ms = values["orphan_age_ms"]
    return QueryOptions(
        bootstrap_servers=source.pop("kafka.bootstrap.servers"),
        topics=source.pop("subscribe", ""),
        output=values["to"],
        checkpoint=values["checkpoint"],
        trigger=f"{every_ms}ms" if values["follow"] else AVAILABLE_NOW,
        format=values["format"],
        value_format=source.pop("valueFormat"),
        schema=values["schema"],
        columns=columns,
        types=types,
        partition_by=split_partition_by(values["partition_by"]),
        compression=values["compression"],
        options=source,
        take_over=values["take_over"],
        orphan_age_ms=ORPHAN_AGE_MS if age_ms is None else age_ms,
        storage_options=storage_options(common, values["storage_option"]),
        iceberg_table=values["iceberg_table"],
        metrics=values["metrics"],
        dead_letter=values["dead_letter"],
        spelling=OptionSpelling.COMMAND,
    )


def _source_options(
    common: Common, values: Mapping[str, Any]
) -> tuple[dict[str, str], tuple[str, ...], dict[str, str]]:
    """Return the options of the source, names of columns, and types of those of JSON."""
    source = _kafka_options(common, values["group"])
    source |= _topic_options(values["topics"])
    source["mode"] = ON_ERROR[values["on_error"]]
    source["failOnDataLoss"] = str(values["lost"] == "fail").lower()
    types: dict[str, str] = {}
    has_registry = values["schema_registry"] is not None
    for column, typed in taken_options(dict(values)).items():
        kind = values[column]
        source |= _format_options(column, kind, typed, has_ddl=values["schema"] is not None)
        has_registry |= kind in TYPED_FORMATS and needs_registry(kind, typed)
        if kind == "json" and typed.schema is not None:
            types[column] = _json_type(column, typed)
    if has_registry:
        for name, value in registry_settings(common, values["schema_registry"]).items():
            source[f"schemaRegistry.{name.replace('_', '.')}"] = str(value)
    names: tuple[str, ...] = ()
    if values["columns"] is not None:
        names = check_columns(values["columns"].split(","))
    if "headers" in names:
        source["includeHeaders"] = "true"
    source |= _other_options(values["option"], has_topics=bool(values["topics"]))
    if values["schema"] is not None and (names or types):
        option = f"--{next(iter(types))}-schema" if types else "-c"
        raise ConfigurationError(
            f"--schema and {option} both say which columns there are", hint="give one of them"
        )
    return source, names, types


def _kafka_options(common: Common, group: str | None) -> dict[str, str]:
    """Return the settings of the consumer; what is no user's is left to the source's defaults."""
    entries = common.loaded().entries
    secrets = [
        name
        for name, value in pairs(common.settings, "-X").items()
        if (row := setting_of(name)) is not None and row.is_secret and not is_reference(value)
    ]
    note_secrets(common, secrets, "-X")
    servers = entries["bootstrap_servers"]
    defaults = {entry.key for entry in entries.values() if entry.origin == DEFAULT_ORIGIN}
    settings = {
        name.replace("_", "."): _text(value)
        for name, value in common.configs().items()
        if name not in {*defaults, servers.key}
    }
    settings["bootstrap.servers"] = _text(servers.value)
    if group is not None:
        settings["group.id"] = group
    options = {f"kafka.{name}": value for name, value in settings.items()}
    if "group.id" in settings:
        options["commitOffsets"] = "true"
    return options


def _text(value: object) -> str:
    if isinstance(value, Secret):
        value = value.reveal()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _topic_options(topics: Sequence[str]) -> dict[str, str]:
    """Return the topics: names, or with a glob among them one pattern of Java's for all."""
    if not any(map(is_glob, topics)):
        return {"subscribe": ",".join(topics)} if topics else {}
    patterns = []
    for topic in topics:
        pattern = topic.replace(".", r"\.").replace("?", ".").replace("*", ".*")
        patterns.append(pattern.replace("[!", "[^"))
    return {"subscribePattern": "|".join(patterns)}


def _format_options(
    column: str, kind: str, typed: TypedOptions, *, has_ddl: bool
) -> dict[str, str]:
    """Return how keys or values are decoded."""
    options = {f"{column}Format": format_named(kind, f"--{column}").name}
    if kind not in TYPED_FORMATS:
        refuse_schema_options(column, kind, typed)
        return options
    if kind == "json" and typed.schema is None and not has_ddl:
        raise ConfigurationError(
            f"--{column} json needs a schema", hint=f"--{column}-schema TEXT or @FILE"
        )
    if typed.framing is not None:
        options[f"{column}Framing"] = typed.framing
    if typed.message is not None:
        options[f"{column}Message"] = typed.message
    if typed.imports:
        options[f"{column}Imports"] = ",".join(typed.imports)
    if typed.schema is None or kind == "json":
        return options
    version = version_of(typed.schema)
    if version is not None:
        subject, options[f"{column}Version"] = version
        if subject:
            options[f"{column}Subject"] = subject
        return options
    schema = read_schema(column, kind, typed.schema)
    if kind == "avro":
        options[f"{column}Schema"] = str(schema)
    elif not typed.schema.startswith("@"):
        raise ConfigurationError(
            f"--{column}-schema: .proto text is a file with --spark", hint="@FILE.proto"
        )
    else:
        options[f"{column}DescriptorSet"] = typed.schema[1:]
    return options


def _json_type(column: str, typed: TypedOptions) -> str:
    """Return the type of a column of JSON in Spark's DDL."""
    schema = TypedOptions(schema=typed.schema)
    deserializers = typed_deserializers(
        {column: "json"}, {column: schema}, _none, is_registry_given=False
    )
    root = known_root(deserializers[column], "", column)
    assert root is not None  # the schema is given
    return ddl_type(in_spark(root, column), column)


def _none() -> None:
    """No registry."""


def _other_options(texts: Sequence[str], *, has_topics: bool) -> dict[str, str]:
    """Return the options of the source that have no name of their own in ``kfast ingest``."""
    options = pairs(texts, "--option")
    for name in options:
        command = command_of(name)
        if has_topics and name.lower() in {"subscribepattern", "assign"}:
            command = "TOPIC"
        if command:
            raise ConfigurationError(f"--option {name} has another name here", hint=command)
    return options


# --- the session ----------------------------------------------------------------------------------


@contextmanager
def _session(common: Common, values: Mapping[str, Any]) -> Iterator[Any]:
    """Start Spark, or connect to a running one; stop it at the end."""
    optional_package("pyspark", "kfast ingest --spark")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kfast-ingest-")))
        if not values["remote"]:
            _prepare(folder, is_local=(values["master"] or "").startswith("local"))
        errors = folder / "stderr"
        try:
            with deferred_signals(), nullcontext() if common.verbosity else errors_into(errors):
                spark = _start(values)
                stack.callback(stop_spark, spark)
                log_accumulator_errors()
        except Exception as error:
            if not type(error).__module__.startswith("pyspark."):
                raise
            text = errors.read_text(errors="replace") if errors.exists() else ""
            raise KafkaError(
                "Spark did not start",
                cause=" ".join(f"{text.strip()} {error}".split())[-CAUSE_LENGTH:],
                hint="-v shows Spark's whole output",
            ) from error
        yield spark


def _start(values: Mapping[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark's use of newer packages
        from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second

        builder = SparkSession.builder.appName("kfast ingest")
        defaults = {} if _GATEWAY in os.environ else _SESSION
        for name, value in {**defaults, **pairs(values["conf"], "--conf")}.items():
            builder = builder.config(name, value)
        if values["master"]:
            builder = builder.master(values["master"])
        if values["remote"]:
            builder = builder.remote(values["remote"])
        return builder.getOrCreate()


def _prepare(folder: Path, *, is_local: bool) -> None:
    """Set the environment of a JVM started here and of its workers."""
    if _GATEWAY not in os.environ and "JAVA_HOME" not in os.environ and not shutil.which("java"):
        os.environ["JAVA_HOME"] = str(spark_java_home(folder / "java"))
    if "PYSPARK_PYTHON" not in os.environ:
        launcher = python_launcher(folder / "python") if is_local else sys.executable
        os.environ["PYSPARK_PYTHON"] = launcher
    os.environ["PYTHONPATH"] = python_path()
