"""``kfast ingest compact``: small files of a table into large ones."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

import click

from kfast._base.program import pairs
from kfast.cli.options import Command, Common, Duration, Size, Words
from kfast.settings.files import Entry
from kfast.settings.secret import Secret
from kfast.settings.sources import is_reference, resolved
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
    help="of the filesystem of an object store, such as credentials, which may be env:NAME or "
    "@FILE; may be repeated",
)
_SECRET_NAMES: Final = re.compile(
    r"password|secret|token|credential|connection_string|(?:^|_)key$", re.IGNORECASE
)
"""Of options of file systems."""


def storage_options(common: Common, texts: Sequence[str]) -> dict[str, str]:
    """Return the storage options, with the values that ``env:`` and ``@`` refer to."""
    entries = [
        Entry.of(name, value, "--storage-option")
        for name, value in pairs(texts, "--storage-option").items()
    ]
    note_secrets(
        common,
        [
            entry.key
            for entry in entries
            if _SECRET_NAMES.search(entry.key) and not is_reference(entry.value)
        ],
        "--storage-option",
    )
    options = {}
    for entry in entries:
        value = resolved(entry, os.environ).value
        options[entry.key] = str(value.reveal() if isinstance(value, Secret) else value)
    return options


def note_secrets(common: Common, names: Sequence[str], option: str) -> None:
    """Say which secrets are on the command line, where every user of the machine can see them."""
    if names and not common.is_quiet and (common.verbosity or sys.stderr.isatty()):
        click.echo(
            f"note: every user of this machine can see {', '.join(names)} in the list of "
            f"processes; try: {option} {names[0]}=env:NAME, or =@FILE",
            err=True,
        )


def output_option(text: str) -> click.Option:
    """Return the option for what a command prints; `text` is its help."""
    return click.Option(["output", "-f"], type=Words(("text", "json")), default="text", help=text)


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
        storage_options=storage_options(common, storage_option),
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
