"""No file grows past what fits in one head: longer ones are split by noun."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 600
FOLDERS = ("kfast", "src_pyx", "bench", "tests")
ENDINGS = (".py", ".pyi", ".pyx", ".pxd", ".pxi", ".h")


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in ENDINGS:
                yield path


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_search_sees_the_folder(folder: str) -> None:
    assert any(path.is_relative_to(ROOT / folder) for path in sources())


def test_no_file_is_longer_than_one_head_holds() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in sources()
    }
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}
