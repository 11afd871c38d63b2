"""``kfast read``: the records of topics as text, Parquet or Arrow.

The end is fixed before the first record is read, so that the command ends. A file is there as a
whole or not at all; text goes out in blocks of whole records, and a signal is acted on between
them. Text is written without NumPy and pyarrow, which take longer to import than a short read.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kfast._base.optional import check_package
from kfast.cli.formats import (
    ALL_KINDS,
    COLUMNS,
    DEFAULT_COLUMNS,
    FLAT_FORMATS,
    TABLE,
    TEXT_FORMATS,
    TextOptions,
    TypedColumn,
    check_columns,
    has_json_texts,
    text_format,
)
from kfast.cli.options import Command, Common, Count, Words
from kfast.cli.output import STANDARD_OUTPUT, Output, open_output
from kfast.cli.positions import Selection, parse_bounds, parse_offset
from kfast.cli.reading import FOLLOWED_ROWS, ReadRequest
from kfast.cli.registry import registry_if_needed, registry_option
from kfast.cli.run import Run
from kfast.cli.sinks import Sink, text_sink
from kfast.cli.slices import SliceConsumer
from kfast.cli.typed_values import (
    ErrorsFile,
    TypedOptions,
    check_errors_file,
    open_errors,
    taken_options,
    typed_deserializers,
    typed_options,
)
from kfast.columns.table_text import number_text, shown
from kfast.errors import ConfigurationError
from kfast.internals import Kind, is_glob

if TYPE_CHECKING:
    from kfast import SchemaRegistry

BINARY_FORMATS: Final = ("parquet", "arrow")
FORMATS: Final = (*TEXT_FORMATS, *BINARY_FORMATS)
COMPRESSIONS: Final = ("zstd", "lz4", "snappy", "none")
ON_ERROR: Final = ("fail", "null", "skip")
_ON_ERROR_WORDS: Final = (*ON_ERROR, "raise")
"""The last one is that of deserializers, for the first."""

_ENDINGS: Final = {
    **{f".{name}": name for name in FORMATS if name not in {"raw", "line", TABLE}},
    ".ndjson": "jsonl",
    ".feather": "arrow",
}
_COMPRESSED: Final = (".gz", ".zst")
"""Behind the ending of a text format."""
_ARROW_FILES: Final = (".arrow", ".feather")
"""What has the file format of Arrow; anything else is a stream."""
_TERMINAL_ROWS: Final = 10
_TABLE_ROWS: Final = 100
"""How many records a table has that is given no number."""
_PARTITIONS: Final = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*", re.ASCII)
_MAX_PARTITIONS: Final = 1 << 20
_FEW_ROWS: Final = 100
_FEW_BYTES: Final = 64 << 10
"""Of a partition in one Fetch response, where few rows are wanted; a batch comes whole."""
_RESETS: Final = {Kind.START: "earliest", Kind.END: "latest"}


@dataclass(slots=True, frozen=True)
class ReadOptions:
    """What to read and where to put it; see ``kfast read --help``."""

    topics: tuple[str, ...]
    configs: Mapping[str, object]
    selection: Selection | None = None
    """None where no range is given."""
    partitions: tuple[int, ...] | None = None
    limit: int | None = None
    tail: int | None = None
    follow: bool = False
    group: str | None = None
    no_commit: bool = False
    read_committed: bool = False
    lost: str = "fail"
    columns: tuple[str, ...] | None = None
    """None: those of the format."""
    key: str = "auto"
    value: str = "auto"
    typed: Mapping[str, TypedOptions] = field(default_factory=dict)
    """What is said of the schemas of ``key`` and ``value``."""
    registry: Callable[[], SchemaRegistry | None] = lambda: None
    """The schema registry that an option or a setting names."""
    is_registry_given: bool = False
    """Whether it is that of an option."""
    flatten: bool = False
    errors: str | None = None
    time: str = "iso"
    on_error: str = "fail"
    output: str | None = None
    format: str | None = None
    delimiter: bytes = b"\n"
    null_as: str = ""
    compression: str | None = None
    """Of files; None: zstd."""
    is_quiet: bool = False
    is_verbose: bool = False

    @property
    def follows(self) -> bool:
        """Whether the read goes on until it is stopped; a group's does unless it has a limit."""
        return self.follow or (self.group is not None and self.limit is None)

    @property
    def is_standard_output(self) -> bool:
        """Whether the data goes to standard output."""
        return self.output in {None, STANDARD_OUTPUT}


