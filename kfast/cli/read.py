"""``kfast read``: the records of topics as text, Parquet or Arrow.

The end is fixed before the first record is read, so that the command ends. A file is there as a
whole or not at all; text goes out in blocks of whole records, and a signal is acted on between
them.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import click

import kfast
from kfast._optional import optional_package
from kfast.application.record_converter import RecordConverter
from kfast.cli.formats import (
    COLUMNS,
    DEFAULT_COLUMNS,
    KINDS,
    TEXT_FORMATS,
    TextOptions,
    check_columns,
    deserializer,
)
from kfast.cli.options import Command, Common, Count, Words
from kfast.cli.output import STANDARD_OUTPUT, Output, open_output
from kfast.cli.positions import Selection, parse_bounds, parse_offset
from kfast.cli.ranges import matching_topics, resolve
from kfast.errors import ConfigurationError, DeserializationError

BINARY_FORMATS: Final = ("parquet", "arrow")
FORMATS: Final = (*TEXT_FORMATS, *BINARY_FORMATS)
COMPRESSIONS: Final = ("zstd", "lz4", "snappy", "none")

_ENDINGS: Final = {
    **{f".{name}": name for name in FORMATS if name not in {"raw", "table"}},
    ".ndjson": "jsonl",
}
_ON_ERROR: Final = {"fail": "raise", "null": "null", "skip": "skip"}
_BLOCK_ROWS: Final = 16_384
"""Most records of a block of text: a signal is acted on between blocks."""
_TERMINAL_ROWS: Final = 10
_TABLE_ROWS: Final = 100
"""How many records a table has that is given no number."""
_GROUP_ROWS: Final = 1 << 20
_GROUP_BYTES: Final = 64 << 20
_PARTITIONS: Final = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*", re.ASCII)
_MAX_PARTITIONS: Final = 1 << 20


@dataclass(slots=True, frozen=True)
class ReadOptions:
    """What to read and where to put it; see ``kfast read --help``."""

    topics: tuple[str, ...]
    configs: Mapping[str, object]
    selection: Selection = field(default_factory=Selection)
    partitions: tuple[int, ...] | None = None
    limit: int | None = None
    lost: str = "fail"
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    key: str = "auto"
    value: str = "auto"
    time: str = "iso"
    on_error: str = "fail"
    output: str | None = None
    format: str | None = None
    delimiter: bytes = b"\n"
    compression: str = "zstd"
    is_quiet: bool = False


@dataclass(slots=True)
class _Reading:
    """A read under way."""

    options: ReadOptions
    format: str
    records: int = 0
    skipped: dict[kfast.TopicPartition, int] = field(default_factory=dict)

    def batches(self, *, progress: bool) -> Iterator[kfast.PartitionRecords]:
        options = self.options
        with kfast.KafkaConsumer(config=options.configs) as consumer:
            topics = matching_topics(consumer, options.topics)
            ranges, self.skipped = resolve(
                consumer,
                topics,
                options.selection,
                options.partitions,
                skips_lost=options.lost == "skip",
            )
        left = options.limit
        for batch in kfast.scan_topic(
            [*ranges],
            start={tp: start for tp, (start, _) in ranges.items()},
            end={tp: end for tp, (_, end) in ranges.items()},
            columns=self.read_columns,
            progress=progress,
            **self.configs,
        ):
            for each in _blocks(batch, _GROUP_ROWS if self.is_binary else _BLOCK_ROWS):
                some = each if left is None or len(each) <= left else each.select(slice(0, left))
                yield some
                self.records += len(some)
                if left is not None:
                    left -= len(some)
                    if not left:
                        return

    @property
    def configs(self) -> dict[str, Any]:
        """Settings of the read, with the deserializers of its format."""
        options = self.options
        return {
            "config": options.configs,
            "key_deserializer": deserializer(options.key, self.format),
            "value_deserializer": deserializer(options.value, self.format),
            "on_deserialization_error": _ON_ERROR[options.on_error],
        }

    @property
    def read_columns(self) -> list[str] | None:
        """What the consumer reads; None for all."""
        columns: list[str] = [
            name for name in ("key", "value", "headers") if name in self.options.columns
        ]
        return None if len(columns) == 3 else columns

    def no_records(self) -> kfast.PartitionRecords:
        """Return a batch without records, whose columns have the types of those with."""
        converter = RecordConverter(kfast.ConsumerConfig(**self.configs))
        converter.select(self.read_columns)
        return converter.template

    @property
    def is_binary(self) -> bool:
        return self.format in BINARY_FORMATS


def read_to_output(options: ReadOptions) -> int:
    """Read topics as the options say; return the number of records."""
    chosen = _format(options)
    if chosen == "table" and options.limit is None:
        options = replace(options, limit=_TERMINAL_ROWS if sys.stdout.isatty() else _TABLE_ROWS)
    reading = _Reading(options, chosen)
    try:
        with open_output(options.output) as output:
            is_shown = options.output is not None and not options.is_quiet and sys.stderr.isatty()
            write = _write_binary if reading.is_binary else _write_text
            write(reading, output, is_shown)
    except DeserializationError as error:
        error.hint = "--on-error null, or --on-error skip"
        raise
    except KeyboardInterrupt:
        if not options.is_quiet:
            click.echo(f"interrupted after {reading.records:,} records", err=True)
        raise
    for tp, count in reading.skipped.items():
        if not options.is_quiet:
            click.echo(f"{tp}: {count:,} records are lost (retention)", err=True)
    if chosen == "table" and reading.records == options.limit and not options.is_quiet:
        click.echo(f"the first {reading.records} records; -n N shows more, -f jsonl all", err=True)
    return reading.records


def _blocks(batch: kfast.PartitionRecords, most: int) -> Iterator[kfast.PartitionRecords]:
    for start in range(0, len(batch), most):
        whole = start == 0 and len(batch) <= most
        yield batch if whole else batch.select(slice(start, start + most))


def _format(options: ReadOptions) -> str:
    chosen = options.format
    if chosen is None:
        if options.output in {None, STANDARD_OUTPUT}:
            return "table" if sys.stdout.isatty() else "jsonl"
        ending = Path(options.output).suffix.lower()
        if ending not in _ENDINGS:
            raise ConfigurationError(
                f"--output {options.output}: unknown ending",
                hint=f"use {', '.join(_ENDINGS)}, or give --format",
            )
        chosen = _ENDINGS[ending]
    if chosen in BINARY_FORMATS:
        optional_package("pyarrow", f"--format {chosen}")
        if options.output in {None, STANDARD_OUTPUT} and sys.stdout.isatty():
            raise ConfigurationError(
                f"{chosen} is not shown on a terminal", hint="--output FILE, or a pipe"
            )
    return chosen


# --- text -----------------------------------------------------------------------------------------


def _write_text(reading: _Reading, output: Output, is_shown: bool) -> None:
    options = reading.options
    text = TEXT_FORMATS[reading.format](
        TextOptions(
            columns=options.columns,
            key=options.key,
            value=options.value,
            time=options.time,
            delimiter=options.delimiter,
            is_terminal=output.isatty(),
        )
    )
    output.write(text.begin())
    try:
        for batch in reading.batches(progress=is_shown):
            output.write(text.batch(batch))
    except BrokenPipeError:
        raise
    except BaseException:
        output.write(text.end())
        raise
    output.write(text.end())


# --- Parquet and Arrow ----------------------------------------------------------------------------


def _write_binary(reading: _Reading, output: Output, is_shown: bool) -> None:
    """Write row groups of ``_GROUP_ROWS`` or ``_GROUP_BYTES``; without records, the schema."""
    pa = optional_package("pyarrow", f"--format {reading.format}")
    options = reading.options
    codec = None if options.compression == "none" else options.compression
    group: list[Any] = []
    with contextlib.ExitStack() as stack:
        writer: Any = None

        def open_writer(schema: Any) -> Any:
            if reading.format == "parquet":
                from pyarrow import parquet  # noqa: PLC0415 - optional

                made = parquet.ParquetWriter(output, schema, compression=codec or "none")
            else:
                how = pa.ipc.IpcWriteOptions(compression=codec if codec != "snappy" else "lz4")
                file = options.output not in {None, STANDARD_OUTPUT}
                new = pa.ipc.new_file if file else pa.ipc.new_stream
                made = new(output, schema, options=how)
            return stack.enter_context(made)

        def write_group() -> None:
            table = pa.Table.from_batches(group)
            group.clear()
            writer.write_table(table)

        for batch in reading.batches(progress=is_shown):
            group.append(_arrow(pa, batch, options.columns))
            if writer is None:
                writer = open_writer(group[0].schema)
            rows, nbytes = sum(each.num_rows for each in group), sum(b.nbytes for b in group)
            if rows >= _GROUP_ROWS or nbytes >= _GROUP_BYTES:
                write_group()
        if group:
            write_group()
        if writer is None:
            open_writer(_arrow(pa, reading.no_records(), options.columns).schema)


def _arrow(pa: Any, batch: kfast.PartitionRecords, columns: tuple[str, ...]) -> Any:
    """Return the wanted columns; a filtered export has only keys, values and headers."""
    exported, rows = batch.to_arrow(), len(batch)
    made = {
        "topic": lambda: pa.repeat(batch.topic, rows).dictionary_encode(),
        "partition": lambda: pa.repeat(pa.scalar(batch.partition, pa.int32()), rows),
        "offset": lambda: pa.array(batch.offsets),
        "timestamp": lambda: pa.array(batch.datetimes).cast(pa.timestamp("ms", tz="UTC")),
        "timestamp_type": lambda: pa.array(batch.timestamp_types),
    }
    arrays = [made[name]() if name in made else exported.column(name) for name in columns]
    return pa.record_batch(arrays, names=list(columns))


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
    **rest: Any,
) -> None:
    now_ms = time.time_ns() // 1_000_000
    if offset is not None and (start, end) != (None, None):
        raise ConfigurationError("-o with --start or --end", hint="-o START:END")
    read_to_output(
        ReadOptions(
            topics=topics,
            configs=common.configs(),
            selection=(
                parse_bounds(start, end, now_ms) if offset is None else parse_offset(offset, now_ms)
            ),
            partitions=None if partitions is None else parse_partitions(partitions),
            columns=DEFAULT_COLUMNS if columns is None else check_columns(columns.split(",")),
            delimiter=b"\0" if nul else (delimiter or "\n").encode(),
            is_quiet=common.is_quiet,
            **rest,
        )
    )


def parse_partitions(text: str) -> tuple[int, ...]:
    """Return the partitions that ``0,3-5`` names."""
    found: set[int] = set()
    for part in text.split(",") if _PARTITIONS.fullmatch(text) else ("1-0",):
        first, _, last = part.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        if not numbers or len(numbers) > _MAX_PARTITIONS:
            raise ConfigurationError(f"-p {text}: not partitions", hint="-p 0,3-5")
        found.update(numbers)
    return tuple(sorted(found))


command = Command(
    "read",
    callback=click.pass_obj(_read),
    help="Write the records that topics have now: as JSON lines, or as the ending of --output "
    "says. A topic may be a glob such as 'orders-*'.",
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
            ["--lost"],
            type=Words(("fail", "skip")),
            default="fail",
            help="offsets that retention has removed",
        ),
        click.Option(
            ["format", "-f", "--format"],
            type=Words(FORMATS),
            help="default: by the ending of --output; else table on a terminal, jsonl elsewhere",
        ),
        click.Option(
            ["--output"], metavar="FILE", help="file to replace as a whole; - is standard output"
        ),
        click.Option(
            ["columns", "-c", "--columns"],
            metavar="A,B,...",
            help=f"some of {', '.join(COLUMNS)}",
        ),
        *(
            click.Option(
                [f"--{name}"],
                type=Words(tuple(KINDS)),
                default="auto",
                help=f"what {name}s are (default auto: text where it is UTF-8)",
            )
            for name in ("key", "value")
        ),
        click.Option(
            ["--time"], type=Words(("iso", "ms")), default="iso", help="timestamps in text"
        ),
        click.Option(
            ["--on-error"],
            type=Words(tuple(_ON_ERROR)),
            default="fail",
            help="a key or value that is not what it should be",
        ),
        click.Option(["--delimiter"], metavar="TEXT", help="behind each value of raw"),
        click.Option(["nul", "-0"], is_flag=True, help="NUL behind each value of raw"),
        click.Option(
            ["--compression"],
            type=Words(COMPRESSIONS),
            default="zstd",
            help="of parquet and arrow",
        ),
    ],
    examples=(
        "kfast read orders -n 5",
        "kfast read orders -o @-1h --output orders.parquet",
        "kfast read orders -p 0 -o 12:13 -f raw",
    ),
)
