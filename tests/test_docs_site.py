"""The documentation: its reference has everything, and it builds strictly and without a network."""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kfast
from kfast import errors
from kfast.cli import exits
from kfast.cli.commands import COMMANDS
from kfast.config import ConsumerConfig
from tests.document_examples import ROOT, user_documents
from tools.reference import commands, error_classes, pages, write

yaml = pytest.importorskip("yaml")

OFFLINE = """\
import socket, sys

def refuse(*_args, **_more):
    raise OSError("the documentation is built without a network")

socket.socket.connect = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
cli(["build", "--strict", "--quiet", "--config-file", "mkdocs.yml"])
"""


def nav() -> list[str]:
    """Return the pages of the navigation."""
    found: list[str] = []

    def walk(entry: Any) -> None:
        if isinstance(entry, str):
            found.append(entry)
        else:
            for each in entry.values() if isinstance(entry, dict) else entry:
                walk(each)

    walk(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    return found


def test_the_reference_has_everything() -> None:
    """CL-111: every public name, setting, command, error and exit code."""
    made = pages()
    for name in kfast.__all__:
        if name[0] != "_" and name not in {"errors", "structs", "transactions"}:
            assert f"::: kfast.{name}\n" in made["api.md"]
    for info in ConsumerConfig.describe():
        assert f"\n## {info.key}\n" in made["settings.md"]
    assert {title.split()[1] for title, _ in commands()} == {*COMMANDS}
    assert "\n## kfast config use\n" in made["cli.md"]
    classes = error_classes()
    assert len(classes) > 100
    for name, error in classes.items():
        page = made[f"errors/{name}.md"]
        code = exits.exit_code(error())
        assert f"[{code}](../exit-codes/{code}.md)" in page
        assert code < 2 or f"(../errors/{name}.md)" in made[f"exit-codes/{code}.md"]
    assert "NoBrokersAvailable" in made["errors/KafkaConnectionError.md"]
    constants = {
        value for name, value in vars(exits).items() if name.isupper() and type(value) is int
    }
    assert constants <= {*exits.EXIT_CODES}


def test_links_of_the_reference_lead_to_pages() -> None:
    """CL-111"""
    made = pages()
    for name, text in made.items():
        for link in re.findall(r"\]\(([\w/.-]+\.md)\)", text):
            assert posixpath.normpath(f"{posixpath.dirname(name)}/{link}") in made, (name, link)


def test_every_page_is_in_the_navigation_and_in_llms_txt() -> None:
    """CL-111"""
    listed = nav()
    docs = ROOT / "docs"
    assert {path.relative_to(docs).as_posix() for path in user_documents()[1:]} <= {*listed}
    assert {page for page in listed if page.startswith("reference/")} <= {
        f"reference/{name}" for name in pages()
    }
    links = re.findall(r"\]\(([^)]+)\)", (docs / "llms.txt").read_text(encoding="utf-8"))
    expected = {re.sub(r"(index)?\.md$", "", page).rstrip("/") + "/" for page in listed}
    assert {*links} == expected - {"/"}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Give a folder with the pages and the configuration of a site."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=lambda *_: ["reference"])
    write(tmp_path / "docs" / "reference")
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text(config.replace("paths: [.]", f"paths: [{ROOT}]"))
    return tmp_path


def build(sources: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.mark.slow
def test_another_builder_reads_the_same_configuration(sources: Path) -> None:
    """CL-111: zensical, which follows on the theme that the site has."""
    pytest.importorskip("zensical")
    build(sources, sys.executable, "-m", "zensical", "build", "--strict", "-f", "mkdocs.yml")
    text = (sources / "build" / "site" / "reference" / "api" / "index.html").read_text("utf-8")
    assert "Reads Kafka topics into columns." in text


@pytest.mark.slow
def test_the_documentation_builds_strictly_and_without_a_network(
    sources: Path, tmp_path: Path
) -> None:
    """CL-111"""
    pytest.importorskip("mkdocs")
    build(sources, sys.executable, "-c", OFFLINE)
    site = tmp_path / "build" / "site"
    text = (site / "reference" / "api" / "index.html").read_text(encoding="utf-8")
    assert "Reads Kafka topics into columns." in text
    for page in site.rglob("*.html"):
        loaded = re.findall(r'(?:src=|<link[^>]* href=)"(https?:[^"]+)"', page.read_text())
        assert not loaded, (page.name, loaded)


def test_help_is_an_example_of_itself() -> None:
    """CL-111: what the reference shows of a command is its help."""
    shown = dict(commands())["kfast topics"]
    assert shown.startswith("Usage: kfast topics ")
    assert "Examples:" in shown


def test_errors_of_kafka_python_are_named() -> None:
    """CL-111"""
    page = pages()["errors/ConfigurationError.md"]
    assert "`KafkaConfigurationError`" in page
    assert errors.KafkaConfigurationError.__name__ == "ConfigurationError"
