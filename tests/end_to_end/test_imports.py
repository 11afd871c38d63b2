"""What a process imports, and when: each pays for what it uses, and nobody pays inside ``poll``."""

from __future__ import annotations

import json

import pytest

from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import cluster_of
from tests.imported_modules import READ, among, last_line_of

HEAVY = (
    *("pyarrow", "pandas", "polars", "pyspark", "rich", "confluent_kafka", "asyncio"),
    *("ssl", "hmac", "hashlib", "http", "kfast.security.sasl", "kfast.security.tls"),
    "kfast.security.login_worker",
)
"""What a consumer never needs."""

LATER = ("numpy", "importlib.metadata", "email", "inspect", "socket")
"""What a consumer needs, but ``import kfast`` does not."""

GROUP = (
    "kfast.consumer.group.assignors",
    "kfast.consumer.group.classic.membership",
    "kfast.consumer.commits.commit_request_manager",
    "kfast.consumer.group.kip848.membership",
    "kfast.consumer.group.coordinator_finder",
    "kfast.consumer.group.classic.messages",
    "kfast.protocol.consumer_protocol",
    "kfast.protocol.messages.consumer_group_heartbeat",
    "kfast.protocol.messages.find_coordinator",
    "kfast.protocol.messages.heartbeat",
    "kfast.protocol.messages.join_group",
    "kfast.protocol.messages.leave_group",
    "kfast.protocol.messages.offset_commit",
    "kfast.protocol.messages.offset_fetch",
    "kfast.protocol.messages.sync_group",
    "kfast.consumer.group.coordinator_finder",
)
"""What only a member of a group needs."""

PROGRAMS = (
    "kfast.bulk",
    "kfast.cli",
    "kfast.local.local_kafka",
    "kfast.spark",
    "kfast.testing",
    "kfast.transactions",
)
"""What is around a consumer."""


def reading(server: BrokerServer, **settings: str) -> tuple[list[str], list[str]]:
    """Return what is imported by a program that reads, until its consumer is made and after."""
    settings["bootstrap_servers"] = server.bootstrap_servers
    made, later = last_line_of(READ, json.dumps(settings))
    return made, later


@pytest.fixture
def server() -> BrokerServer:
    cluster = cluster_of(batch_records=4)
    cluster.features["group.version"] = 1
    return BrokerServer(cluster)


def test_the_package_imports_nothing_of_itself() -> None:
    (modules,) = last_line_of(
        "import json, sys; before = set(sys.modules); import kfast;"
        "print(json.dumps([sorted(set(sys.modules) - before)]))"
    )
    assert among(modules, *HEAVY, *LATER) == []
    assert among(modules, "kfast") == ["kfast"]


def test_a_consumer_without_a_group_knows_nothing_of_groups(server: BrokerServer) -> None:
    with server:
        made, later = reading(server)
    assert among(made, *HEAVY, *GROUP, *PROGRAMS) == []
    assert among(later, "kfast") == [], "imported inside poll"


@pytest.mark.parametrize(
    ("protocol", "other"),
    [
        ("classic", ("kfast.consumer.group.kip848.membership",)),
        ("consumer", ("kfast.consumer.group.classic.membership", "kfast.consumer.group.assignors")),
    ],
)
def test_a_member_knows_its_own_protocol(
    server: BrokerServer, protocol: str, other: tuple[str, ...]
) -> None:
    with server:
        made, later = reading(server, group_id="g", group_protocol=protocol)
    assert among(made, *HEAVY, *PROGRAMS, *other) == []
    assert among(later, "kfast") == [], "imported inside poll or commit"


COMMANDS = """
import json, sys
from kfast.cli import main
status = main(sys.argv[1:])
print()
print(json.dumps([status, sorted(sys.modules)]))
"""


@pytest.mark.parametrize(
    "words",
    [("read", "t", "-n", "3"), ("read", "t", "-f", "csv", "--output", "-")],
    ids=["jsonl", "csv"],
)
def test_a_read_that_writes_text_imports_no_columns(
    server: BrokerServer, words: tuple[str, ...]
) -> None:
    """CL-52: neither NumPy nor what else takes long to import."""
    with server:
        status, loaded = last_line_of(COMMANDS, *words, "-b", server.bootstrap_servers)
    assert status == 0
    heavy = (
        "numpy",
        "email",
        "kfast.deserializers",
        "kfast.columns.bytes",
        "kfast.bulk",
        "kfast.local",
    )
    assert among(loaded, *HEAVY, *heavy, "kfast.spark", "kfast.demo", *GROUP) == []


PACKAGES = """
import json, sys
from kfast.cli import main
status = main(sys.argv[1:])
names = {name.partition(".")[0] for name in sys.modules} - {*sys.stdlib_module_names}
print()
print(json.dumps([status, sorted(names), sorted(sys.modules)]))
"""

OF_MISTAKES = ("shlex",)
OF_MEMBERS = (
    *("kfast.consumer.group.assignors", "kfast.consumer.group.classic.membership"),
    *("kfast.consumer.group.kip848.membership", "kfast.consumer.commits.commit_request_manager"),
)
NOT_FOR_COMMANDS = (
    *HEAVY,
    *("numpy", "email", "importlib.metadata", "tomllib", "xml", "unittest", "pydoc"),
    # Of schemas the names of formats are in the help.
    *("kfast.schemas.types", "kfast.schemas.schema", "kfast.schemas.ddl", "kfast.schemas.layout"),
    *("kfast.deserializers", "kfast.columns.bytes", "kfast.bulk", "kfast.local"),
    *("kfast.spark", "kfast.table", "kfast.demo", "kfast.transactions"),
)


@pytest.mark.parametrize(
    ("words", "unused"),
    [
        (
            "read t -n 1",
            (*GROUP, *OF_MISTAKES, "kfast.cli.binary", "kfast.application.cluster_admin"),
        ),
        ("topics", (*OF_MEMBERS, *OF_MISTAKES, "kfast.cli.read", "kfast.application.polling")),
        ("lag", (*OF_MISTAKES, "kfast.cli.read", "kfast.application.polling")),
        ("--help", ("kfast.kafka_consumer", "kfast.config", "kfast.cli.read", "socket")),
    ],
)
def test_a_short_command_imports_what_it_uses(
    server: BrokerServer, words: str, unused: tuple[str, ...]
) -> None:
    """CL-238: click is the only package; of kfast only what is listed may be there."""
    with server:
        command = (*words.split(), "-b", server.bootstrap_servers)
        status, packages, loaded = last_line_of(PACKAGES, *command)
    assert status == 0
    others = {each for each in packages if not each.startswith(("_", "org", "cython"))}
    assert others == {"click", "kfast"}
    assert among(loaded, *NOT_FOR_COMMANDS, *unused) == []
