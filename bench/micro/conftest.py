"""What all of these have: a pool of blocks, and the commit measured in ``--benchmark-json``."""

from __future__ import annotations

from typing import Any

import pytest

from bench.report import commit_measured
from kfast._native.buffers import PoolShare, trim_pool


@pytest.fixture(autouse=True)
def pool() -> list[PoolShare]:
    """Blocks are recycled as with one consumer; without this there is none."""
    trim_pool()
    return [PoolShare(64 << 20)]


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    machine_info["commit"] = commit_measured()
