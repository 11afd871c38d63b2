"""How ``make test`` shares the tests between its workers (a pytest plugin, for pytest-xdist).

A file stays together, and so do the files that share a Spark or Kafka clusters: to start those
takes longer than most files. They begin first, so that the many short files level out the end. The
tests of groups have clusters of their own, since all of ``tests/integration`` takes longest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

TOGETHER: Final = ("tests/spark/", "tests/integration/test_groups", "tests/integration/")
FIRST: Final = (*TOGETHER, "tests/end_to_end/")


def unit_of(nodeid: str) -> str:
    """Return the name of what a test is run together with."""
    path = nodeid.partition("::")[0]
    return next((start for start in TOGETHER if path.startswith(start)), path)


def rank(unit: str) -> int:
    """Return when a unit begins: the lowest is first."""
    return next((i for i, path in enumerate(FIRST) if unit.startswith(path)), len(FIRST))


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
