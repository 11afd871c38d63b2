"""Words that do not come back: sources and documents use Kafka's words and plain English.

A phrase is looked for in comments, docstrings, messages and names, also across the lines of a
paragraph. To extend the list, add a row to ``PHRASES``; a place where the word is right goes into
``ALLOWED`` with its reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = ("kfast", "src_pyx", "pyspark_kfast", "examples")
ENDINGS: Final = (".py", ".pyi", ".pyx", ".pxd", ".pxi", ".h")

# What is written instead. A name counts by its words: `told` is found in `is_told` too.
PHRASES: Final = {
    "nobody": "the actor: no caller, no member, no thread",
    "somebody": "the actor: the broker, the group coordinator, the application thread",
    "anybody": "the actor: the caller, another member",
    "everybody": "all members, every caller",
    "someone": "the actor: another member, the caller",
    "anyone": "the actor: the caller, another member",
    "told": "reported, sent, notified",
    "tell|tells|telling": "report, send, return; 'distinguish' for differences",
    "hear|hears|heard": "receive, received",
    "trouble": "error, reason",
    "gravest": "most severe",
    "mend|mends|mended": "fix, retry, recover",
    "hungry": "wants more data, below the prefetch limit",
    "in vain": "without a result, timed out, failed",
    "good-?bye": "LeaveGroup request, leave heartbeat",
    "behind (?:its|his|her|the|their|our|your) backs?": "without notice, concurrently",
    "changes? of mind": "cancelled leave, rejoin",
    "looks? after": "owns, manages",
    "what all": "the things themselves",
    "place in (?:a|the|its|their) group": "membership",
    "gossip": "metadata, notification",
    "quarrel": "conflict",
    "shar(?:es|ed|ing) out": "assigns",
    "stranger": "unknown member, unknown broker",
}

# (file, phrase as found, why it is right there)
ALLOWED: Final[tuple[tuple[str, str, str], ...]] = (
    ("kfast/cli/binary.py", "tell", "the method of a file"),
    ("kfast/local/node.py", "tell", "the method of a file"),
    ("kfast/table/compaction/merging.py", "tell", "the method of a file"),
    ("kfast/table/dead_letters.py", "tell", "the method of a file"),
    ("kfast/table/range_files.py", "tell", "the method of a file"),
)


def pattern(phrases: str) -> re.Pattern[str]:
    """Return what finds the phrases: whole words, also as a part of a name, also across lines."""
    words = phrases.replace(" ", r"[\s#/*]+")
    return re.compile(rf"(?<![a-z])(?:{words})(?![a-z])", re.IGNORECASE)


ANY: Final = pattern("|".join(PHRASES))
PATTERNS: Final = tuple(map(pattern, PHRASES))


def found_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield every phrase of a text, with its line."""
    for each in PATTERNS if ANY.search(text) else ():
        for match in each.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, re.sub(r"[\s#/*]+", " ", match[0].lower())


def files() -> list[str]:
    """Return what is looked at: the package, its compiled half and the documents."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    names = [path for path in paths if path.suffix in ENDINGS]
    documents = (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))
    return sorted(path.relative_to(ROOT).as_posix() for path in (*names, *documents))


FILES: Final = files()


def test_the_search_sees_the_files() -> None:
    assert {"README.md", "docs/spark.md", "kfast/consumer/fetch/buffer.py"} <= set(FILES)
    assert any(name.endswith(".pyx") for name in FILES)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("so nobody waits", [(1, "nobody")]),
        ("a\n# b\n    is_told = 1", [(3, "told")]),
        ("it changes Behind\n    # its back", [(1, "behind its back")]),
        ("Nobody's, anybodyish, retold, mendable, amend", [(1, "nobody")]),
        ("all that the broker reports", []),
    ],
)
def test_the_search_finds(text: str, found: list[tuple[int, str]]) -> None:
    assert list(found_in(text)) == found


def test_words() -> None:
    allowed = {(name, phrase) for name, phrase, _ in ALLOWED}
    lines = [
        f"{name}:{line}: {phrase}"
        for name in FILES
        for line, phrase in found_in((ROOT / name).read_text(encoding="utf-8"))
        if (name, phrase) not in allowed
    ]
    advice = "\n".join(f"    {phrase}: {instead}" for phrase, instead in PHRASES.items())
    assert not lines, "\n".join([*lines, "write instead:", advice])


def test_what_is_allowed_is_there() -> None:
    """An entry for what is gone would allow it again."""
    for name, phrase, reason in ALLOWED:
        assert reason
        text = (ROOT / name).read_text(encoding="utf-8")
        assert phrase in {each for _, each in found_in(text)}, (name, phrase)


# --- names ----------------------------------------------------------------------------------------

NO_NAMES: Final = frozenset({"found", "each", "made", "wanted", "part", "given", "known", "what"})
"""They say how a value came about; a name says what it is: ``batch``, ``offset``, ``schema``."""

# (file, name, why it is right there)
NAMED_SO: Final[tuple[tuple[str, str, str], ...]] = (
    ("kfast/errors/base.py", "found", "the keyword of KafkaError"),
    ("kfast/errors/codes.py", "found", "passed on to KafkaError"),
    ("kfast/client/diagnosis.py", "found", "passed on to KafkaError"),
    ("kfast/security/tls/stores.py", "found", "passed on to KafkaError"),
    ("kfast/security/tls_errors.py", "found", "passed on to KafkaError"),
    ("kfast/deserializers/deserializer.py", "found", "the field that becomes KafkaError's keyword"),
    ("kfast/schemas/schema.py", "given", "the parameter of the public Schema"),
)


def bare_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the variables, parameters, functions and classes that have one of these names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = node.name
        else:
            continue
        if name.lower() in NO_NAMES:
            yield node.lineno, name


def test_bare_names_are_seen() -> None:
    source = "def part(given):\n    for each in given:\n        found = [a for a in each.found]\n"
    assert sorted(bare_names(source)) == [(1, "given"), (1, "part"), (2, "each"), (3, "found")]


def test_names_say_what_a_value_is() -> None:
    allowed = {(name, word) for name, word, _ in NAMED_SO}
    places = [
        (name, line, word)
        for name in FILES
        if name.startswith("kfast/") and name.endswith(".py")
        for line, word in bare_names((ROOT / name).read_text(encoding="utf-8"))
    ]
    lines = [f"{name}:{line}: {word}" for name, line, word in places if (name, word) not in allowed]
    assert not lines, "\n".join(lines)
    assert allowed == {(name, word) for name, _, word in places}  # no entry for what is gone


def test_no_summary_line_is_a_riddle() -> None:
    """A docstring names the value that is returned."""
    lines = [
        f"{name}:{number}: {line.strip()}"
        for name in FILES
        if name.endswith(ENDINGS)
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1)
        if re.match(r'\s*"""(Return|Yield) what\b', line)
    ]
    assert not lines, "\n".join(lines)
