"""Java's regular expressions as names of topics are matched by them."""

from __future__ import annotations

import re

import pytest

from kfast.spark.source.java_pattern import java_pattern

NAMES = ("orders", "Orders-eu", "orders_2", "a.b", "aab", "ab.ab", "x1", "__t", "42")

PATTERNS = {
    r"\p{Alpha}+": ("orders", "aab"),
    r"\p{Lower}\p{Alnum}*": ("orders", "aab", "x1"),
    r"\p{Upper}.*": ("Orders-eu",),
    r"\p{Lu}[\p{L}\p{Pd}]+": ("Orders-eu",),
    r"\pL\p{IsDigit}": ("x1",),
    r"\P{L}+": ("42",),
    r"\p{Punct}+t": ("__t",),
    r"\p{javaLowerCase}+": ("orders", "aab"),
    r"\p{IsLatin}+|\p{script=Common}+": ("orders", "aab", "42"),
    r"\d+": ("42",),
    r"\D+": ("orders", "Orders-eu", "a.b", "aab", "ab.ab", "__t"),
    r"(?<half>[ab]+)\.\k<half>": ("ab.ab",),
    r"(a)(\1)b": ("aab",),
    r"(?i)ORDERS.*": ("orders", "Orders-eu", "orders_2"),
    r"o(?i:RDERS)|X1": ("orders",),
    r"(?i:o)rders(?-i)|A\.B": ("orders",),
    r"(?i)[^a-z]+\d": ("42",),
    r"\Qa.b\E": ("a.b",),
    r"\Qa.b": ("a.b",),
    r"a.b": ("a.b", "aab"),
    r"a\.b": ("a.b",),
    r"[a-z&&[^o]]+": ("aab",),
    r"[a-c[x0-9]]+": ("aab", "x1", "42"),
    r"[\w&&[^\d_]]+": ("orders", "aab"),
    r"[^\p{Lower}.]+": ("42",),
    r"[.\-_\p{Alpha}]+": ("orders", "Orders-eu", "a.b", "aab", "ab.ab", "__t"),
    r"a{2}b": ("aab",),
    r"a{2,}+b": ("aab",),
    r"a++b": ("aab",),
    r"\x61\u0061\x{62}": ("aab",),
    r"(?>a|aa)b": (),
    r"(?!o)[a-z]+": ("aab",),
    r".*(?<=s_)\d": ("orders_2",),
    r"\s|\p{Space}|\R|é": (),
    r"^x1$|^42\z": ("x1", "42"),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_names_that_java_matches(pattern: str) -> None:
    """Q-05: classes, groups, quoting and flags that Python writes otherwise or lacks."""
    matched = tuple(name for name in NAMES if java_pattern(pattern).fullmatch(name))
    assert matched == PATTERNS[pattern]


MALFORMED = {
    "a(": "without its )",
    "a)": "without its (",
    "[a": "ends too early",
    "a\\": "ends too early",
    r"\y": r"\y is not understood",
    r"\p{Nope}": r"\p{Nope} is not understood",
    "(?x)a b": "flag x",
    "(?P<x>a)": "(?P is not a group",
    "a{x": "begins no quantifier",
    "*a": "nothing to repeat",
    "[b-a]": "b- is the beginning of no range",
}


@pytest.mark.parametrize("pattern", MALFORMED)
def test_what_is_not_understood_is_named(pattern: str) -> None:
    """Q-05: and so is what Java refuses."""
    with pytest.raises(ValueError, match=re.escape(MALFORMED[pattern])):
        java_pattern(pattern)
