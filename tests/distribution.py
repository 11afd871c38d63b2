"""How ``make test`` shares the tests between its workers (a pytest plugin, for pytest-xdist).

A file stays together, and so do files that share a Spark or Kafka clusters: to start those takes
longer than most files, and three brokers cost a tenth of a core while they are idle. Units of
several files begin first, so that the many short files level out the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

TOGETHER: Final = {
    "tests that ingest": ("tests/spark/test_ingest",),
    "one broker": ("tests/integration/",),
    "recipes": ("tests/integration/test_into_",),
    "Spark": ("tests/spark/",),
    "three brokers": (
        "tests/integration/test_failover",
        "tests/integration/test_groups_coordinators",
        "tests/integration/test_groups_failures",
    ),
    "groups": ("tests/integration/test_groups",),
    "a secured broker": (
        "tests/integration/test_local_kafka_security",
        "tests/integration/both/test_sasl",
        "tests/integration/test_sasl",
        "tests/integration/test_tls",
    ),
}
"""What the paths of a unit's files begin with, the first to begin first. The longest one counts."""
ALONE: Final = (
    "tests/integration/test_bench",
    "tests/integration/test_follower_fetching",
    "tests/integration/test_iceberg_rest",
    "tests/integration/test_local_kafka",
    "tests/integration/test_schema_registry",
    "tests/spark/test_cluster",
)
"""Files that share nothing with the others of their folder."""
NEXT: Final = ("tests/spark/", "tests/integration/", "tests/end_to_end/")
"""Where the longest of the other files are."""


def unit_of(nodeid: str) -> str:
    """Return the name of what a test is run together with."""
    path = nodeid.partition("::")[0]
    starts = [
        (start, unit)
        for unit, starts in (*TOGETHER.items(), (path, ALONE))
        for start in starts
        if path.startswith(start)
    ]
    return max(starts, key=lambda pair: len(pair[0]), default=("", path))[1]


def rank(unit: str) -> int:
    """Return when a unit begins: the lowest is first."""
    order = (*TOGETHER, *NEXT)
    return next((i for i, start in enumerate(order) if unit.startswith(start)), len(order))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Take the place of ``--dist loadfile``."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415

    class LongestFirst(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            self.workqueue.move_to_end(min(self.workqueue, key=rank), last=False)
            super()._assign_work_unit(node)

    return LongestFirst(config, log)