def read_to_output(options: ReadOptions) -> int:
    """Read topics as the options say; return the number of records."""
    chosen = _format(options)
    options = _checked(options, chosen)
    make_sink = _sink_maker(options, chosen)
    request = ReadRequest(
        topics=options.topics,
        selection=options.selection or Selection(),
        partitions=options.partitions,
        tail=options.tail,
        follows=options.follows,
        skips_lost=options.lost == "skip",
        has_group=options.group is not None,
    )
    with SliceConsumer(config=_configs(options)) as consumer:
        with open_output(options.output) as file, open_errors(options.errors) as errors:
            output = _compressed(file, options)
            run = Run(
                consumer,
                output,
                request,
                limit=options.limit,
                commits=not options.no_commit,
                # Files that are replaced are there when they are complete.
                commits_at_end=output.is_replaced or errors is not None,
                is_quiet=options.is_quiet,
                is_verbose=options.is_verbose,
            )
            run.find()
            # What it imports is imported while the first records are fetched.
            run.write(make_sink(output, errors))
            output.finish()
            is_interrupted = run.stops.received is not None and not options.follows
            if is_interrupted:
                if not (output.is_replaced or errors is not None):
                    run.commit()
                _note(options, f"interrupted after {number_text(run.counts.records)} records")
                run.stops.deliver()
        run.commit()
    _conclude(options, chosen, run)
    if run.stops.received is not signal.SIGINT:
        run.stops.deliver()
    return run.counts.records


def _compressed(output: Output, options: ReadOptions) -> Output:
    ending = Path(str(options.output).lower()).suffix
    if ending not in _COMPRESSED:
        return output
    from kfast.cli.output import CompressedOutput  # noqa: PLC0415 - for such files only

    return CompressedOutput(output, ending)


def _conclude(options: ReadOptions, chosen: str, run: Run) -> None:
    records = run.counts.records
    summary = run.progress.summary()
    if summary is not None:
        click.echo(summary, err=True)
    for tp, count in run.reading.skipped.items():
        _note(options, f"{tp}: {count:,} records are lost (retention)")
    if chosen == TABLE and records == options.limit and sys.stderr.isatty():
        _note(options, f"the first {records} records; -n N shows more, -f jsonl all")


def _note(options: ReadOptions, text: str) -> None:
    if not options.is_quiet:
        click.echo(shown(text), err=True)


# --- options --------------------------------------------------------------------------------------


def _format(options: ReadOptions) -> str:
    chosen = options.format
    if chosen is None:
        if options.is_standard_output:
            if not sys.stdout.isatty():
                return "jsonl"
            return "line" if options.follows else TABLE
        path = Path(str(options.output).lower())
        ending = Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix
        if ending not in _ENDINGS:
            raise ConfigurationError(
                f"--output {options.output}: unknown ending",
                hint=f"use {', '.join(_ENDINGS)}, or give --format",
            )
        chosen = _ENDINGS[ending]
    if chosen in BINARY_FORMATS and str(options.output).lower().endswith(_COMPRESSED):
        raise ConfigurationError(
            f"--output {options.output}: {chosen} is compressed inside",
            hint="another ending, and --compression",
        )
    if chosen == "arrow" and options.compression == "snappy":
        raise ConfigurationError("Arrow has no snappy", hint="--compression lz4, or zstd")
    if chosen in BINARY_FORMATS:
        check_package("pyarrow", f"--format {chosen}")
        if options.is_standard_output and sys.stdout.isatty():
            raise ConfigurationError(
                f"{chosen} is not shown on a terminal", hint="--output FILE, or a pipe"
            )
    return chosen


