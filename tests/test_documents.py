"""The documents are true: their figures, their links, the rooms they name, the code they show."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from click import Context

from bench.clients import chart
from bench.documents import (
    DOCUMENTS,
    RECORDED_BEFORE,
    SECTIONS,
    UnusableResultError,
    commit_of,
    load,
    updated,
)
from bench.micro.typed.cases import misses
from kfast.cli import root
from kfast.cli.commands import COMMANDS
from tests.document_examples import ROOT, RUN_BY, blocks, documents, examples, sections
from tools.reference import REFERENCE, pages

README_LINES = 250
FOLDERS = ("kfast", "src_pyx", "tests", "bench")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_shows_what_was_measured(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == updated(text, DOCUMENTS[path]()), "run `python -m bench.documents`"


@pytest.mark.parametrize("commit", ["0a86560-dirty", None])
def test_a_result_that_was_not_measured_on_a_commit_is_refused(
    tmp_path: Path, commit: str | None
) -> None:
    result = {"machine": {"commit": commit}}
    for name in ("consumers.json", *RECORDED_BEFORE):
        (tmp_path / name).write_text(json.dumps(result), encoding="utf-8")
        if commit != RECORDED_BEFORE.get(name, "0a86560"):
            with pytest.raises(UnusableResultError, match=f"{name} was measured on"):
                load(name, tmp_path)


def test_a_result_of_a_commit_is_published(tmp_path: Path) -> None:
    result = {"machine": {"commit": "0a86560"}}
    (tmp_path / "groups.json").write_text(json.dumps(result), encoding="utf-8")
    assert load("groups.json", tmp_path) == result


def test_a_result_of_typed_columns_is_a_table_with_what_is_wanted() -> None:
    case = {
        "case": "JSON flat",
        "ns_per_record": {"kfast": 150.0, "duckdb": 400.0, "orjson": 1500.0},
        "ratios": {"duckdb": 0.375, "orjson": 0.1},
        "bars": {"duckdb": 0.5},
        "factors": {"orjson": 15.0},
        "memory": 1.25,
        "most_memory": 1.6,
    }
    machine = {"time": "now", "cpu": "a CPU", "python": "3.11", "commit": "0a86560"}
    text = SECTIONS["typed.json"]({"machine": machine, "repetitions": 7, "cases": [case]})
    assert "a CPU, one core unless said; Python 3.11; commit 0a86560." in text
    for line in (
        "| JSON flat | kfast | 150 |  |  |",
        "| JSON flat | duckdb | 400 | 0.38 | ≤ 0.5 |",
        "| JSON flat | orjson | 1500 | 0.10 | ≤ 0.067 |",
        "| JSON flat | kfast's peak of memory ÷ bytes of its columns |  | 1.25 | ≤ 1.6 |",
    ):
        assert line in text
    assert misses(case) == ["JSON flat: 10.0 times orjson, not 15.0"]


def test_results_from_before_the_rule_are_listed_only_as_long_as_they_are_there() -> None:
    for name, commit in RECORDED_BEFORE.items():
        assert commit_of(load(name)) == commit, f"take {name} out of RECORDED_BEFORE"


def test_the_chart_has_bars_as_long_as_the_rates() -> None:
    rows = [
        {"client": "kcat", "records_per_second": 800_000.0},
        {"client": "kfast", "records_per_second": 8_000_000.0},
        {"client": "slow", "records_per_second": 1_000.0},
    ]
    lines = [line.split() for line in chart(rows).splitlines()]
    assert [(name, len(bar)) for name, bar, _ in lines] == [("kfast", 40), ("kcat", 4), ("slow", 1)]
    assert [rate for *_, rate in lines[:2]] == ["8.00", "0.80"]


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= README_LINES


def test_relative_links_lead_to_files_and_headings() -> None:
    missing = []
    for path in documents():
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            if re.match(r"\w+:", link):
                continue
            target, _, anchor = link.partition("#")
            there = (path.parent / target).resolve() if target else path
            if there.is_relative_to(REFERENCE):
                made = there.relative_to(REFERENCE).as_posix() in pages()
                missing += [] if made else [f"{path.name}: {link}"]
                continue
            if not there.exists() or (anchor and anchor not in anchors(there)):
                missing.append(f"{path.name}: {link}")
    assert not missing, missing


def anchors(document: Path) -> set[str]:
    """Return the names under which the headings of a document can be linked to."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text).lower().replace(" ", "-") for text in headings}


def test_the_file_map_names_every_room_and_no_other() -> None:
    paths = re.findall(r"^\| `([^`]+)`", sections("DESIGN.md")["File map"], re.MULTILINE)
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert not missing, f"the file map names what is not there: {missing}"
    rooms = {
        path.parent.relative_to(ROOT).as_posix() + "/" for path in (ROOT / "kfast").rglob("*.py")
    }
    assert rooms <= set(paths), f"the file map lacks {sorted(rooms - set(paths))}"


@pytest.mark.parametrize("document", ["DESIGN.md", "CONTRIBUTING.md"])
def test_the_classes_and_files_named_are_there(document: str) -> None:
    sources = [*(ROOT / "kfast").rglob("*.py"), *(ROOT / "src_pyx").rglob("*.pyx")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    classes = set(re.findall(r"^(?:cdef )?class (\w+)", text, re.MULTILINE))
    paths = [path.as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    paths += [path.as_posix() for path in ROOT.iterdir()]
    missing = []
    for name in re.findall(r"`([\w./]+)`", (ROOT / document).read_text(encoding="utf-8")):
        if re.fullmatch(r".*/|.*\w\.(py|pyx|txt)", name):
            found = any(path.endswith(f"/{name.rstrip('/')}") for path in paths)
        elif re.match(r"[A-Z][a-z]+[A-Z]", name):
            found = name.split(".")[0] in classes
        else:
            continue
        missing += [] if found else [name]
    assert not missing, missing


def test_every_example_is_run() -> None:
    names = [path.relative_to(ROOT).as_posix() for path in documents()]
    found = {(name, each) for name in names for each in sections(name) if examples(name, each)}
    assert found == set(RUN_BY)
    for (name, heading), module in RUN_BY.items():
        text = (ROOT / module).read_text(encoding="utf-8")
        assert f'examples("{name}", "{heading}")' in text, (name, heading, module)


def commands() -> list[list[str]]:
    """Return the command lines in the code blocks of the documents, and `make` in their text."""
    found = []
    for path in documents():
        text = path.read_text(encoding="utf-8")
        found += [["make", target] for target in re.findall(r"`make ([a-z-]+)`", text)]
        for block in (content for language, content in blocks(text) if not language):
            for line in block.replace("\\\n", " ").splitlines():
                if re.match(r"(make|kfast|python -m) ", line):
                    found.append(shlex.split(line.partition(" | ")[0], comments=True))
    return found


def test_the_commands_shown_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    programs = {"make": 0, "kfast": 0, "python": 0}
    for program, *arguments in commands():
        programs[program] += 1
        if program == "make":
            assert arguments[0] in targets, arguments
        elif program == "kfast":
            name, *options = arguments
            assert name in COMMANDS
            command = root._ROOT.get_command(Context(root._ROOT), name)
            assert command is not None
            assert command.make_context(name, options)
        else:
            assert find_spec(arguments[1]) is not None, arguments
    assert all(programs.values()), programs


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z][a-z-]*):(?! export)", makefile, re.MULTILINE)
    done = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == targets
