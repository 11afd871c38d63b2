"""``kfast ingest``: topics into files of a table, each record exactly once.

Ctrl-C and SIGTERM end it after what is complete is published: with ``--follow`` that is the way to
end it, else the status says that it was interrupted. A second signal ends it at once; what was not
published is read again by the next run.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

import click

from kfast import IngestSummary, KafkaConsumer, TopicPartition
from kfast._base.clock import SystemClock
from kfast._base.program import pairs
from kfast.application.read_bounds import END, START
from kfast.cli.debezium_values import debezium_of, debezium_options, without_json
from kfast.cli.ingest_compact import COMPACT, STORAGE_OPTION, output_option
from kfast.cli.options import Command, Common, Duration, Size, Words
from kfast.cli.positions import Selection, parse_bounds, parse_offset
from kfast.cli.ranges import resolve
from kfast.cli.registry import registry_if_needed, registry_option
from kfast.cli.typed_values import taken_options, typed_deserializers, typed_options
from kfast.columns.table_text import shown, text_table
from kfast.errors import ConfigurationError
from kfast.schemas.formats import TYPED_FORMATS
from kfast.table.entries import Entry
from kfast.table.file_formats import COMPRESSIONS
from kfast.table.folders import HELP as FOLDERS
from kfast.table.iceberg_partitions import split_partition_by
from kfast.table.ingest import Ingest
from kfast.table.ingest.options import (
    BYTES_PER_FILE,
    COLUMNS,
    DEFAULT_COLUMNS,
    EVERY_MS,
    FORMATS,
    KINDS,
    LOST,
    MEMORY_BYTES,
    ON_ERROR,
    ROWS_PER_FILE,
    IngestOptions,
    check_columns,
)
from kfast.table.ingest.planning import Bounds, FindBounds, PlannedRange
from kfast.table.ingest_lines import IngestLines
from kfast.table.ingest_watcher import IngestWatcher
from kfast.table.offsets_json import to_json_dict
from kfast.table.option_spelling import OptionSpelling

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PLAN: Final = ("topic", "partition", "from", "until", "records")


def _ingest(
    common: Common,
    topics: tuple[str, ...],
    offset: str | None,
    start: str | None,
    end: str | None,
    columns: str | None,
    partition_by: str,
    storage_option: tuple[str, ...],
    group: str | None,
    output: str,
    dry_run: bool,
    once: bool,
    every_ms: int | None,
    schema_registry: str | None,
    upsert: str,
    debezium: str | None,
    decimals: str | None,
    **rest: Any,
) -> None:
    common.has_json_errors = output == "json"
    typed = taken_options(rest)
    is_follow = rest["follow"]
    if once and is_follow:
        raise ConfigurationError("--once with --follow", hint="give one of them")
    if every_ms is not None and not is_follow:
        raise ConfigurationError("--every is for --follow", hint="add --follow, or leave it out")
    with registry_if_needed(common, schema_registry) as registry:
        kind = rest["value"]
        rest |= typed_deserializers(
            {name: rest[name] for name in typed},
            without_json(debezium, typed, kind),
            registry,
            is_registry_given=schema_registry is not None,
            reader="latest",
        )
        if debezium is not None:
            rest["value"] = debezium_of(debezium, decimals, kind, typed["value"], rest["value"])
        elif decimals is not None:
            raise ConfigurationError("--debezium-decimals is for --debezium", hint="leave it out")
        options = IngestOptions(
            topics=topics,
            columns=DEFAULT_COLUMNS if columns is None else check_columns(columns.split(",")),
            partition_by=split_partition_by(partition_by),
            upsert=tuple(filter(None, upsert.split(","))),
            storage_options=pairs(storage_option, "--storage-option"),
            every_ms=EVERY_MS if every_ms is None else every_ms,
            spelling=OptionSpelling.COMMAND,
            **rest,
        )
        skips_lost = options.lost == "skip"
        configs = common.configs()
        if group is not None:
            configs["group.id"] = group
        ingest = Ingest(
            options,
            {"config": configs},
            bounds=_bounds(offset, start, end, skips_lost=skips_lost, is_follow=is_follow),
            published=_BatchLines(common).published,
            watchers=_watchers(common, has_summary=output != "json"),
        )
        if dry_run:
            _print_plan(ingest.plan(), output)
            return
        with common.logged_warnings("kfast.table"), _ended_by_signals(ingest) as received:
            summary = ingest.run()
    if output == "json":
        click.echo(_json(summary))
    if received and not is_follow:
        if not common.is_quiet:
            click.echo(f"interrupted after {summary.rows:,} rows were published", err=True)
        signal.raise_signal(received[0])


def _bounds(
    offset: str | None,
    start: str | None,
    end: str | None,
    *,
    skips_lost: bool,
    is_follow: bool,
) -> FindBounds | None:
    """Return where partitions begin that the table does not have, and where the run ends.

    None: at their first offset, and at the ends of the logs. A range that begins at the start of
    the log and has an end says the end only, so that it is for partitions of the table, too.
    """
    if (offset, start, end) == (None, None, None):
        return None
    if offset is not None and (start, end) != (None, None):
        raise ConfigurationError("-o with --start or --end", hint="-o START:END")
    now_ms = time.time_ns() // 1_000_000
    selection = parse_bounds(start, end, now_ms) if offset is None else parse_offset(offset, now_ms)
    ranges = [selection.range, *(selection.partitions or {}).values()]
    if is_follow and any(each.end != END for each in ranges):
        raise ConfigurationError("--follow has no end", hint="leave out --follow, or the end")
    return _resolver(selection, skips_lost=skips_lost)


def _resolver(selection: Selection, *, skips_lost: bool) -> FindBounds:
    def bounds_of(tp: TopicPartition, first: int, last: int) -> Bounds:
        wanted = (selection.partitions or {}).get(tp.partition, selection.range)
        has_end = wanted.end != END
        begins = None if has_end and wanted.start == START else first
        return begins, last if has_end else None

    def bounds(consumer: KafkaConsumer, topics: Collection[str]) -> Mapping[TopicPartition, Bounds]:
        ranges, lost = resolve(
            consumer.internals,
            lambda: dict.fromkeys(sorted(topics)),
            selection,
            None,
            skips_lost=skips_lost,
        )
        return {
            tp: bounds_of(tp, first - lost.get(tp, 0), last) for tp, (first, last) in ranges.items()
        }

    return bounds


@contextmanager
def _ended_by_signals(ingest: Ingest) -> Iterator[Sequence[signal.Signals]]:
    """Stop the ingest at the first signal; a second one is handled as before. Yields them."""
    received: list[signal.Signals] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number))
        ingest.stop()
        handler = previous[received[-1]]
        if len(received) > 1 and callable(handler):
            handler(number, frame)

    previous = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


# --- what is printed ------------------------------------------------------------------------------


def _watchers(common: Common, *, has_summary: bool) -> Sequence[IngestWatcher]:
    """Return what writes lines for a log where standard error is no terminal, and the summary."""
    if common.is_quiet:
        return ()
    is_terminal = sys.stderr.isatty()

    def write(line: str) -> None:
        with suppress(OSError):  # what reads the log is gone, or its disk is full: no reason to end
            click.echo(shown(line), err=True)

    return (IngestLines(write, SystemClock(), is_log=not is_terminal, has_summary=has_summary),)


class _BatchLines:
    """A line for each batch that is published, with its rate: on a terminal, and with ``-v``."""

    def __init__(self, common: Common, clock: Callable[[], float] = time.monotonic) -> None:
        is_asked_for = sys.stderr.isatty() or common.verbosity > 0
        self._is_shown = is_asked_for and not common.is_quiet
        self._clock = clock
        self._last = clock()

    def published(self, entry: Entry) -> None:
        """Print the line."""
        files = entry.counts.files
        if not self._is_shown or not (files or entry.counts.rows):
            return
        now = self._clock()
        seconds, self._last = max(now - self._last, 0.001), now
        rate = f"{entry.counts.rows / seconds:,.0f} rows/s"
        speed = f"{entry.counts.bytes / 1e6 / seconds:,.1f} MB/s"
        named = "1 file" if files == 1 else f"{files} files" if files else "a merge"
        click.echo(f"published {entry.counts.rows:,} rows in {named}, {rate}, {speed}", err=True)


def _print_plan(planned: Sequence[PlannedRange], output: str) -> None:
    rows = [
        (*each.topic_partition, each.from_offset, each.until_offset, each.offsets)
        for each in planned
    ]
    if output == "json":
        click.echo(json.dumps([dict(zip(_PLAN, row, strict=True)) for row in rows]))
        return
    cells = [[str(cell) for cell in row] for row in rows]
    right = [name != "topic" for name in _PLAN]
    width = None if sys.stdout.isatty() else sys.maxsize
    click.echo(text_table(_PLAN, cells, right=right, width=width))


def _json(summary: IngestSummary) -> str:
    return json.dumps(
        {
            "rows": summary.rows,
            "bytes": summary.bytes,
            "files": summary.files,
            "batches": summary.batches,
            "seconds": summary.seconds,
            "lost_offsets": summary.lost_offsets,
            "bad_records": summary.bad_records,
            "dead_letters": summary.dead_letters,
            "unknown_fields": summary.unknown_fields,
            "ends": to_json_dict(summary.ends),
        }
    )


# --- the command ----------------------------------------------------------------------------------

command = Command(
    "ingest",
    callback=click.pass_obj(_ingest),
    help="Write topics to a table of files, each record exactly once. Run it again and it goes on "
    "where the table ends, also after a crash. kfast ingest compact makes its files large.",
    params=[
        click.Argument(["topics"], nargs=-1, required=True, metavar="TOPIC..."),
        click.Option(
            ["--to"],
            required=True,
            metavar="DIR",
            help="folder of the table, or its URL",
        ),
        click.Option(["--format"], type=Words(FORMATS), default="parquet", help="of the files"),
        click.Option(["--once"], is_flag=True, help="read up to the ends as of now (the default)"),
        click.Option(["--follow"], is_flag=True, help="go on until Ctrl-C"),
        click.Option(
            ["offset", "-o", "--offset"],
            metavar="RANGE",
            help="12: where partitions begin that the table does not have (default start); 12:99 "
            "and :99 also where this run ends (default the ends as of now)",
        ),
        click.Option(
            ["start", "--start", "--from"],
            metavar="POS",
            help="where partitions begin that the table does not have",
        ),
        click.Option(["end", "--end"], metavar="POS", help="where this run ends, exclusive"),
        click.Option(
            ["--rows-per-file"], type=Size(1000), default=ROWS_PER_FILE, help="default 4M"
        ),
        click.Option(
            ["--bytes-per-file"], type=Size(), default=BYTES_PER_FILE, help="default 256M"
        ),
        click.Option(
            ["every_ms", "--every"],
            type=Duration(),
            metavar="TIME",
            help="with --follow: publish at the latest after this time (default 60s)",
        ),
        click.Option(
            ["--partition-by"],
            default="",
            metavar="A,B,...",
            help=f"folders of the table: {FOLDERS}",
        ),
        click.Option(
            ["--compression"], type=Words(COMPRESSIONS), default="zstd", help="default zstd"
        ),
        click.Option(
            ["columns", "-c", "--columns"],
            metavar="A,B,...",
            help=f"some of {', '.join(COLUMNS)} (default all but the last two)",
        ),
        *(
            click.Option(
                [f"--{name}"],
                default="bytes",
                metavar="|".join((*KINDS, *TYPED_FORMATS)),
                help=f"what {name}s are (default bytes)",
            )
            for name in ("key", "value")
        ),
        *typed_options(),
        registry_option(),
        *debezium_options(),
        click.Option(
            ["--on-error"],
            type=Words(tuple(ON_ERROR)),
            default="fail",
            help="a key, value or timestamp that is not what it should be",
        ),
        click.Option(
            ["--dead-letter"],
            metavar="DIR|topic:NAME",
            help="folder, URL or topic for keys, values and timestamps that --on-error leaves out "
            "or makes null, with their bytes, code and path",
        ),
        click.Option(
            ["--lost"],
            type=Words(LOST),
            default="fail",
            help="offsets that retention has removed",
        ),
        click.Option(
            ["group", "-g", "--group"],
            metavar="GROUP",
            help="commit what is published to this group, for tools that show lag",
        ),
        click.Option(
            ["--dry-run"], is_flag=True, help="print what would be read, and write nothing"
        ),
        click.Option(
            ["--take-over"],
            is_flag=True,
            help="continue a table that a query of Spark has written",
        ),
        STORAGE_OPTION,
        click.Option(
            ["memory_bytes", "--memory"],
            type=Size(),
            default=MEMORY_BYTES,
            help="bound of the memory (default 512M)",
        ),
        click.Option(
            ["--iceberg-table"],
            default="",
            metavar="CATALOG.NAMESPACE.TABLE",
            help="with --format iceberg; pyiceberg's settings say what the catalog is",
        ),
        click.Option(
            ["--metrics"],
            metavar="[HOST]:PORT",
            help="serve metrics to Prometheus, such as :9400; to this machine unless a host is "
            "given",
        ),
        output_option("json: the summary, or the plan, on standard output"),
    ],
    examples=(
        "kfast ingest orders --to /data/orders",
        "kfast ingest 'orders-*' --to s3://lake/orders --partition-by date --follow",
        "kfast ingest orders --to /data/orders --dry-run",
        "kfast ingest trades --to /data/trades --value avro --schema-registry http://sr:8081",
    ),
    subcommands={"compact": COMPACT},
)