def _checked(options: ReadOptions, chosen: str) -> ReadOptions:
    """Return the options with what the format implies; options that exclude each other raise."""
    selection = options.selection or Selection()
    if chosen == TABLE:
        if options.follows:
            raise ConfigurationError("a table needs an end", hint="-f line, or -n N with a group")
        if options.limit is None and options.tail is None:
            rows = _TERMINAL_ROWS if sys.stdout.isatty() else _TABLE_ROWS
            options = replace(options, limit=rows)
    if options.columns is not None and ("%" in chosen or chosen == "line"):
        raise ConfigurationError(
            f"--columns has no effect on -f {chosen}", hint="-f jsonl, csv or tsv"
        )
    if options.compression is not None and chosen not in BINARY_FORMATS:
        raise ConfigurationError(
            f"--compression has no effect on {_name(chosen)}",
            hint="--output FILE.parquet, or FILE.jsonl.zst",
        )
    if options.null_as and "%" not in chosen:
        raise ConfigurationError(
            f"--null-as has no effect on {_name(chosen)}", hint="-f '%k %s\\n'"
        )
    if options.group is not None:
        is_reset = selection.partitions is None and selection.range.start.kind in _RESETS
        is_whole = selection.partitions is None and selection.range.end.kind is Kind.END
        if not (is_reset and is_whole) or options.partitions is not None or options.tail:
            raise ConfigurationError(
                "-g reads what the group has not read: no range, partitions or --tail",
                hint="-o start or -o end where the group has no offset yet",
            )
    elif options.no_commit:
        raise ConfigurationError("--no-commit without a group", hint="-g GROUP")
    ends = [selection.range, *(selection.partitions or {}).values()]
    if options.follow and any(bounds.end.kind is not Kind.END for bounds in ends):
        raise ConfigurationError("--follow has no end", hint="leave out --follow, or the end")
    return options


def _name(chosen: str) -> str:
    return "a template" if "%" in chosen else chosen


def _configs(options: ReadOptions) -> dict[str, object]:
    """Return the settings of the consumer: what is given, and what this command implies."""
    decided: dict[str, object] = {}
    implied: dict[str, object] = {"enable.auto.commit": False}
    most = options.limit or options.tail
    if most is not None and most <= _FEW_ROWS and not options.follows:
        implied |= {"max.partition.fetch.bytes": _FEW_BYTES, "decode.threads": 0}
    if options.group is None:
        implied["auto.offset.reset"] = "earliest" if options.lost == "skip" else "none"
    else:
        decided |= {"group.id": options.group, "enable.auto.commit": False}
        if options.selection is not None:
            decided["auto.offset.reset"] = _RESETS[options.selection.range.start.kind]
    if options.read_committed:
        decided["isolation.level"] = "read_committed"
    configs = {
        key: value for key, value in options.configs.items() if key.replace("_", ".") not in decided
    }
    explicit = {key.replace("_", ".") for key in configs}
    return {key: value for key, value in implied.items() if key not in explicit} | configs | decided


_MakeSink = Callable[[Output, ErrorsFile | None], Sink]


def _sink_maker(options: ReadOptions, chosen: str) -> _MakeSink:
    """Return a factory of the sink; options it cannot follow raise here, before connecting."""
    kinds = {"key": options.key, "value": options.value}
    typed = typed_deserializers(
        kinds, options.typed, options.registry, is_registry_given=options.is_registry_given
    )
    check_errors_file(options.errors, options.output)
    if chosen in BINARY_FORMATS:
        return _binary(options, chosen, typed)
    _check_typed(options, chosen, has_typed=bool(typed))
    return _text(options, chosen, typed)


def _binary(options: ReadOptions, chosen: str, typed: Mapping[str, Any]) -> _MakeSink:
    def make(output: Output, errors: ErrorsFile | None) -> Sink:
        from kfast.cli.binary import BinarySink  # noqa: PLC0415 - imports NumPy

        return BinarySink(
            chosen,
            output,
            options.columns or DEFAULT_COLUMNS,
            key=options.key,
            value=options.value,
            on_error=options.on_error,
            compression=options.compression or COMPRESSIONS[0],
            is_stream=options.is_standard_output
            or Path(str(options.output).lower()).suffix not in _ARROW_FILES,
            typed=typed,
            flatten=options.flatten,
            errors=errors,
            topic=_only_topic(options),
        )

    return make


def _only_topic(options: ReadOptions) -> str | None:
    """Return the topic that is read, None if there may be several."""
    names = options.topics
    return names[0] if len(names) == 1 and not is_glob(names[0]) else None


