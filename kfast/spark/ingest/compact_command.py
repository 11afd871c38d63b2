"""``python -m kfast.spark.ingest compact``: small files of a table into large ones, without Spark.

Owns its arguments. The work is that of ``kfast ingest compact``.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import Final

from kfast._base.program import pairs, run_program
from kfast.errors import ConfigurationError
from kfast.spark.ingest import given_options
from kfast.spark.source.option_kinds import duration_ms
from kfast.table.compaction.compacting import (
    RETENTION_MS,
    TARGET_BYTES,
    compact_table,
    summary_text,
)
from kfast.table.file_formats import COMPRESSIONS

_SIZE: Final = re.compile(r"(\d+)([kmg]?)b?", re.IGNORECASE | re.ASCII)


def compact(argv: Sequence[str]) -> int:
    """Compact a table, with the arguments behind ``compact``; return the exit status."""
    arguments = _parser().parse_args(argv)
    return run_program(lambda: _compact(arguments))


def _compact(arguments: argparse.Namespace) -> None:
    options, notes = given_options.storage_options(
        pairs(arguments.storage_option, "--storage-option"), os.environ
    )
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    summary = compact_table(
        arguments.output,
        target_file_bytes=_bytes(arguments.target_file_bytes),
        retention_ms=None if arguments.retention is None else _ms(arguments.retention),
        compression=arguments.compression,
        storage_options=options,
    )
    print(summary_text(summary, arguments.output))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kfast.spark.ingest compact",
        description="Make large files of the small ones of a table, while it is written and read. "
        "What lists folders sees the new files after the retention time, at the next compaction.",
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="folder or URL of the table")
    parser.add_argument(
        "--target-file-bytes",
        default=f"{TARGET_BYTES >> 20}M",
        metavar="SIZE",
        help="smaller files are put together up to this size (default 256M)",
    )
    parser.add_argument(
        "--retention",
        metavar="TIME",
        help="how long replaced files stay for readers that have begun (default "
        f"{RETENTION_MS // 3_600_000}h)",
    )
    parser.add_argument("--compression", choices=COMPRESSIONS, default="zstd")
    parser.add_argument(
        "--storage-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of the folder's filesystem, such as credentials, which may be env:NAME or "
        "@FILE; may be repeated",
    )
    return parser


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            f"--target-file-bytes {text}: not a size", hint="a size is such as 8M or 1G"
        )
    return int(found[1]) << 10 * (" kmg".find(found[2].lower()) if found[2] else 0)


def _ms(text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise ConfigurationError(f"--retention {text}: not understood", hint=str(error)) from None
