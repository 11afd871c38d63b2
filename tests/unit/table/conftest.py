"""Stores for the tests of tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kfast.table.fsspec_store import open_store
from kfast.table.store import LocalStore, TableStore


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TableStore]:
    if request.param == "local":
        yield LocalStore(tmp_path / "table")
        return
    fsspec = pytest.importorskip("fsspec")
    yield open_store(f"memory://{request.node.name}")
    fsspec.filesystem("memory").rm("/", recursive=True)