def _check_typed(options: ReadOptions, chosen: str, *, has_typed: bool) -> None:
    """Check that a text format has what is said of keys and values with a schema."""
    name = _name(chosen)
    if has_typed and chosen == "raw":
        raise ConfigurationError(
            "-f raw has the bytes of keys and values, whatever their schema",
            hint="-f jsonl, or leave the schema out",
        )
    if options.flatten and not has_typed:
        raise ConfigurationError(
            "--flatten: no key or value has a schema",
            hint="--value avro, protobuf, or json with --value-schema",
        )
    if options.flatten and chosen not in FLAT_FORMATS:
        raise ConfigurationError(
            f"--flatten has no effect on {name}", hint=f"-f {' or '.join(sorted(FLAT_FORMATS))}"
        )
    if options.errors is not None and not has_typed:
        raise ConfigurationError(
            f"--errors has no effect on {name}: no key or value has a schema",
            hint="--value avro, protobuf, or json with --value-schema; or --output FILE.parquet",
        )


def _text(options: ReadOptions, chosen: str, typed: Mapping[str, Any]) -> _MakeSink:
    text = TextOptions(
        columns=options.columns,
        key=options.key,
        value=options.value,
        time=options.time,
        delimiter=options.delimiter,
        null=options.null_as,
    )
    names = [name for name in ("key", "value") if name in typed]
    form = text_format(chosen, replace(text, typed={name: [TypedColumn(name)] for name in names}))
    written = {name: typed[name] for number, name in enumerate(names) if number in form.used}

    def make(output: Output, errors: ErrorsFile | None) -> Sink:
        texts = None
        if written:
            from kfast.cli.typed_text import TypedTexts  # noqa: PLC0415 - imports NumPy

            texts = TypedTexts(
                written,
                columns=options.columns or DEFAULT_COLUMNS,
                on_error=options.on_error,
                is_json=has_json_texts(chosen),
                is_flat=options.flatten,
                errors=errors,
                topic=_only_topic(options),
            )
        return text_sink(
            chosen, replace(text, is_terminal=output.isatty()), output, options.on_error, texts
        )

    return make


# --- the command ----------------------------------------------------------------------------------


def _read(
    common: Common,
    topics: tuple[str, ...],
    offset: str | None,
    start: str | None,
    end: str | None,
    partitions: str | None,
    columns: str | None,
    delimiter: str | None,
    nul: bool,
    tail: int | None,
    follow: bool,
    **rest: Any,
) -> None:
    typed = taken_options(rest)
    url = rest.pop("schema_registry")
    if rest["on_error"] == "raise":
        rest["on_error"] = "fail"
    if (nul or delimiter is not None) and rest["format"] != "raw":
        raise ConfigurationError("--delimiter and -0 are for raw values", hint="-f raw")
    now_ms = time.time_ns() // 1_000_000
    if follow and tail is None and rest["group"] is None and (offset, start) == (None, None):
        tail = FOLLOWED_ROWS
    if offset is not None and (start, end) != (None, None):
        raise ConfigurationError("-o with --start or --end", hint="-o START:END")
    selection = None
    if offset is not None:
        selection = parse_offset(offset, now_ms)
    elif (start, end) != (None, None):
        selection = parse_bounds(start, end, now_ms)
    with registry_if_needed(common, url) as registry:
        read_to_output(
            ReadOptions(
                topics=topics,
                configs=common.configs(is_member=rest["group"] is not None),
                selection=selection,
                partitions=None if partitions is None else parse_partitions(partitions),
                tail=tail,
                follow=follow,
                columns=None if columns is None else check_columns(columns.split(",")),
                delimiter=b"\0" if nul else os.fsencode("\n" if delimiter is None else delimiter),
                is_quiet=common.is_quiet,
                is_verbose=common.verbosity > 0,
                typed=typed,
                registry=registry,
                is_registry_given=url is not None,
                **rest,
            )
        )


class _Format(Words):
    """The name of a format, or a template."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return it."""
        return str(value) if "%" in value else super().convert(value, param, ctx)


