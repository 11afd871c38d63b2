"""Z-05, Z-06, Z-07: batches of changes merged into a Delta table by key."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError

from kfast.errors import ConfigurationError
from kfast.table.upserts import last_changes, merge_batch
from tests.delta_reading import delta_rows, delta_table
from tests.soaking import soaking
from tests.unit.table.upserted import (
    KEYS,
    SCHEMA,
    applied,
    apply,
    changes_of,
    generated,
    model,
    properties,
    rows_of,
)

pytestmark = pytest.mark.slow  # hundreds of small tables on disk


@pytest.fixture
def folder(tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    deltalake.DeltaTable.create(path, schema=SCHEMA)
    return path


def test_the_last_change_of_a_key_counts() -> None:
    """Z-05: in the order of the records; other keys keep their places."""
    batch = [(1, "a", "old"), (2, "a", "x"), (1, "b", "y"), (1, "a", None), (2, "a", "new")]
    rows = last_changes(changes_of(batch), KEYS)
    assert [(row["id"], row["part of key"], row["note"]) for row in rows.to_pylist()] == [
        (1, "b", "y"),
        (1, "a", None),
        (2, "a", "new"),
    ]
    assert last_changes(changes_of([]), KEYS).num_rows == 0


def test_a_table_equals_the_changes_of_its_batches(folder: str) -> None:
    """Z-05: inserts, updates and deletions; a batch that is applied again changes nothing."""
    batches = generated(1, 12)
    for number, batch in enumerate(batches):
        apply(folder, number + 1, batch)
        assert rows_of(folder) == model(batches[: number + 1])
        assert applied(folder) == number + 1
    apply(folder, 13, batches[-1])
    assert rows_of(folder) == model(batches)


def test_a_batch_that_changes_nothing_is_committed(folder: str) -> None:
    """Z-06: with its properties, for they have the offsets of its records."""
    apply(folder, 1, [(1, "a", "x")])
    for number, batch in enumerate(([], [(7, "a", None)]), start=2):
        apply(folder, number, batch)
        table = deltalake.DeltaTable(folder)
        assert table.version() == number
        assert table.transaction_version("upserts") == number
        assert table.history(1)[0]["batch"] == str(number)
        assert rows_of(folder) == {(1, "a"): "x"}


def test_a_truncation_deletes_what_the_batch_does_not_have(folder: str) -> None:
    """Z-05: in the commit of the batch."""
    apply(folder, 1, [(1, "a", "x"), (2, "a", "y"), (3, "a", "z")])
    apply(folder, 2, [(2, "a", "new"), (3, "a", None)], is_truncated=True)
    assert rows_of(folder) == {(2, "a"): "new"}
    apply(folder, 3, [], is_truncated=True)
    assert rows_of(folder) == {}


def test_a_batch_that_another_writer_has_overtaken_is_refused(folder: str) -> None:
    """Z-06: whatever keys it has, if it is of the same application; and can be applied again."""
    apply(folder, 1, [(number, "a", "x") for number in range(10)])
    late = deltalake.DeltaTable(folder)
    apply(folder, 2, [(3, "a", "first")])
    with pytest.raises(CommitFailedError):
        merge_batch(late, changes_of([(3, "a", "second")]), KEYS, properties(2))
    with pytest.raises(CommitFailedError):
        merge_batch(late, changes_of([(99, "a", "second")]), KEYS, properties(2))
    with pytest.raises(CommitFailedError):
        merge_batch(late, changes_of([]), KEYS, properties(2))
    assert rows_of(folder)[3, "a"] == "first"
    apply(folder, 3, [(3, "a", "second")])
    assert rows_of(folder)[3, "a"] == "second"


def test_rows_that_lack_a_column_of_the_table_are_refused(folder: str) -> None:
    """Z-06: they would make it null; the table is unchanged."""
    table = deltalake.DeltaTable(folder)
    rows = changes_of([(1, "a", "x")]).drop_columns(["note"])
    with pytest.raises(ConfigurationError, match="has the column note"):
        merge_batch(table, rows, KEYS, properties(1))
    assert deltalake.DeltaTable(folder).version() == 0


def test_names_that_sql_does_not_take_as_they_are(tmp_path: Path) -> None:
    """Z-05: names of columns are never a part of an expression."""
    names = ["Id", "order", "a.b", 'q"x', "back`t", "é"]
    schema = pa.schema([(name, pa.string()) for name in names])
    deltalake.DeltaTable.create(str(tmp_path), schema=schema)
    for note, is_deleted in (("x", False), ("y", False), (None, True)):
        columns = [pa.array(["it's"], pa.string())] * 2 + [pa.array([note], pa.string())] * 4
        rows = pa.table([*columns, pa.array([is_deleted])], names=[*names, "_kfast_deleted"])
        table = deltalake.DeltaTable(str(tmp_path))
        merge_batch(table, rows, ("Id", "order"), properties(table.version() + 1))
        seen = delta_rows(tmp_path)
        row = dict.fromkeys(names, note) | {"Id": "it's", "order": "it's"}
        assert seen == ([] if is_deleted else [row])


@pytest.mark.slow
@pytest.mark.soak
def test_a_process_that_is_killed_leaves_whole_batches(folder: str) -> None:
    """Z-07: at any instant; a batch and its number are in the table, or neither of them."""
    chance, kills, count, seed = random.Random(3), 0, soaking(12, 400), 5
    batches = generated(seed, count)
    words = [sys.executable, "-m", "tests.unit.table.upserted", folder, str(count), str(seed)]
    while applied(folder) < count:
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=_environment()) as process:
            assert process.stdout is not None
            for _ in range(chance.randrange(1, 8)):
                process.stdout.readline()
            time.sleep(chance.uniform(0, 0.05))
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            status = process.wait()
        assert status in {0, -signal.SIGKILL}
        kills += status != 0
        assert rows_of(folder) == model(batches[: applied(folder)])
    assert kills >= 2


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.int64(), [2**63 - 1, 2**63 - 2, -(2**63)]),
        (pa.decimal128(20, 0), [Decimal(2**63), Decimal(2**63 + 1), Decimal(2**63 + 2)]),
        (pa.decimal128(38, 9), [Decimal(f"1{'0' * 28}.00000000{n}") for n in range(3)]),
        (pa.string(), ["x" * 40, "x" * 40 + "\U0010ffff", "\U0010ffff" * 40]),
        (pa.binary(), [b"\xff" * 40, b"\xff" * 41, b""]),
        (pa.timestamp("us"), [datetime(9999, 12, 31, 23, 59, 59, n) for n in range(3)]),
        (pa.date32(), [date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31)]),
        (pa.bool_(), [True, False]),
    ],
    ids=str,
)
def test_keys_of_each_type(tmp_path: Path, kind: pa.DataType, keys: list[Any]) -> None:
    """Z-05: are compared exactly, whatever bounds the files have of them."""
    schema = pa.schema([("key", kind), ("number", pa.int64())])
    deltalake.DeltaTable.create(str(tmp_path), schema=schema)
    for number, key in enumerate([*keys, *keys, *reversed(keys)]):
        table = deltalake.DeltaTable(str(tmp_path))
        columns = [pa.array([key], kind), pa.array([number], pa.int64()), pa.array([False])]
        rows = pa.table(columns, names=["key", "number", "_kfast_deleted"])
        merge_batch(table, rows, ["key"], properties(number + 1))
    seen = delta_table(tmp_path)
    last = 3 * len(keys) - 1
    assert dict(zip(seen["key"].to_pylist(), seen["number"].to_pylist(), strict=True)) == {
        key: last - place for place, key in enumerate(keys)
    }
    assert seen.num_rows == len(keys)
