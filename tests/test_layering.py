"""The arrows between kfast's rooms, checked on the source of every module."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import pytest

from kfast import internals
from tests.import_rules import (
    ROOMS,
    imports_of,
    matches,
    modules_below,
    pyx_violations,
    rooms_below,
    violations,
)

ROOT = Path(__file__).resolve().parent.parent
PYTHON_MODULES = list(modules_below(ROOT / "kfast"))
CYTHON_ROOT = ROOT / "src_pyx" / "kfast"
CYTHON_SOURCES = {
    ".".join(path.relative_to(CYTHON_ROOT).with_suffix("").parts): path
    for path in sorted(CYTHON_ROOT.rglob("*.p[yx][xd]"))
    if path.stem != "__init__"
}


@pytest.mark.parametrize(
    ("module", "is_package", "path"), PYTHON_MODULES, ids=[name for name, _, _ in PYTHON_MODULES]
)
def test_module_keeps_to_its_room(module: str, is_package: bool, path: Path) -> None:
    assert violations(module, path.read_text(encoding="utf-8"), is_package) == []


@pytest.mark.parametrize("module", CYTHON_SOURCES)
def test_cython_source_keeps_to_its_room(module: str) -> None:
    assert pyx_violations(module, CYTHON_SOURCES[module].read_text(encoding="utf-8")) == []


def test_the_scanner_sees_the_package() -> None:
    names = {name for name, _, _ in PYTHON_MODULES}
    assert {"kfast.errors", "kfast.config", "kfast.client.request", "kfast.protocol"} <= names
    assert CYTHON_SOURCES


def test_no_module_has_two_places() -> None:
    patterns = [pattern for room in ROOMS for pattern in room.modules]
    assert len(patterns) == len(set(patterns))


def test_rooms_stand_on_rooms_named_before() -> None:
    """So that there is no circle."""
    seen: set[str] = set()
    for room in ROOMS:
        assert set(room.below) <= seen, room
        seen.add(room.name)
    assert rooms_below("program") == seen - {"program"}


def test_no_modules_need_each_other() -> None:
    """Imports inside of functions and for types only count too; packages give names only."""
    names = {module for module, is_package, _ in PYTHON_MODULES if not is_package}
    needs = {
        module: {
            found
            for each in imports_of(path.read_text(encoding="utf-8"), module, is_package)
            for found in (each.module, each.module.rpartition(".")[0])
            if found in names
        }
        for module, is_package, path in PYTHON_MODULES
        if not is_package
    }
    while needs:
        free = {module for module, targets in needs.items() if not targets & needs.keys()}
        assert free, {module: targets & needs.keys() for module, targets in needs.items()}
        for module in free:
            del needs[module]


TESTS = Path(__file__).resolve().parent


def test_no_test_module_is_imported() -> None:
    """What several tests need is in a module of its own, which has no tests."""
    imported = {
        f"{path.relative_to(TESTS)}: {module}"
        for path in sorted(TESTS.rglob("*.py"))
        for module in imported_test_modules(path.read_text(encoding="utf-8"))
    }
    assert not imported


def imported_test_modules(source: str) -> list[str]:
    names = [
        name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [f"{node.module or ''}.{alias.name}" for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    ]
    return [name for name in names if re.match(r"tests\b.*\.test_[a-z_]+\b", name)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from tests.unit.test_types import helper", ["tests.unit.test_types.helper"]),
        ("from tests.unit import test_types", ["tests.unit.test_types"]),
        ("def f():\n    import tests.test_words", ["tests.test_words"]),
        ("from tests.unit.configs import config", []),
    ],
)
def test_imports_of_test_modules_are_seen(source: str, expected: list[str]) -> None:
    assert imported_test_modules(source) == expected


GOOD = [
    ("kfast.client.metadata", "from kfast.protocol.messages import metadata"),
    ("kfast.client.metadata", "from kfast import errors"),
    ("kfast.client.metadata", "import threading"),
    ("kfast.client.metadata", "from .request import UnsentRequest"),
    ("kfast.consumer.fetch.buffer", "import threading"),
    ("kfast.consumer.fetch.fetcher", "from kfast.client.request import NodeConnections"),
    ("kfast.security.tls.transport", "import socket, ssl"),
    ("kfast._base.threads", "from concurrent.futures import Future"),
    ("kfast.records", "import numpy as np"),
    ("kfast.records", "def to_arrow():\n    import pyarrow"),
    ("kfast.records", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyarrow"),
    ("kfast.local.node", "import subprocess, socket, time"),
    ("kfast.cli.read", "from kfast.bulk import read_topic"),
    ("kfast.cli", "from kfast import KafkaConsumer"),
    ("kfast", "from kfast.kafka_consumer import KafkaConsumer"),
    ("kfast.errors", "from kfast._base.spelling import did_you_mean"),
    ("kfast.consumer.positions.committed", "from kfast.consumer.commits import offset_fetch"),
    ("kfast.consumer.commits.commit_queue", "from kfast.consumer.group import membership"),
    ("kfast.consumer.request_managers", "import kfast.consumer.group.kip848.membership"),
    ("kfast.spark.source.source", "from pyspark.sql.datasource import DataSource"),
    ("kfast.spark.source.source", "from kfast.spark.source.batch_reader import KafkaBatchReader"),
    ("kfast.spark", "def load():\n    from kfast.spark.source.source import KafkaDataSource"),
]

BAD = [
    ("kfast.errors", "from kfast.types import TopicPartition; import kfast.records", "higher"),
    ("kfast.protocol.schema", "from kfast.records import PartitionRecords", "sibling"),
    ("kfast.network.selector", "from kfast.consumer.fetch.fetcher import Fetcher", "sibling"),
    ("kfast.consumer.fetch.fetcher", "def f():\n    from kfast.network import selector", "sibling"),
    ("kfast.client.metadata", "from ..threads import network_thread", "higher room threads"),
    ("kfast.client.metadata", "from kfast import KafkaConsumer", "higher room kfast"),
    ("kfast.client.metadata", "import kfast", "higher room kfast"),
    ("kfast.client.broker_connection", "import socket", "imports socket"),
    ("kfast.client.broker_connection", "def f():\n    import ssl", "imports ssl"),
    ("kfast.client.broker_connection", "import importlib\nimportlib.import_module('ssl')", "ssl"),
    ("kfast.consumer.fetch.fetcher", "from threading import Lock", "imports threading"),
    ("kfast.consumer.fetch.buffer_x", "import queue", "imports queue"),
    ("kfast.consumer.fetch.fetcher", "from kfast.consumer.positions import reset", "sibling"),
    ("kfast.consumer.positions.reset", "from kfast.consumer.fetch import buffer", "sibling"),
    ("kfast.consumer.group.poll_timer", "from kfast.consumer.commits import errors", "higher room"),
    ("kfast.consumer.group.classic.join", "from kfast.consumer.group import kip848", "sibling"),
    ("kfast.consumer.subscription_state", "import kfast.consumer.group.membership", "higher room"),
    ("kfast.columns.text", "from kfast.records import PartitionRecords", "higher room"),
    ("kfast.consumer.fetch.fetcher", "from concurrent.futures import Future", "imports concurrent"),
    ("kfast.network.selector", "from time import monotonic", "imports time"),
    ("kfast.network.selector", "import random", "imports random"),
    ("kfast.network.selector", "import subprocess", "imports subprocess"),
    ("kfast.client.metadata", "import numpy", "imports numpy"),
    ("kfast.records", "import pyarrow as pa", "when kfast is imported"),
    ("kfast.records", "try:\n    import pandas\nexcept ImportError:\n    pass", "when kfast"),
    ("kfast.records", "class A:\n    import polars", "when kfast is imported"),
    ("kfast.records", "if not TYPE_CHECKING_OFF:\n    pass\nelse:\n    import lz4.frame", "lz4"),
    ("kfast.threads.decode_pool", "import zlib", "imports zlib"),
    ("kfast.bulk", "from tests.fake_clock import FakeClock", "imports tests"),
    ("kfast", "def f():\n    from kfast import cli", "higher room cli"),
    (
        "kfast.spark.source.schema",
        "from pyspark.sql.types import StructType",
        "when kfast is imported",
    ),
    ("kfast.spark.source.source", "import pyarrow", "when kfast is imported"),
    ("kfast.spark", "from kfast.spark.source.source import KafkaDataSource", "and so pyspark"),
    ("kfast.brand_new", "", "no room covers it"),
]


@pytest.mark.parametrize(("module", "source"), GOOD)
def test_the_rules_allow(module: str, source: str) -> None:
    assert violations(module, source, is_package=module == "kfast") == []


@pytest.mark.parametrize(("module", "source", "complaint"), BAD)
def test_the_rules_forbid(module: str, source: str, complaint: str) -> None:
    found = violations(module, source)
    assert len(found) == 1, found
    assert complaint in found[0]


def test_relative_imports_resolve_against_the_package() -> None:
    source = "from . import request\nfrom .request import Channel\nfrom .. import errors\n"
    inside = [item.module for item in imports_of(source, "kfast.client.metadata")]
    assert inside == ["kfast.client.request", "kfast.client.request.Channel", "kfast.errors"]
    package = [item.module for item in imports_of("from . import x", "kfast.client", True)]
    assert package == ["kfast.client.x"]


def test_lazy_means_inside_a_function_or_for_types() -> None:
    source = textwrap.dedent(
        """
        import a
        if TYPE_CHECKING:
            import b
        else:
            import c
        class C:
            def method(self):
                import d
        """
    )
    assert [(item.module, item.is_lazy) for item in imports_of(source, "kfast.x")] == [
        ("a", False),
        ("b", True),
        ("c", False),
        ("d", True),
    ]


def test_cython_rules() -> None:
    columns, codecs = "_native.columns", "_native.codecs"
    assert pyx_violations(columns, "from kfast._native.buffers cimport OwnedBuffer") == []
    assert pyx_violations(codecs, "from lz4 import block\nfrom kfast.errors import X") == []
    assert "higher room" in pyx_violations(columns, "from kfast.records import X")[0]
    assert "only for codecs" in pyx_violations(columns, "import zstandard")[0]
    assert "numpy" in pyx_violations(columns, "cimport numpy as np")[0]
    assert pyx_violations("network.receive", "from kfast._native.frame cimport FrameReceiver") == []
    assert "higher room" in pyx_violations(columns, "from kfast.network.receive cimport x")[0]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("    #include <sys/epoll.h>", "system calls"),
        ("    ssize_t count = recv(fd, at, room, 0);", "system calls"),
        ("from posix.unistd cimport read", "system calls"),
        ("from cpython.pythread cimport PyThread_allocate_lock", "locks"),
        ("cdef cython.pymutex guard", "locks"),
        ("from cpython.exc cimport PyErr_CheckSignals", "signals"),
        ("from libc.signal cimport raise_", "signals"),
        ("from _signal import SIGINT", "signals"),
    ],
)
def test_system_calls_locks_and_signals_stay_where_they_are(line: str, complaint: str) -> None:
    (found,) = pyx_violations("_native.columns", line)
    assert complaint in found
    allowed = "network.receive" if complaint == "system calls" else "_runtime.wakeup_event"
    assert pyx_violations(allowed, line) == []


CORE = (
    *("application", "consumer", "client", "network", "threads", "protocol", "security"),
    *("kafka_consumer", "_native"),
)
"""The parts of a consumer, which other programs of kfast reach through ``kfast.internals``."""

OPEN = ("errors", "types", "structs", "config", "transactions", "internals", "_base")
"""What the programs may import beside the names of ``kfast`` itself."""

REACH = {"cli": 95, "table": 72, "spark": 114}
"""How many modules that are not public the files of a room import: these numbers only fall."""


def reach_of(room: str) -> list[tuple[str, str]]:
    """Return the modules outside of a room that its files import and that are not public."""
    reach = set()
    for module, is_package, path in PYTHON_MODULES:
        if not f"{module}.".startswith(f"kfast.{room}."):
            continue
        for item in imports_of(path.read_text(encoding="utf-8"), module, is_package):
            target = item.module.rpartition(".")[0].removeprefix("kfast").removeprefix(".")
            if item.module.startswith("kfast.") and target and not matches(target, (room, *OPEN)):
                reach.add((module, target))
    return sorted(reach)


@pytest.mark.parametrize("room", REACH)
def test_programs_reach_the_parts_of_a_consumer_through_the_seam(room: str) -> None:
    direct = [(module, target) for module, target in reach_of(room) if matches(target, CORE)]
    # Spark's workers report which of their packages cannot be imported.
    assert direct == ([("kfast.spark.source.process_check", "_native")] if room == "spark" else [])


@pytest.mark.parametrize("room", REACH)
def test_programs_reach_into_fewer_modules_that_are_not_public(room: str) -> None:
    """Lower the number with the reach, so that it cannot grow again."""
    assert len(reach_of(room)) == REACH[room], reach_of(room)


def test_every_name_of_the_seam_is_used() -> None:
    used = {
        item.module.rpartition(".")[2]
        for module, is_package, path in PYTHON_MODULES
        for item in imports_of(path.read_text(encoding="utf-8"), module, is_package)
        if item.module.startswith("kfast.internals.")
    }
    assert {*internals.__all__} == used
    assert all(getattr(internals, name) for name in used)
