"""Tables of text and HTML, of data that may be hostile."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfast.columns.table_text import (
    cell_text,
    cut,
    html_table,
    number_text,
    size_text,
    text_table,
    values_text,
    width_of,
)
from tests.soaking import examples


class Broken:
    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (b"text", "text"),
        ("süß".encode(), "süß"),
        (b"", ""),
        (b"\x00\x01", 'b"\\x00\\x01"'),
        (b'\xff"', 'b"\\xff\\""'),
        (b"x" * 40, "x" * 31 + "…"),
        ("ß".encode() * 100, "ß" * 31 + "…"),
        ("日本".encode(), "日本"),
        ("日" * 20, "日" * 15 + "…"),
        ("\x1b[31m\x07\u202e\x9b", "\\x1b[31m\\x07\\u202e\\x9b"),
        ("a\nb\tc", "a\\x0ab\\x09c"),
        ("\ud800", "\\ud800"),
        (12.5, "12.5"),
        (np.float32(0.1), "0.1"),
        (Broken(), "<Broken: ZeroDivisionError>"),
        (np.array((1, b"x"), "i4,S1")[()], "(1, b'x')"),
    ],
)
def test_cells(value: object, expected: str) -> None:
    assert cell_text(value) == expected


def test_characters_that_take_two_columns_or_none() -> None:
    assert [width_of(text) for text in ("abc", "日本", "e\u0301", "\uff57")] == [3, 4, 1, 2]
    assert cut("日本語", 5) == "日本…"
    assert cut("abc", 3) == "abc"


def test_a_table_is_aligned_and_fits() -> None:
    rows = [["1", "日本", "x" * 30], ["100", "k", "short"]]
    wide = text_table(["offset", "key", "value"], rows, right=[True, False, False], width=80)
    assert wide.splitlines() == [
        "offset  key   value",
        "     1  日本  " + "x" * 30,
        "   100  k     short",
    ]
    narrow = text_table(["offset", "key", "value"], rows, right=[True, False, False], width=24)
    assert narrow.splitlines()[1] == "     1  日本  xxxxxxxxx…"
    assert max(map(width_of, narrow.splitlines())) == 24
    tiny = text_table(["offset", "key", "value"], rows, right=[True, False, False], width=1)
    assert "xxxxx…" in tiny


def test_times_are_cut_last() -> None:
    headings, row = ["timestamp", "key", "value"], ["2026-01-31 12:00:00.000", "k" * 32, "v" * 32]
    right = [False] * 3
    assert "2026-01-31 12:00:00.000  kkkk" in text_table(headings, [row], right=right, width=60)
    assert "2026-01-31 12:…  kkkkk…  vvvvv…" in text_table(headings, [row], right=right, width=31)


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    line = text_table(["a"], [["x" * 60]], right=[False]).splitlines()[1]
    assert line == "x" * 19 + "…"


class Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert attrs == []
        self.tags.add(tag)
        self.cells.append("")

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data


@given(st.lists(st.text(max_size=40), min_size=1, max_size=5))
@examples(100)
def test_html_shows_text_as_text(cells: list[str]) -> None:
    shown = [cell_text(cell) for cell in cells]
    texts = Texts()
    texts.feed(html_table("<b>&", shown, [shown, ["<script>alert(1)</script>"]]))
    texts.close()
    assert texts.tags <= {"table", "caption", "tr", "th", "td"}
    found = [text for text in texts.cells if text]
    assert found == ["<b>&", *filter(None, [*shown, *shown]), "<script>alert(1)</script>"]


@given(st.one_of(st.text(), st.binary(), st.floats(), st.none()))
@examples(200)
def test_no_cell_is_wide_or_moves_the_cursor(value: object) -> None:
    text = cell_text(value)
    assert width_of(text) <= 32
    assert text.isprintable() or not {"\x1b", "\n", "\r", "\u202e", "\x9b"} & set(text)
    text.encode()


def test_numbers_and_sizes() -> None:
    assert [number_text(n) for n in (0, 999, 1_665_415)] == ["0", "999", "1 665 415"]
    assert [size_text(n) for n in (0, 999, 1_500, 182_000_000, 3 * 10**12)] == [
        *("0 B", "999 B", "1.5 kB", "182 MB", "3.0 TB")
    ]


def test_the_first_values_of_a_column() -> None:
    assert values_text([b"a", None, b"\xff"]) == 'a, null, b"\\xff"'
    assert values_text(str(n) for n in range(6)) == "0, 1, 2, 3, 4, …"
    assert values_text(["x" * 20]) == "x" * 15 + "…"
