"""``kfast read`` into Parquet and Arrow files, over a fake cluster."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfast import cli
from tests.end_to_end.ingests import Table, Truth
from tests.imported_modules import last_line_of

PROGRAM = """
import json, sys
from kfast import cli
assert cli.main(["read", "t", "-b", sys.argv[1], "--output", sys.argv[2]]) == 0
print(json.dumps([name for name in ("pandas", "numpy", "pyarrow") if name in sys.modules]))
"""


def read(table: Table, *words: str) -> pa.Table:
    """Read two topics into a file; return what is in it."""
    target = table.folder.with_suffix(f".{words[0]}")
    given = ["-b", table.servers, "--output", str(target), "-X", "max.poll.records=7"]
    assert cli.main(["read", "t", "two", *given, *words[1:]]) == 0
    return pq.read_table(target) if words[0] == "parquet" else pa.ipc.open_file(target).read_all()


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_several_topics_are_in_one_file(
    truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Their names are a dictionary, which an Arrow file has only once."""
    monkeypatch.setattr("kfast.cli.binary._GROUP_ROWS", 10)
    truth.cluster.create_topic("two", 1)
    truth.write(0, 25, "two")
    found = read(table, form)
    assert found.schema.field("topic").type == pa.dictionary(pa.int32(), pa.string())
    columns = [found.column(name).to_pylist() for name in ("topic", "partition", "offset", "value")]
    assert sorted(zip(*columns, strict=True)) == sorted((*row[:3], row[4]) for row in truth.rows)
    found = read(table, form, "-c", "leader_epoch,topic", "-p", "0", "-n", "60")
    assert found.column_names == ["leader_epoch", "topic"]
    assert set(found.column("leader_epoch").to_pylist()) == {0}
    assert found.num_rows == 60


def test_pandas_is_not_imported(truth: Truth, table: Table, tmp_path: Path) -> None:
    """It takes longer than a short read, and pyarrow's conversions would import it."""
    found = last_line_of(PROGRAM, table.servers, str(tmp_path / "x.parquet"))
    assert found == ["numpy", "pyarrow"]
    assert pq.read_table(tmp_path / "x.parquet").num_rows == 80
