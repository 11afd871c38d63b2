"""What a reader of a Delta table sees, read by pyarrow from the files that its log lists.

Not by deltalake's own filesystem for pyarrow: its threads may abort a process that ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds


def delta_table(folder: Path | str) -> pa.Table:
    """The rows of the newest version; columns that a file lacks are null."""
    table = deltalake.DeltaTable(str(folder))
    schema = pa.schema(table.schema().to_arrow())
    files = table.file_uris()
    return ds.dataset(files, schema=schema).to_table() if files else schema.empty_table()


def delta_rows(folder: Path | str) -> list[dict[str, Any]]:
    """The same as Python's values."""
    rows: list[dict[str, Any]] = delta_table(folder).to_pylist()
    return rows
