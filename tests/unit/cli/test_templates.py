"""Templates: every letter, modifier and escape, and what is refused."""

from __future__ import annotations

import struct

import pytest

from kfast.cli.templates import Operation, literal, parse_template
from kfast.errors import ConfigurationError
from tests.unit.cli.records import START_MS, index_of, written


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("%t-%p@%o\n", "t-3@0\n"),
        ("%T %d %d{ms} %d{s}|", f"{START_MS} 2025-01-01T00:00:00.000Z {START_MS} 1735689600|"),
        ("%d{%Y/%m/%d %H:%M:%S.%f %j %y %a %b}", "2025/01/01 00:00:00.000000 001 25 Wed Jan"),
        ("%d{%F %T%z %Z %s %%}", "2025-01-01 00:00:00+0000 UTC 1735689600 %"),
        ("%k=%K %s=%S %v=%V", "key=3 value=5 value=5"),
        ("%h %H %e %%", "a=1,b=2 2 4 %"),
        ("%k{hex} %v{base64} %s{json}", '6b6579 dmFsdWU= "value"'),
        (r"a\tb\n\r\0\\\x41" + "%%", "a\tb\n\r\0\\A%"),
        ("%t{x}%%{y}", "t{x}%{y}"),
        ("ü%%", "ü%"),
    ],
)
def test_letters(template: str, expected: str) -> None:
    """CL-39: a template writes what its letters stand for, and nothing else."""
    index = index_of([b"value"], [b"key"], (("a", b"1"), ("b", b"2")), leader_epoch=4)
    assert written(template, index).decode() == expected


def test_numbers_in_both_orders() -> None:
    for form, value in (("i", -7), ("q", 1 << 40), ("f", 0.5), ("d", -0.1)):
        name = {"i": "int32", "q": "int64", "f": "float32", "d": "float64"}[form]
        for order, ending in ((">", ""), ("<", "le")):
            index = index_of([struct.pack(order + form, value)])
            assert written(f"%s{{{name}{ending}}}", index).decode() == str(value)
    with pytest.raises(ValueError, match=r"0, 'value', 0"):
        written("%s{int32}", index_of([b"12345"]))


def test_null_is_nothing_unless_it_has_a_text() -> None:
    index = index_of([None], [None], (("a", None),), timestamps=[-1])
    assert written("%k|%s|%K|%S|%T|%d|%h|%e", index) == b"||-1|-1|-1||a=|-1"
    text = written("%k|%s{hex}|%d{%Y}|%h|%s{json}", index, null="NULL")
    assert text == b"NULL|NULL|NULL|a=NULL|null"


def test_json_is_the_cell_of_a_json_line() -> None:
    assert written("%s{json}", index_of([b"\xff"])) == b'{"base64":"/w=="}'
    assert written("%s{json}", index_of([b'{"a": 1}']), value="json") == b'{"a":1}'
    assert written("%s", index_of([b"\x00\x00\x00\x07"]), value="int32") == b"7"


def test_texts_in_a_row_are_one_operation() -> None:
    assert parse_template(r"a\n%%b%p") == [literal(b"a\n%b"), Operation("partition")]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("%x", "there is no %x\ntry: %t topic"),
        ("%", "there is no %\ntry: %t topic"),
        ("%s{hexx}", "%s has no {hexx}\ntry: one of hex, base64, json"),
        ("%s{hex", "has no closing brace"),
        ("%d{%Q}", "there is no %Q in %d{%Q}\ntry: iso, ms, s, or a text"),
        ("%d{year}", "there is no %d{year}\ntry: iso"),
        ("%p\\q", "there is no \\q\ntry: one of \\n"),
        ("%p\\", "there is no \\\ntry"),
        ("%p\\x4", "there is no \\x"),
    ],
)
def test_what_is_refused(template: str, said: str) -> None:
    """CL-40: a letter or modifier that is not there is refused with the list of those that are."""
    with pytest.raises(ConfigurationError) as raised:
        parse_template(template)
    assert said in str(raised.value)


def test_bytes_of_a_shell_that_are_no_text_are_written_as_they_are() -> None:
    """CL-252"""
    (text, key) = parse_template("\udcff%k", null="\udcfe")
    assert (text.text, key.null) == (b"\xff", b"\xfe")
    assert parse_template("%d{\udcff%Y}")[0].text == b"\xff%Y"
