"""JSON documents and their schemas at random, and an encoder that writes them in every legal way.

Independent of kfast: a value is written by its Python type, with spaces, key orders, escapes and
members that are not wanted, as the grammar of RFC 8259 allows them.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

LETTERS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=40)
NAMES = st.one_of(st.sampled_from(["a", "b", "ab", "id", "na me", "é", '"', "\\", ""]), LETTERS)

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "int8": st.integers(-128, 127),
    "uint64": st.integers(0, 2**64 - 1),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "string": LETTERS,
    "dictionary": st.sampled_from(["x", "yy", "zü"]),
    "bool": st.booleans(),
}


@st.composite
def schemas(draw: Any, depth: int = 3) -> Any:
    """A schema in the form of dicts, lists and names."""
    kinds = list(SCALARS) if depth == 0 else [*SCALARS, "list", "struct", "struct", "map"]
    kind = draw(st.sampled_from(kinds))
    if kind == "list":
        return [draw(schemas(depth - 1))]
    if kind == "map":
        return {str: draw(schemas(depth - 1))}
    if kind == "struct":
        names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
        return {name: draw(schemas(depth - 1)) for name in names}
    return kind


def values(schema: Any) -> st.SearchStrategy[Any]:
    """Values of a schema; a map is a list of pairs, as decoded columns have it."""
    if isinstance(schema, str):
        some: st.SearchStrategy[Any] = SCALARS[schema]
    elif isinstance(schema, list):
        some = st.lists(values(schema[0]), max_size=4)
    elif list(schema) == [str]:
        some = st.dictionaries(LETTERS, values(schema[str]), max_size=4).map(
            lambda entries: list(entries.items())
        )
    else:
        members = st.fixed_dictionaries({name: values(each) for name, each in schema.items()})
        some = members.map(lambda made: {name: made[name] for name in schema})
    return st.none() | some


class Writer:
    """Writes values in a way that a seed chooses."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._style = self._random.randrange(3)

    def document(self, schema: Any, value: Any) -> bytes:
        """Return one document."""
        return (self._space() + self._text(schema, value) + self._space()).encode()

    def _space(self) -> str:
        if self._style == 0:
            return ""
        return "".join(self._random.choices([" ", "\n", "\t", "\r", ""], [4, 1, 1, 1, 9], k=2))

    def _text(self, schema: Any, value: Any) -> str:
        if value is None:
            return "null"
        if isinstance(schema, str):
            if isinstance(value, str):
                return self._string(value)
            if isinstance(value, bool):
                return "true" if value else "false"
            return repr(value)
        if isinstance(schema, list):
            return self._joined("[", [self._text(schema[0], each) for each in value], "]")
        if list(schema) == [str]:
            return self._joined(
                "{", [self._member(key, self._text(schema[str], each)) for key, each in value], "}"
            )
        members = [
            self._member(name, self._text(schema[name], each))
            for name, each in value.items()
            if each is not None or self._random.random() < 0.5
        ]
        members += [self._unwanted(schema) for _ in range(self._random.choice([0, 0, 1, 2]))]
        if self._style == 2:
            self._random.shuffle(members)
        return self._joined("{", members, "}")

    def _unwanted(self, schema: Any) -> str:
        name = f"unwanted {self._random.randrange(3)}"
        assert name not in schema
        skipped = ['"x\\"}"', "[{}, 1.5e3]", '{"a": [null]}', "true", '"é\\ud83d\\ude00"', "-0"]
        return self._member(name, self._random.choice(skipped))

    def _member(self, name: str, text: str) -> str:
        return f"{self._string(name)}{self._space()}:{self._space()}{text}"

    def _joined(self, start: str, parts: list[str], end: str) -> str:
        between = f"{self._space()},{self._space()}"
        return start + self._space() + between.join(parts) + self._space() + end

    def _string(self, text: str) -> str:
        return '"' + "".join(self._letter(letter) for letter in text) + '"'

    def _letter(self, letter: str) -> str:
        short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "/": "\\/", "\b": "\\b"}
        if letter in short and (letter != "/" or self._random.random() < 0.5):
            return short[letter]
        if ord(letter) < 32 or self._random.random() < 0.05:
            units = letter.encode("utf-16-be").hex()
            return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
        return letter
