"""The formats of administrative commands, byte by byte."""

from __future__ import annotations

import csv
import io
import json
from typing import Final

import click
import pytest

from kfast.cli.options import Common
from kfast.cli.rows import FORMATS, Row, iso, rows_text

NAMES: Final = ("topic", "partition", "replicas", "internal", "newest")
ROWS: Final[list[Row]] = [
    ("orders", 3, [1, 2], False, "2026-01-31T12:00:00.123Z"),
    ('a "b", c', 12, [], True, None),
    ("", None, None, False, "x\ty\\"),
]
EXPECTED: Final = {
    "table": (
        "topic     partition  replicas  internal  newest\n"
        "orders            3  1,2       false     2026-01-31T12:00:00.123Z\n"
        'a "b", c         12  -         true      null\n'
        "-              null  null      false     x\ty\\\n"
    ),
    "json": (
        '[{"topic":"orders","partition":3,"replicas":[1,2],"internal":false,'
        '"newest":"2026-01-31T12:00:00.123Z"},\n'
        '{"topic":"a \\"b\\", c","partition":12,"replicas":[],"internal":true,"newest":null},\n'
        '{"topic":"","partition":null,"replicas":null,"internal":false,"newest":"x\\ty\\\\"}]\n'
    ),
    "jsonl": (
        '{"topic":"orders","partition":3,"replicas":[1,2],"internal":false,'
        '"newest":"2026-01-31T12:00:00.123Z"}\n'
        '{"topic":"a \\"b\\", c","partition":12,"replicas":[],"internal":true,"newest":null}\n'
        '{"topic":"","partition":null,"replicas":null,"internal":false,"newest":"x\\ty\\\\"}\n'
    ),
    "csv": (
        "topic,partition,replicas,internal,newest\n"
        'orders,3,"1,2",false,2026-01-31T12:00:00.123Z\n'
        '"a ""b"", c",12,"",true,\n'
        '"",,,false,x\ty\\\n'
    ),
    "tsv": (
        "topic\tpartition\treplicas\tinternal\tnewest\n"
        "orders\t3\t1,2\tfalse\t2026-01-31T12:00:00.123Z\n"
        'a "b", c\t12\t\ttrue\t\\N\n'
        "\t\\N\t\\N\tfalse\tx\\ty\\\\\n"
    ),
}
HOSTILE: Final = "\x1b]0;title\x07\x9b31m\u202ex\n"


@pytest.mark.parametrize("form", FORMATS)
def test_formats(form: str) -> None:
    """CL-60: the same names in every format; null, the empty text and lists are told apart."""
    assert rows_text(NAMES, ROWS, form, is_terminal=False) == EXPECTED[form]


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_found(form: str) -> None:
    """CL-60: the heading, or an empty array, or nothing."""
    heading = {"json": "[]\n", "jsonl": "", "csv": "a,b\n", "tsv": "a\tb\n", "table": "a  b\n"}
    assert rows_text(("a", "b"), [], form, is_terminal=False) == heading[form]


@pytest.mark.parametrize("form", FORMATS)
def test_a_terminal_gets_no_control_characters(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-60: escapes on a terminal, in every format; the same JSON; as it is elsewhere."""
    monkeypatch.setenv("NO_COLOR", "1")
    text = rows_text(("group",), [(HOSTILE,)], form, is_terminal=True)
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
    elsewhere = rows_text(("group",), [(HOSTILE,)], form, is_terminal=False)
    if form in {"json", "jsonl"}:
        shown, plain = json.loads(text), json.loads(elsewhere)
        assert shown == plain == ([{"group": HOSTILE}] if form == "json" else {"group": HOSTILE})
    else:
        assert "\\x1b" in text
        assert "\x1b" in elsewhere
    if form == "csv":
        assert list(csv.reader(io.StringIO(elsewhere, newline=""))) == [["group"], [HOSTILE]]


def test_a_table_fits_a_terminal_and_its_heading_is_bold(monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-60: cut and bold on a terminal only, plain with NO_COLOR and TERM=dumb."""
    for name in ("NO_COLOR", "CLICOLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    rows = [("x" * 100, 7)]
    text = rows_text(("topic", "lag"), rows, "table", is_terminal=True, width=40)
    assert text.splitlines()[0] == "\x1b[1m" + "topic".ljust(37) + "lag\x1b[0m"
    assert len(text.splitlines()[1]) == 40
    assert len(rows_text(("topic", "lag"), rows, "table", is_terminal=False).splitlines()[1]) == 105
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in rows_text(("topic",), [("x",)], "table", is_terminal=True, width=40)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (1_769_860_800_123, "2026-01-31T12:00:00.123Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, None),
        (None, None),
        ((1 << 63) - 1, (1 << 63) - 1),
    ],
)
def test_timestamps(ms: int | None, text: str | int | None) -> None:
    """CL-60: a timestamp outside of the calendar stays a number."""
    assert iso(ms) == text


def test_headings_are_bold_as_asked_for() -> None:
    """CL-60: --color has precedence over where the table goes."""
    for color, is_terminal, bold in (("always", False, True), ("never", True, False)):
        with click.Context(click.Command("x"), obj=Common(color=color)):
            text = rows_text(["a"], [["b"]], "table", is_terminal=is_terminal, width=80)
        assert text.startswith("\x1b[1m") is bold
