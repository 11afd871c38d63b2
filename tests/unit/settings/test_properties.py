"""The text of .properties files, as Java reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfast.settings.files import read_properties


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a.b=c", [("a.b", "c", 1)]),
        ("a.b: c", [("a.b", "c", 1)]),
        ("a.b c", [("a.b", "c", 1)]),
        ("a.b \t=\t c  \n", [("a.b", "c", 1)]),
        ("  a.b=c=d:e f", [("a.b", "c=d:e f", 1)]),
        ("a.b", [("a.b", "", 1)]),
        ("a.b=\nc=", [("a.b", "", 1), ("c", "", 2)]),
        ("# x=1\n! y=2\n\n \t\nz=3", [("z", "3", 5)]),
        ("#x=1\\\ny=2", [("y", "2", 2)]),
        ("a=b,\\\n    c,\\\n  d\ne=f", [("a", "b,c,d", 1), ("e", "f", 4)]),
        ("a=b\\\\\nc=d", [("a", "b\\", 1), ("c", "d", 2)]),
        ("a=b\\\n# no comment", [("a", "b# no comment", 1)]),
        ("a=b\\", [("a", "b", 1)]),
        ("a\\ b\\=c=d", [("a b=c", "d", 1)]),
        ('a=\\t\\n\\r\\f\\x\\"', [("a", '\t\n\r\fx"', 1)]),
        ("a=\\u00fc\\u20AC", [("a", "ü€", 1)]),
        ("a=\\ud83d\\ude00", [("a", "\N{GRINNING FACE}", 1)]),
        ("a=1\r\nb=2\rc=3", [("a", "1", 1), ("b", "2", 2), ("c", "3", 3)]),
        ("a=1\na=2", [("a", "1", 1), ("a", "2", 2)]),
        ("", []),
    ],
)
def test_entries_are_read_as_java_reads_them(
    text: str, entries: list[tuple[str, str, int]]
) -> None:
    """CL-90"""
    assert [*read_properties(text)] == entries


@pytest.mark.parametrize(("text", "line"), [("a=1\nb=\\u12x4", 2), ("a=\\ud83d", 1)])
def test_an_escape_that_is_none_is_an_error_with_its_line(text: str, line: int) -> None:
    """CL-90"""
    with pytest.raises(ValueError, match=r"hexadecimal|half") as caught:
        [*read_properties(text)]
    assert caught.value.args[0] == line


def written(text: str) -> str:
    """Return a text as Java stores it."""
    escaped = (
        text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return "".join(f"\\{char}" if char in "=:#! \f" else char for char in escaped)


WORDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x1c\x1d\x1e\x1f\x0b\x85")
)


@given(st.dictionaries(WORDS.filter(bool), WORDS))
def test_what_is_stored_is_read_back(settings: dict[str, str]) -> None:
    """CL-90"""
    text = "".join(f"{written(key)}={written(value)}\n" for key, value in settings.items())
    assert {key: value for key, value, _ in read_properties(text)} == settings
