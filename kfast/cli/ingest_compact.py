"""``kfast ingest compact``: small files of a table into large ones."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

import click

from kfast._base.program import pairs
from kfast.cli.options import Command, Common, Duration, Size, Words
from kfast.table.compaction.compacting import (
    RETENTION_MS,
    TARGET_BYTES,
    compact_table,
    summary_text,
)
from kfast.table.file_formats import COMPRESSIONS

STORAGE_OPTION: Final = click.Option(
    ["storage_option", "--storage-option"],
    multiple=True,
    metavar="KEY=VALUE",
    help="of the filesystem of an object store; may be repeated",
)


def output_option(what: str) -> click.Option:
    """Return the option for what a command prints; `what` is its help."""
    return click.Option(["output", "-f"], type=Words(("text", "json")), default="text", help=what)


def _compact(
    common: Common,
    to: str,
    target_file_bytes: int,
    retention_ms: int | None,
    compression: str,
    storage_option: tuple[str, ...],
    output: str,
) -> None:
    common.has_json_errors = output == "json"
    summary = compact_table(
        to,
        target_file_bytes=target_file_bytes,
        retention_ms=retention_ms,
        compression=compression,
        storage_options=pairs(storage_option, "--storage-option"),
    )
    if output == "json":
        click.echo(json.dumps(asdict(summary)))
    elif not common.is_quiet:
        click.echo(summary_text(summary, to), err=True)


COMPACT = Command(
    "compact",
    callback=click.pass_obj(_compact),
    help="Make large files of the small ones of a table of plain files, while it is written and "
    "read. What lists folders sees the new files after the retention time, at the next compaction.",
    params=[
        click.Option(
            ["--to"], required=True, metavar="DIR", help="folder of the table, or its URL"
        ),
        click.Option(
            ["--target-file-bytes"],
            type=Size(),
            default=TARGET_BYTES,
            help="smaller files are put together up to this size (default 256M)",
        ),
        click.Option(
            ["retention_ms", "--retention"],
            type=Duration(),
            metavar="TIME",
            help="how long replaced files stay for readers that have begun (default "
            f"{RETENTION_MS // 3_600_000}h)",
        ),
        click.Option(
            ["--compression"], type=Words(COMPRESSIONS), default="zstd", help="default zstd"
        ),
        STORAGE_OPTION,
        output_option("json: the summary on standard output"),
    ],
    examples=(
        "kfast ingest compact --to /data/orders",
        "kfast ingest compact --to /data/orders --target-file-bytes 1G --retention 0s",
    ),
)
