"""The figures of the README are those of committed runs."""

from __future__ import annotations

from bench.readme import README, updated


def test_the_readme_shows_what_was_measured() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == updated(text), "run `python -m bench.readme`"