def parse_partitions(text: str) -> tuple[int, ...]:
    """Return the partitions that ``0,3-5`` names."""
    partitions: set[int] = set()
    for numbers_text in text.split(",") if _PARTITIONS.fullmatch(text) else ("1-0",):
        first, _, last = numbers_text.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        if not numbers or len(numbers) > _MAX_PARTITIONS:
            raise ConfigurationError(f"-p {text}: not partitions", hint="-p 0,3-5")
        partitions.update(numbers)
    return tuple(sorted(partitions))


command = Command(
    "read",
    callback=click.pass_obj(_read),
    help="Write the records that topics have now: as JSON lines, or as the ending of --output "
    "says. A topic may be a glob such as 'orders-*'. FORMAT may be a template: "
    "'%t %p %o %k %s\\n'.",
    params=[
        click.Argument(["topics"], nargs=-1, required=True, metavar="TOPIC..."),
        click.Option(
            ["offset", "-o", "--offset"],
            metavar="RANGE",
            help="what to read: start, 12:15, -10, @-1h, @2026-01-31:12h, 0=12:13 (default: all)",
        ),
        click.Option(
            ["start", "--start", "--from"], metavar="POS", help="where to start (default start)"
        ),
        click.Option(
            ["end", "--end", "--to"], metavar="POS", help="where to end, exclusive (default end)"
        ),
        click.Option(["partitions", "-p", "--partitions"], metavar="0,3-5", help="which ones"),
        click.Option(
            ["limit", "-n", "--limit"], type=Count(), metavar="N", help="most records to read"
        ),
        click.Option(
            ["--tail"], type=Count(), metavar="N", help="the N newest records, by timestamp"
        ),
        click.Option(
            ["--follow"],
            is_flag=True,
            help="go on with new records until Ctrl-C; begins with the 10 newest, or at -o",
        ),
        click.Option(
            ["group", "-g", "--group"],
            metavar="GROUP",
            help="read as a member of a group, from its offsets; commits what has been written",
        ),
        click.Option(["--no-commit"], is_flag=True, help="commit nothing to the group"),
        click.Option(
            ["--read-committed"], is_flag=True, help="leave out open and aborted transactions"
        ),
        click.Option(
            ["--lost"],
            type=Words(("fail", "skip")),
            default="fail",
            help="offsets that retention has removed",
        ),
        click.Option(
            ["format", "-f", "--format"],
            type=_Format(FORMATS),
            metavar="FORMAT",
            help=f"{', '.join(FORMATS)}, or a text with a %; "
            "default: by the ending of --output; else table on a terminal, jsonl elsewhere",
        ),
        click.Option(
            ["--output"],
            metavar="FILE",
            help="file to replace as a whole; .gz or .zst behind its ending compress it",
        ),
        click.Option(
            ["columns", "-c", "--columns"],
            metavar="A,B,...",
            help=f"some of {', '.join(COLUMNS)}",
        ),
        *(
            click.Option(
                [f"--{name}"],
                type=Words(ALL_KINDS),
                default="auto",
                help=f"what {name}s are (default auto: text where it is UTF-8)",
            )
            for name in ("key", "value")
        ),
        *typed_options(),
        registry_option(),
        click.Option(
            ["--flatten"],
            is_flag=True,
            help="fields of keys and values with a schema as columns of their own",
        ),
        click.Option(
            ["--errors"],
            metavar="FILE",
            help=".jsonl or .parquet file to replace: keys and values that could not be read",
        ),
        click.Option(
            ["--time"], type=Words(("iso", "ms")), default="iso", help="timestamps in text"
        ),
        click.Option(
            ["--on-error"],
            type=Words(_ON_ERROR_WORDS),
            default="fail",
            help="a key or value that is not what it should be",
        ),
        click.Option(["--delimiter"], metavar="TEXT", help="behind each value of raw"),
        click.Option(["--null-as"], default="", metavar="TEXT", help="for a null in a template"),
        click.Option(["nul", "-0"], is_flag=True, help="NUL behind each value of raw"),
        click.Option(
            ["--compression"],
            type=Words(COMPRESSIONS),
            help="of parquet (default zstd) and arrow, which has no snappy",
        ),
    ],
    examples=(
        "kfast read orders -n 5",
        "kfast read orders -o @-1h --output orders.parquet",
        "kfast read orders --follow -f '%p:%o %k %s\\n'",
    ),
)
