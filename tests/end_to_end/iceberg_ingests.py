"""Ingests into Iceberg tables, and what their rows have to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kfast.table.iceberg_catalog import load_iceberg
from tests.end_to_end.ingests import Row, Table, Truth
from tests.unit.table.iceberg_tables import NAME

pytest.importorskip("pyiceberg")


COLUMNS = ("topic", "partition", "offset", "key", "value")


def words_of(table: Table, *more: str) -> list[str]:
    return table.command("--format", "iceberg", "--iceberg-table", NAME, *more)


def rows(**scan: Any) -> list[Row]:
    """What a reader of the Iceberg table sees, sorted."""
    table = load_iceberg(NAME).scan(selected_fields=COLUMNS, **scan).to_arrow()
    return sorted(
        zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True),
        key=lambda row: row[:3],
    )


def expected(truth: Truth) -> list[Row]:
    return sorted(truth.rows, key=lambda row: row[:3])


def check(table: Table, truth: Truth) -> None:
    """Each record is there once, and the folder has the table's files only."""
    assert rows() == expected(truth)
    listed = {
        Path(row["file_path"].removeprefix("file://")).relative_to(table.folder).as_posix()
        for row in load_iceberg(NAME).inspect.files().to_pylist()
    }
    names = set(table.names())
    assert listed <= names
    assert not [path for path in table.staged() if path.is_file()]
