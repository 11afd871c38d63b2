"""The options of ``kfast ingest`` that belong to one of its engines: this machine, or Spark.

Owns the options of ``--spark``, and the check that no option is given which the chosen engine would
ignore.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click
from click.core import ParameterSource

from kfast.cli.options import Duration
from kfast.errors import ConfigurationError

SPARK_NAMES: Final = frozenset(
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
        for name in (_NOT_WITH_SPARK if is_spark else sorted(SPARK_NAMES))
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
