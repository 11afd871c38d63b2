"""``kfast ingest``: topics into files of a table, each record exactly once.

Ctrl-C and SIGTERM end it after what is complete is published: with ``--follow`` that is the way to
end it, else the status says that it was interrupted. A second signal ends it at once; what was not
published is read again by the next run.

It runs on this machine, or with ``--spark`` on Spark (``ingest_spark``). An option which the chosen
engine would ignore is refused.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from kfast import KafkaConsumer, TopicPartition
from kfast.cli.ingest_compact import COMPACT, STORAGE_OPTION, output_option, storage_options
from kfast.cli.ingest_report import (
    BatchLines,
    ended_by_signals,
    ingest_watchers,
    print_plan,
    report_end,
)
from kfast.cli.options import Command, Common, Duration, Size, Words
from kfast.cli.positions import Selection, parse_bounds, parse_offset
from kfast.cli.ranges import resolve
from kfast.cli.registry import registry_if_needed, registry_option
from kfast.cli.typed_values import (
    TypedOptions,
    read_schema,
    taken_options,
    typed_deserializers,
    typed_options,
)
from kfast.errors import ConfigurationError
from kfast.internals import END, START, internals_of
from kfast.schemas.formats import TYPED_FORMATS
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
from kfast.table.ingest.planning import Bounds, FindBounds
from kfast.table.option_spelling import OptionSpelling

if TYPE_CHECKING:
    from kfast.deserializers.debezium import Debezium
    from kfast.deserializers.typed import TypedDeserializer

# --- engines: this machine, or Spark --------------------------------------------------------------

_SPARK_NAMES: Final = frozenset(
    {"checkpoint", "schema", "option", "orphan_age_ms", "master", "remote", "conf"}
)
"""Parameters that only Spark has."""
_NOT_WITH_SPARK: Final[Mapping[str, str]] = {
    "offset": "--option startingOffsets=JSON says where partitions begin",
    "start": "--option startingOffsets=JSON says where partitions begin",
    "end": "a run without --follow ends at the ends as of now",
    "rows_per_file": "--option maxRecordsPerPartition=N is the most offsets of a file",
    "bytes_per_file": "--option maxRecordsPerPartition=N is the most offsets of a file",
    "memory_bytes": "the memory of workers is that of Spark's settings",
    "dry_run": "leave it out",
    "upsert": "leave it out",
    "debezium": "leave it out",
    "decimals": "leave it out",
}
"""Parameters that Spark has not, and what to do."""


def spark_options() -> list[click.Parameter]:
    """Make the options of an ingest by Spark."""
    return [
        click.Option(
            ["--spark"], is_flag=True, help="read and write with Spark; the options below are its"
        ),
        click.Option(
            ["--checkpoint"], metavar="DIR", help="folder or URL of Spark's checkpoint, required"
        ),
        click.Option(
            ["--schema"],
            metavar="DDL",
            help='columns with their types, in place of -c: "offset long, value struct<id: int, '
            'price: double>"',
        ),
        click.Option(
            ["--option"],
            multiple=True,
            metavar="KEY=VALUE",
            help='an option of format("kfast") that has no other name here, such as '
            "maxOffsetsPerTrigger=10000000 or subscribePattern=...; may be repeated",
        ),
        click.Option(
            ["orphan_age_ms", "--orphan-age"],
            type=Duration(),
            metavar="TIME",
            help="remove files of failed tasks older than this before starting (default 24h)",
        ),
        click.Option(["--master"], help="Spark's master, such as local[4]"),
        click.Option(
            ["--remote"], metavar="URL", help="a Spark Connect server, in place of --master"
        ),
        click.Option(
            ["--conf"], multiple=True, metavar="KEY=VALUE", help="Spark setting; may be repeated"
        ),
    ]


def check_engine(ctx: click.Context, *, is_spark: bool) -> None:
    """Refuse options that the engine does not have, and the lack of those that it needs."""
    params = {str(param.name): param for param in ctx.command.params}
    names = [
        name
        for name in (_NOT_WITH_SPARK if is_spark else sorted(_SPARK_NAMES))
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if names:
        option = params[names[0]].opts[-1]
        if is_spark:
            raise ConfigurationError(
                f"{option} is not an option of --spark", hint=_NOT_WITH_SPARK[names[0]]
            )
        raise ConfigurationError(f"{option} is an option of --spark", hint="add --spark")
    needed = "topics"
    if is_spark:
        needed = "checkpoint" if ctx.params["option"] or ctx.params["topics"] else "topics"
    if not ctx.params[needed]:
        raise click.MissingParameter(ctx=ctx, param=params[needed])


# --- change events of Debezium --------------------------------------------------------------------

_EVENTS: Final = ("envelope", "payload", "rows")
_DECIMALS: Final = ("precise", "string", "double")
_JSON: Final = "json"


def debezium_options() -> list[click.Parameter]:
    """Make the options."""
    return [
        click.Option(
            ["--upsert"],
            default="",
            metavar="KEY,...",
            help="with --format delta: rows are inserted, updated and deleted by these columns",
        ),
        click.Option(
            ["--debezium"],
            type=Words(_EVENTS),
            help="values are events of Debezium: envelopes, of json also those in payload, or rows "
            "that ExtractNewRecordState has flattened; --value-schema of json is that of the rows",
        ),
        click.Option(
            ["decimals", "--debezium-decimals"],
            type=Words(_DECIMALS),
            help="decimal.handling.mode of the connector, for json",
        ),
    ]


def without_json(
    events: str | None, typed: Mapping[str, TypedOptions], kind: str
) -> Mapping[str, TypedOptions]:
    """Return the options of a deserializer, without those that are of events of JSON."""
    if events is None or kind != _JSON:
        return typed
    return {**typed, "value": TypedOptions()}


def debezium_of(
    events: str,
    decimals: str | None,
    kind: str,
    typed: TypedOptions,
    deserializer: TypedDeserializer | None,
) -> Debezium:
    """Return the deserializer of events; ``deserializer`` is that of values of Avro and Protobuf.

    Raises
    ------
    ConfigurationError
        A schema cannot be, or is missing.
    """
    from kfast.deserializers.debezium import Debezium  # noqa: PLC0415 - with NumPy

    if kind not in TYPED_FORMATS:
        raise ConfigurationError(
            f"--debezium: values of kind {kind} have no columns",
            hint=f"--value {' or '.join(TYPED_FORMATS)}",
        )
    options: dict[str, Any] = {"envelope": events != "rows", "decimals": decimals}
    if events == "payload":
        options["payload"] = True
    if kind != _JSON:
        return Debezium(deserializer, **options)
    if typed.schema is None:
        raise ConfigurationError(
            "--debezium: events of JSON need the columns of their rows",
            hint="--value-schema TEXT, or @FILE.json with the schema of a message",
        )
    for name in replace(typed, schema=None, framing=None).names():
        raise ConfigurationError(f"--value-{name} is not for json", hint="leave it out")
    if typed.framing is not None:
        options["framing"] = typed.framing
    return Debezium(read_schema("value", kind, typed.schema), **options)


# --- the command ----------------------------------------------------------------------------------


@click.pass_context
def _run(ctx: click.Context, /, spark: bool, **values: Any) -> None:
    common = ctx.find_object(Common) or Common()
    common.has_json_errors = values["output"] == "json"
    check_engine(ctx, is_spark=spark)
    if values["once"] and values["follow"]:
        raise ConfigurationError("--once with --follow", hint="give one of them")
    if values["every_ms"] is not None and not values["follow"]:
        raise ConfigurationError("--every is for --follow", hint="add --follow, or leave it out")
    if spark:
        from kfast.cli.ingest_spark import ingest_with_spark  # noqa: PLC0415 - with --spark only

        ingest_with_spark(common, values)
        return
    _ingest(common, **{name: values[name] for name in values.keys() - _SPARK_NAMES - {"once"}})


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
    every_ms: int | None,
    schema_registry: str | None,
    upsert: str,
    debezium: str | None,
    decimals: str | None,
    **rest: Any,
) -> None:
    typed = taken_options(rest)
    is_json, is_follow = output == "json", rest["follow"]
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
            storage_options=storage_options(common, storage_option),
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
            published=BatchLines(common).published,
            watchers=ingest_watchers(common, has_summary=not is_json),
        )
        if dry_run:
            print_plan(ingest.plan(), output)
            return
        with common.logged_warnings("kfast.table"), ended_by_signals(ingest.stop) as signals:
            summary = ingest.run()
    report_end(common, summary, signals, is_json=is_json, is_follow=is_follow)


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
    if is_follow and any(offsets.end != END for offsets in ranges):
        raise ConfigurationError("--follow has no end", hint="leave out --follow, or the end")
    return _resolver(selection, skips_lost=skips_lost)


def _resolver(selection: Selection, *, skips_lost: bool) -> FindBounds:
    def bounds_of(tp: TopicPartition, first: int, last: int) -> Bounds:
        offsets = (selection.partitions or {}).get(tp.partition, selection.range)
        has_end = offsets.end != END
        begins = None if has_end and offsets.start == START else first
        return begins, last if has_end else None

    def bounds(consumer: KafkaConsumer, topics: Collection[str]) -> Mapping[TopicPartition, Bounds]:
        ranges, lost = resolve(
            internals_of(consumer),
            lambda: dict.fromkeys(sorted(topics)),
            selection,
            None,
            skips_lost=skips_lost,
        )
        return {
            tp: bounds_of(tp, first - lost.get(tp, 0), last) for tp, (first, last) in ranges.items()
        }

    return bounds


# --- the command ----------------------------------------------------------------------------------

command = Command(
    "ingest",
    callback=_run,
    help="Write topics to a table of files, each record exactly once. Run it again and it goes on "
    "where the table ends, also after a crash. kfast ingest compact makes its files large. With "
    "--spark the workers of Spark read and write.",
    params=[
        click.Argument(["topics"], nargs=-1, metavar="TOPIC..."),
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
            help="continue a table that a query of Spark has written; with --spark one of another "
            "checkpoint, or of kfast ingest",
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
        *spark_options(),
    ],
    examples=(
        "kfast ingest orders --to /data/orders",
        "kfast ingest 'orders-*' --to s3://lake/orders --partition-by date --follow",
        "kfast ingest orders --to /data/orders --dry-run",
        "kfast ingest trades --to /data/trades --value avro --schema-registry http://sr:8081",
        "kfast ingest orders --to /data/orders --spark --checkpoint /data/orders-checkpoint",
    ),
    subcommands={"compact": COMPACT},
)
