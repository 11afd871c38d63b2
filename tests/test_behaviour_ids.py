"""Every behaviour kfast promises is named by a test.

``behaviour_ids.txt`` lists the behaviours. A test names the ones it proves in its name, its
docstring or a comment; this module looks for the ids in the text of the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PROMISES = TESTS / "behaviour_ids.txt"
ID = re.compile(r"\b(?:[A-Z]-\d\d|(?:CL|TC|RC)-\d{2,3})\b")
LINE = re.compile(rf"(?P<id>{ID.pattern}) (?P<what>\S.*)")


def promises(text: str) -> dict[str, str]:
    """Return what is promised, by id, of every line but comments and empty ones."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        assert match is not None, f"not an id and a description: {line}"
        assert match["id"] not in found, f"listed twice: {match['id']}"
        found[match["id"]] = match["what"]
    return found


def ids_named(files: Iterable[Path]) -> set[str]:
    """Return the ids that occur in any of the files."""
    return {name for path in files for name in ID.findall(path.read_text(encoding="utf-8"))}


def test_every_promise_is_tested() -> None:
    named = ids_named(path for path in TESTS.rglob("*.py") if path != Path(__file__).resolve())
    listed = promises(PROMISES.read_text(encoding="utf-8"))
    missing = [f"{name} {what}" for name, what in listed.items() if name not in named]
    assert not missing, "no test names:\n" + "\n".join(missing)


def test_the_list_is_complete_within_its_groups() -> None:
    listed = promises(PROMISES.read_text(encoding="utf-8"))
    for letter in {name[0] for name in listed if name[1] == "-"}:
        numbers = sorted(int(name[2:]) for name in listed if name.startswith(f"{letter}-"))
        assert numbers == list(range(1, len(numbers) + 1)), letter


def test_the_parser() -> None:
    text = "# x\n\nA-01 a thing\nCL-101 a command"
    assert promises(text) == {"A-01": "a thing", "CL-101": "a command"}


def test_the_search(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        '"""X-01, X-02, TC-7, CL-07, CL-100: x."""\n# UTF-16 A-1 AB-03 X-044', encoding="utf-8"
    )
    assert ids_named(tmp_path.glob("*.py")) == {"X-01", "X-02", "CL-07", "CL-100"}
