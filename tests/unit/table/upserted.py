"""Batches of changes for tests of upserts, a model of the table, and a process that merges them.

As a program it applies batch after batch to a table, each with its number in the commit, until it
is killed: ``python -m tests.unit.table.upserted FOLDER BATCHES``.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import deltalake
import pyarrow as pa

from kfast.table.upserts import DELETED, last_changes, merge_batch
from tests.delta_reading import delta_rows

KEYS: Final = ("id", "part of key")
SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("part of key", pa.string()),
        ("Amount", pa.decimal128(12, 2)),
        ("note", pa.string()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
    ]
)
APPLICATION: Final = "upserts"

Key = tuple[int, str]
Change = tuple[int, str, str | None]
"""Key, and the note of its row; None for a deletion."""
Row = tuple[str, list[str]]


def changes_of(batch: Sequence[Change]) -> pa.Table:
    """Return changes as a table."""
    columns: list[pa.Array] = [
        pa.array([number for number, _, _ in batch], pa.int64()),
        pa.array([text for _, text, _ in batch], pa.string()),
        pa.array(
            [None if note is None else Decimal(number) for number, _, note in batch],
            SCHEMA.field("Amount").type,
        ),
        pa.array([note for _, _, note in batch], pa.string()),
        pa.array(
            [None if note is None else [note] for _, _, note in batch], SCHEMA.field("tags").type
        ),
        pa.array([note is None for _, _, note in batch], pa.bool_()),
    ]
    return pa.table(columns, schema=SCHEMA.append(pa.field(DELETED, pa.bool_())))


def properties(number: int, application: str = APPLICATION) -> deltalake.CommitProperties:
    """Return the properties of the commit of a batch."""
    transaction = deltalake.Transaction(application, number)
    return deltalake.CommitProperties(
        custom_metadata={"batch": str(number)},
        app_transactions=[transaction],
        max_commit_retries=0,
    )


def apply(folder: str, number: int, batch: Sequence[Change], *, is_truncated: bool = False) -> None:
    """Merge the last changes of a batch into the table."""
    table = deltalake.DeltaTable(folder)
    rows = last_changes(changes_of(batch), KEYS)
    merge_batch(table, rows, KEYS, properties(number), is_truncated=is_truncated)


def applied(folder: str) -> int:
    """Return the number of the last batch that the table has, 0 for none."""
    return deltalake.DeltaTable(folder).transaction_version(APPLICATION) or 0


def rows_of(folder: str) -> dict[Key, str | None]:
    """Return the rows that a reader sees; each key is there once."""
    rows = delta_rows(folder)
    notes = {(row["id"], row["part of key"]): row["note"] for row in rows}
    assert len(notes) == len(rows)
    assert all(row["tags"] == [row["note"]] for row in rows)
    assert all(row["Amount"] == row["id"] for row in rows)
    return notes


def generated(seed: int, batches: int, most: int = 60) -> list[list[Change]]:
    """Return batches of changes of few keys; some are empty."""
    chance = random.Random(seed)
    return [
        [
            (
                chance.randrange(40),
                chance.choice(("a", "B'", "")),
                None if chance.random() < 0.3 else f"{number}-{chance.randrange(100)}",
            )
            for _ in range(chance.randrange(most))
        ]
        for number in range(batches)
    ]


def model(batches: Sequence[Sequence[Change]]) -> dict[Key, str | None]:
    """Return the rows after some batches."""
    rows: dict[Key, str | None] = {}
    for batch in batches:
        for number, text, note in batch:
            if note is None:
                rows.pop((number, text), None)
            else:
                rows[number, text] = note
    return rows


def _main(folder: str, count: int, seed: int) -> None:
    batches = generated(seed, count)
    for number in range(applied(folder), count):
        apply(folder, number + 1, batches[number])
        sys.stdout.write(f"{number + 1}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
