"""Records the commit measured in the file of ``--benchmark-json``, as other results have it."""

from __future__ import annotations

from typing import Any

from bench.report import commit_measured


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    machine_info["commit"] = commit_measured()
