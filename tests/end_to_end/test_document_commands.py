"""The commands that the documents show print what stands below them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.documents import updated
from kfast.cli import main
from kfast.cli.commands import COMMANDS
from kfast.cli.exits import EXIT_CODES
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer
from tests.document_examples import ROOT, blocks, sections, user_documents
from tests.end_to_end.groups import commit_as
from tests.fake_registry.server import fake_registry

REGISTRY = "http://localhost:8081"
START_MS = 1_769_860_800_000
NAMES = [path.relative_to(ROOT).as_posix() for path in user_documents()]
SHOWN = [
    (name, command, output)
    for name in NAMES
    for language, content in blocks((ROOT / name).read_text(encoding="utf-8"))
    if language == "console"
    for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", content, re.MULTILINE)
]
INSTEAD_OF_KCAT = [
    code if code.startswith("kfast ") else f"kfast read T {code}"
    for _, cell in re.findall(
        r"^\| (`.+`) \| (`.+) \|$", sections("docs/porting.md")["From kcat"], re.MULTILINE
    )
    for code in re.findall(r"`([^`]+)`", cell)
]
"""The commands of the table, with its letters for names."""
GOES_ON = {"--follow": ["-n", "1"], "-g": ["-n", "1", "-o", "start"]}
"""Options of reads that have no end of their own, and what ends them."""
NOT_RUN = 33
"""Blocks that no test runs; each has its reason in a comment before it."""


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerServer]:
    """Serve the topic of the tutorial, which the group "billing" has read."""
    cluster = FakeCluster(1)
    cluster.create_topic("orders", 2)
    for partition in range(2):
        records = [
            Record(b"k%d" % n, b'{"amount": %d}' % (10 * n), timestamp=START_MS + 1000 * n)
            for n in range(3)
        ]
        cluster.append("orders", partition, records)
    with BrokerServer(cluster) as running:
        commit_as("billing", running.bootstrap_servers, "orders", 2, 3)
        yield running


@pytest.fixture(scope="module")
def typed() -> Iterator[tuple[BrokerServer, str]]:
    """Serve the topics of typed columns: JSON, and values with ids of a registry's schemas."""
    cluster = FakeCluster(1)
    documents = [b'{"id": 1, "price": 2.5}', b'{"id": 2, "tags": ["a"]}']
    ids = [b"\0\0\0\0" + id + b"\x0e" for id in (b"\1", b"\1", b"\1", b"\7")]
    for topic, values in (("trades", documents), ("orders", [*ids, b"\x0e"])):
        cluster.create_topic(topic)
        cluster.append(topic, 0, [Record(b"k", value) for value in values])
    with BrokerServer(cluster) as running, fake_registry() as registry:
        registry.register("orders-value", '{"type": "long"}')
        yield running, registry.url


def masked(text: str) -> str:
    """Return a text without its numbers, and without the width that they have in a table."""
    return re.sub(r"\d+", "N", re.sub(r" +", " ", text))


@pytest.mark.parametrize(("document", "line", "output"), SHOWN)
def test_a_command_prints_what_the_document_shows(
    document: str,
    line: str,
    output: str,
    server: BrokerServer,
    typed: tuple[BrokerServer, str],
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CL-110"""
    monkeypatch.chdir(tmp_path)
    if document == "docs/typed-columns.md":
        server, url = typed
        line = line.replace(REGISTRY, url)
    monkeypatch.setenv("KFAST_BOOTSTRAP_SERVERS", server.bootstrap_servers)
    program, *arguments = shlex.split(line)
    assert program == "kfast"
    main(arguments)
    printed = capfd.readouterr()
    assert masked(printed.out + printed.err) == masked(output), document


@pytest.mark.parametrize("line", INSTEAD_OF_KCAT)
def test_what_is_written_instead_of_kcat_works(
    line: str,
    server: BrokerServer,
    typed: tuple[BrokerServer, str],
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CL-110: those that end write to standard output; the others read one record."""
    program, *words = shlex.split(line)
    assert program == "kfast"
    if "URL" in words:
        server, url = typed
        words = [url if word == "URL" else word for word in words] + ["--on-error", "null"]
    names = {"T": "orders", "T1": "orders", "T2": "orders", "12": "1"}
    names["B"] = server.bootstrap_servers
    words = [names.get(word, word).replace("MS", str(START_MS)) for word in words]
    if "int32" in words:
        words += ["--on-error", "null"]
    words += GOES_ON.get(next((word for word in words if word in GOES_ON), ""), [])
    monkeypatch.setenv("KFAST_BOOTSTRAP_SERVERS", server.bootstrap_servers)
    status = main(words)
    printed = capfdbinary.readouterr()
    assert status == 0, printed.err.decode()
    assert printed.out or "@MS:MS" in line  # that range is empty


def test_the_table_of_kcat_has_commands() -> None:
    """CL-110"""
    assert len(INSTEAD_OF_KCAT) > 12


def test_there_are_commands_in_the_documents() -> None:
    """CL-110"""
    assert {name for name, _, _ in SHOWN} >= {"docs/tutorial.md", "docs/how-to/lag-alert.md"}


def test_every_command_and_exit_code_is_on_the_page_of_the_command_line() -> None:
    """CL-111"""
    text = (ROOT / "docs/command-line.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"\n| `kfast {name}" in text
        assert f"kfast {name}" in readme
    rows = sections("docs/command-line.md")["Exit codes"]
    assert dict(re.findall(r"^\| (\d+) \| (.+) \|$", rows, re.MULTILINE)) == {
        str(code): meaning for code, meaning in EXIT_CODES.items()
    }


def test_every_block_is_run_or_says_why_not() -> None:
    """CL-110"""
    excused = 0
    for name in NAMES:
        text = updated((ROOT / name).read_text(encoding="utf-8"), "")  # figures are compared
        for start in re.finditer(r"^```(\w*)\n(?:.*\n)*?```$", text, re.MULTILINE):
            if start[1] in {"python", "console"}:
                continue  # see document_examples.RUN_BY, and above
            before = text[: start.start()].rstrip("\n").rpartition("\n")[2]
            assert re.fullmatch(r"<!-- not run: .+ -->", before), f"{name}: {start[0][:80]}"
            excused += 1
    assert excused == NOT_RUN
