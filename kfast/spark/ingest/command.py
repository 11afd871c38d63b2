"""``python -m kfast.spark.ingest``: the command line of an ingest.

Owns its arguments, the Spark session it runs in, and its exit status: 0 when all was read, 1 with
an error's text on standard error, 130 after Ctrl-C and 143 after SIGTERM. A batch that is
interrupted is repeated by the next run.

On a terminal, and with ``--verbose``, progress is a line per batch on standard output. For a log
there are the lines of ``kfast ingest``, on standard error: at the start, once a minute, at the end.
Warnings are there in both cases.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from kfast._base.clock import SystemClock
from kfast._base.optional import optional_package
from kfast._base.program import pairs, run_program
from kfast.columns.table_text import shown
from kfast.errors import ConfigurationError, KafkaError
from kfast.local.spark import (
    deferred_signals,
    errors_into,
    jvm_exit_status,
    log_accumulator_errors,
    python_launcher,
    python_path,
    spark_java_home,
    stop_spark,
)
from kfast.spark.ingest import given_options
from kfast.spark.ingest.compact_command import compact
from kfast.spark.ingest.progress import IngestProgress
from kfast.spark.ingest.query import AVAILABLE_NOW, FORMATS, ORPHAN_AGE_MS, check_settings, ingest
from kfast.spark.source.option_kinds import duration_ms
from kfast.table.dead_letter_sink import letter_topic
from kfast.table.entries import TableShape
from kfast.table.file_formats import COMPRESSIONS
from kfast.table.folders import HELP as FOLDERS
from kfast.table.fsspec_store import open_store
from kfast.table.ingest_lines import IngestLines
from kfast.table.ingest_warnings import IngestWarnings
from kfast.table.ingest_watcher import IngestWatcher
from kfast.table.leftovers import probe_store
from kfast.table.log_formats import open_log
from kfast.table.table_log import TableLog
from kfast.threads.metrics_server import metrics_address

_PROGRESS_SECONDS: Final = 0.2
_OUR_ERROR: Final = re.compile(r"kfast\.errors\.\w+: (.+(?:\n(?:cause|found|try): .+)*)")
_PYTHON_ERROR: Final = re.compile(r"^([A-Za-z_][\w.]*: .+)$", re.MULTILINE)
_SPARK_ERROR: Final = re.compile(r"terminated with exception: (.+?)(?: SQLSTATE|$)", re.MULTILINE)
_LOG_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CAUSE_LENGTH: Final = 2_000
_NO_SPACE_HINT: Final = (
    "free space on the disks of the table, the checkpoint and Spark's own files (spark.local.dir), "
    "then start again"
)
_SESSION: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}
"""Spark settings for a program on a terminal; ``--conf`` takes precedence."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run an ingest with the process's arguments, or with `argv`; return the exit status."""
    words = sys.argv[1:] if argv is None else [*argv]
    if words[:1] == ["compact"]:
        return compact(words[1:])
    arguments = _parser().parse_args(words)
    if arguments.verbose:
        logging.basicConfig(level=logging.INFO, format=_LOG_LINE)
        logging.getLogger("py4j").setLevel(logging.WARNING)
    else:  # py4j logs to the root, which would print stack traces
        logging.basicConfig(handlers=[logging.NullHandler()])
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_LOG_LINE))
        handler.setLevel(logging.WARNING)
        logging.getLogger("kfast.table").addHandler(handler)
    return run_program(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    # Malformed arguments and unwritable folders are reported before Spark starts, which is slow.
    storage_options, storage_notes = given_options.storage_options(
        pairs(arguments.storage_option, "--storage-option"), os.environ
    )
    options, notes = given_options.source_options(
        pairs(arguments.option, "--option"), arguments.option_file, os.environ
    )
    for note in (*notes, *storage_notes):
        print(f"note: {note}", file=sys.stderr)
    orphan_age_ms = _age(arguments.orphan_age)
    settings: dict[str, Any] = {
        "bootstrap_servers": arguments.bootstrap_servers,
        "topics": arguments.topics or "",
        "trigger": arguments.trigger,
        "format": arguments.format,
        "value_format": arguments.value_format,
        "partition_by": arguments.partition_by,
        "compression": arguments.compression,
        "options": options,
    }
    check_settings(**settings)
    if arguments.metrics is not None:
        metrics_address(arguments.metrics)
    open_store(arguments.checkpoint, storage_options)
    if arguments.dead_letter is not None and not letter_topic(arguments.dead_letter):
        open_store(arguments.dead_letter, storage_options)
    store = open_store(arguments.output, storage_options)
    probe_store(store)
    log = open_log(store, TableShape(arguments.format, catalog_table=arguments.iceberg_table))
    with _session(arguments) as spark, spark_errors():
        query = ingest(
            spark,
            output=arguments.output,
            checkpoint=arguments.checkpoint,
            schema=arguments.schema,
            take_over=arguments.take_over,
            iceberg_table=arguments.iceberg_table,
            metrics=arguments.metrics,
            orphan_age_ms=orphan_age_ms,
            storage_options=storage_options,
            dead_letter=arguments.dead_letter,
            **settings,
        )
        _watch(query, log, arguments)


def _watch(query: Any, log: TableLog, arguments: argparse.Namespace) -> None:
    """Report on a query until its end."""
    clock = SystemClock()
    last = log.last()
    assert last is not None  # the query has begun to write the table
    has_batch_lines = not arguments.quiet and (sys.stdout.isatty() or arguments.verbose)
    watchers: list[IngestWatcher] = [IngestWarnings(clock)]
    if not arguments.quiet:
        is_log = not sys.stderr.isatty()
        has_summary = not has_batch_lines
        watchers.append(IngestLines(_write, clock, is_log=is_log, has_summary=has_summary))
    progress = IngestProgress(log, last.writer, clock.now_ms(), watchers)
    progress.begin(arguments.topics or "topics of a pattern")

    def report() -> None:
        lines = [*progress.lines(query.recentProgress)]
        _print_lines(lines if has_batch_lines else ())
        progress.tick()

    is_complete = True
    try:
        finish(query, report)
    except Exception:
        is_complete = False
        raise
    finally:
        summary = progress.summary(clock.now_ms())
        _print_lines([summary] if has_batch_lines else ())
        progress.close(is_complete=is_complete)


def finish(query: Any, report: Callable[[], object]) -> None:
    """Wait for the end of a query; Ctrl-C and SIGTERM stop it first.

    ``report`` is called every `_PROGRESS_SECONDS` and at the end. Raises ``KafkaError`` if the
    query failed, or Spark ended.
    """
    with deferred_signals() as received, spark_errors():
        try:
            while not received and not query.awaitTermination(_PROGRESS_SECONDS):
                report()
        finally:
            if query.isActive:
                query.stop()
            report()


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise ``KafkaError`` for an error of Spark, or if its JVM has ended."""
    try:
        yield
    except Exception as error:
        if isinstance(error, KafkaError):
            raise
        if type(error).__module__.startswith("pyspark."):
            raise failure_of(str(error)) from error
        status = jvm_exit_status()
        if status is None:
            raise
        ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise KafkaError(
            f"Spark's Java process {ended}",
            cause="it may have had too little memory" if status else None,
            hint="start the ingest again: it resumes; --conf spark.driver.memory=4g gives Spark "
            "more memory, --verbose shows its log",
        ) from error


def failure_of(text: str) -> KafkaError:
    """Return the error of a failed query, without stack traces if kfast raised it."""
    found = _OUR_ERROR.search(text)
    if found is not None:
        return KafkaError(found[1].strip())
    trace = text.rpartition("Traceback (most recent call last)")[2] if "Traceback" in text else ""
    raised = _PYTHON_ERROR.search(trace) or _SPARK_ERROR.search(text)
    return KafkaError(
        "the query failed",
        cause=(raised[1] if raised else text.strip())[:_CAUSE_LENGTH],
        hint=_NO_SPACE_HINT
        if "No space left" in text
        else "--verbose --conf spark.log.level=ERROR shows the whole log",
    )


def _write(line: str) -> None:
    """Write a line for the log; one that cannot take it is no reason to end."""
    with suppress(OSError):
        print(shown(line), file=sys.stderr, flush=True)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)


# --- arguments ------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kfast.spark.ingest",
        description="Write Kafka topics to a table of Parquet files, each record exactly once, "
        "with Spark. Run it again to resume where it stopped, also after a crash. "
        '"compact" as the first word makes large files of the small ones of a table.',
    )
    parser.add_argument(
        "--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="addresses of brokers"
    )
    parser.add_argument("--topics", metavar="TOPIC,...", help="or --option subscribePattern=...")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder or URL of the table")
    parser.add_argument(
        "--checkpoint", required=True, metavar="DIR", help="folder or URL of Spark's checkpoint"
    )
    parser.add_argument(
        "--trigger",
        default=AVAILABLE_NOW,
        metavar=f"{AVAILABLE_NOW}|TIME",
        help=f"{AVAILABLE_NOW} (default) reads up to the present log ends and stops; an interval "
        "such as 5s runs until stopped",
    )
    parser.add_argument("--format", choices=FORMATS, default="parquet")
    parser.add_argument(
        "--value-format",
        default="binary",
        metavar="FORMAT",
        help="how values are decoded: binary (default), utf8, int32, int64, float32, float64, "
        "uuid, struct, json, avro or protobuf; --option has what these need besides, such as "
        "schemaRegistry.url",
    )
    parser.add_argument(
        "--schema",
        metavar="DDL",
        help='columns to write (default all), such as "offset long, value struct<id: int, '
        'price: double>"',
    )
    parser.add_argument(
        "--partition-by",
        default="",
        metavar="NAME,...",
        help=f"partition the table into folders by {FOLDERS}",
    )
    parser.add_argument("--compression", choices=COMPRESSIONS, default="zstd")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help='any option of format("kfast"), such as maxOffsetsPerTrigger=10000000 or '
        "kafka.security.protocol=SSL; may be repeated; a password may be env:NAME or @FILE",
    )
    parser.add_argument(
        "--option-file",
        metavar="FILE",
        help="options by the same names, kafka.sasl.password and others: .properties, .toml, .json",
    )
    parser.add_argument(
        "--dead-letter",
        metavar="DIR|topic:NAME",
        help="folder or URL, or topic, for malformed keys and values, with their bytes, code and "
        "path",
    )
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="continue a table whose checkpoint is lost, with a new, empty checkpoint",
    )
    parser.add_argument(
        "--orphan-age",
        default=f"{ORPHAN_AGE_MS // 3_600_000}h",
        metavar="TIME",
        help="remove files of failed tasks older than this before starting (default 24h)",
    )
    parser.add_argument(
        "--storage-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the folders' filesystem, such as credentials, which may be env:NAME or "
        "@FILE; may be repeated",
    )
    parser.add_argument(
        "--iceberg-table",
        default="",
        metavar="CATALOG.NAMESPACE.TABLE",
        help="with --format iceberg; pyiceberg's settings say what the catalog is",
    )
    parser.add_argument(
        "--metrics",
        metavar="[HOST]:PORT",
        help="serve metrics to Prometheus, such as :9400; to this machine unless a host is given",
    )
    parser.add_argument("--master", help="Spark's master, such as local[4]")
    parser.add_argument("--remote", help="URL of a Spark Connect server, in place of --master")
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Spark setting; may be repeated",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="log to standard error, and a line per batch"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no lines but warnings")
    return parser


def _age(text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise ConfigurationError(f"--orphan-age {text}: not understood", hint=str(error)) from None


# --- the session ----------------------------------------------------------------------------------


@contextmanager
def _session(arguments: argparse.Namespace) -> Iterator[Any]:
    """Start Spark, or connect to a running one; stop it at the end."""
    optional_package("pyspark", "python -m kfast.spark.ingest")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kfast-ingest-")))
        if not arguments.remote:
            _prepare(folder, is_local=(arguments.master or "").startswith("local"))
        errors = folder / "stderr"
        try:
            with deferred_signals(), nullcontext() if arguments.verbose else errors_into(errors):
                spark = _start(arguments)
                stack.callback(stop_spark, spark)
                log_accumulator_errors()
        except Exception as error:
            if not type(error).__module__.startswith("pyspark."):
                raise
            text = errors.read_text(errors="replace") if errors.exists() else ""
            raise KafkaError(
                "Spark did not start",
                cause=" ".join(f"{text.strip()} {error}".split())[-_CAUSE_LENGTH:],
                hint="--verbose shows Spark's whole output",
            ) from error
        yield spark


def _start(arguments: argparse.Namespace) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark's use of newer packages
        from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second

        builder = SparkSession.builder.appName("kfast ingest")
        for name, value in {**_SESSION, **pairs(arguments.conf, "--conf")}.items():
            builder = builder.config(name, value)
        if arguments.master:
            builder = builder.master(arguments.master)
        if arguments.remote:
            builder = builder.remote(arguments.remote)
        return builder.getOrCreate()


def _prepare(folder: Path, *, is_local: bool) -> None:
    """Set the environment of a JVM started here and of its workers."""
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        os.environ["JAVA_HOME"] = str(spark_java_home(folder / "java"))
    if "PYSPARK_PYTHON" not in os.environ:
        launcher = python_launcher(folder / "python") if is_local else sys.executable
        os.environ["PYSPARK_PYTHON"] = launcher
    os.environ["PYTHONPATH"] = python_path()
