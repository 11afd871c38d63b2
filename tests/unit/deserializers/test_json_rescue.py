"""H-10: fields of JSON documents without a column, as documents of their own."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import kfast
from kfast.columns.bytes import BytesColumn

SCHEMA: Any = {
    "id": "int64",
    "user": {"name": "string", "home": {"city": "string"}},
    "lines": [{"sku": "string"}],
    "prices": "map<string, struct<v: double>>",
    "tags": ["string"],
    "doc": "raw",
    "deep": kfast.Field("int32", source="a.b.c"),
}


def rescued(
    documents: Sequence[bytes | None], schema: Any = SCHEMA, **options: Any
) -> tuple[list[Any], list[int]]:
    """Return the documents of fields without a column, and how many fields each row has."""
    form = kfast.Json(schema, **options)
    column = BytesColumn.from_values(documents)
    made = form.deserialize_column(column, None, stop_at_first=False)
    assert made.node is not None
    if made.node.unknown is None:
        return [None] * len(documents), [0] * len(documents)
    counts = made.node.unknown.counts
    return form.rescued(column, None, counts).to_list(), counts.tolist()


@pytest.mark.parametrize(
    ("document", "expected", "count"),
    [
        (b'{"id":1}', None, 0),
        (b'{"id":1,"x":2}', '{"x":2}', 1),
        (b' { "x" : [1, {"y": "\\u00e4"}] , "id" : 1 } ', '{"x":[1, {"y": "\\u00e4"}]}', 1),
        (b'{"user":{"age":5,"name":"n","home":{"zip":1}},"z":null}',
         '{"user":{"age":5,"home":{"zip":1}},"z":null}', 3),
        (b'{"lines":[{},{"sku":"a","n":1},{"n":2,"m":[]}]}',
         '{"lines":{"1":{"n":1},"2":{"n":2,"m":[]}}}', 3),
        (b'{"prices":{"eur":{"v":1,"w":2},"usd":{"v":3}}}', '{"prices":{"eur":{"w":2}}}', 1),
        (b'{"tags":["a"],"doc":{"x":1}}', None, 0),
        (b'{"a":{"b":{"c":1,"d":2},"e":3}}', '{"a":{"b":{"d":2},"e":3}}', 2),
        (b'{"user":null,"lines":null,"prices":{},"\\u0069d":1,"\\u0069e":1}', '{"\\u0069e":1}', 1),
        (b'{"id":1,"x":tru,"y":01,"z":"ok"}', '{"x":null,"y":null,"z":"ok"}', 3),
        (b'{"id":"bad","x":1}', None, 0),
        (b"null", None, 0),
        (None, None, 0),
    ],
)  # fmt: skip
def test_documents_of_what_has_no_column(
    document: bytes | None, expected: str | None, count: int
) -> None:
    """H-10: with the objects around each field; items of lists by their numbers."""
    assert rescued([document, b'{"other":1}', document]) == (
        [expected, '{"other":1}', expected],
        [count, 1, count],
    )


def test_framed_values() -> None:
    """H-10: the document begins behind the schema id."""
    documents = [b"\0\0\0\0\7" + b'{"id":1,"x":2}', b"\0\0\0\0\7" + b'{"id":1}']
    assert rescued(documents, {"id": "int64"}, framing="confluent") == (['{"x":2}', None], [1, 0])


def without_columns(value: Any, schema: Any) -> Any:
    """Return what of a value no column is read from; None if that is nothing. A reference."""
    if isinstance(schema, dict) and isinstance(value, dict):
        found = {}
        for name, inner in value.items():
            if name not in schema:
                found[name] = inner
            elif (rest := without_columns(inner, schema[name])) is not None:
                found[name] = rest
        return found or None
    if isinstance(schema, list) and isinstance(value, list):
        rests = {str(n): without_columns(each, schema[0]) for n, each in enumerate(value)}
        return {name: rest for name, rest in rests.items() if rest is not None} or None
    return None


def fields(value: Any, schema: Any) -> int:
    """Return how many fields of a value have no column."""
    if isinstance(schema, dict) and isinstance(value, dict):
        return sum(
            fields(inner, schema[name]) if name in schema else 1 for name, inner in value.items()
        )
    if isinstance(schema, list) and isinstance(value, list):
        return sum(fields(each, schema[0]) for each in value)
    return 0


def test_any_documents_as_a_reference_has_them() -> None:
    """H-06, H-10: keys in any order, more than are expected, spaces, empty objects and lists."""
    rng = random.Random(7)
    schema = {"a": "int64", "b": {"c": "string", "d": {"e": "int64"}}, "f": [{"g": "int64"}]}
    names = ["a", "b", "c", "d", "e", "f", "g", "é", "x" * 60, *(f"n{n}" for n in range(12))]

    def value(kind: Any, depth: int) -> Any:
        if kind == "int64":
            return rng.choice([None, rng.randrange(1000)])
        if kind == "string":
            return rng.choice([None, "text", 'q"\\ä'])
        if isinstance(kind, list):
            return [value(kind[0], depth + 1) for _ in range(rng.randrange(4))]
        if isinstance(kind, dict):
            keys = rng.sample(names, rng.randrange(len(names) // 2))
            return {name: value(kind.get(name), depth + 1) for name in keys}
        return rng.choice([1, None, "s", [], {}, [1, {"a": []}], {"b": {"c": 1}}, True, 1.5])

    made = [value(schema, 0) for _ in range(3000)]
    documents = [json.dumps(each, indent=rng.choice([None, None, 1])).encode() for each in made]
    texts, counts = rescued(documents, schema)
    for text, count, each in zip(texts, counts, made, strict=True):
        assert (None if text is None else json.loads(text)) == without_columns(each, schema)
        assert count == fields(each, schema)
    assert sum(text is None for text in texts) > 10


def test_counts_go_with_the_rows() -> None:
    """H-06: where rows are selected, cut and joined."""
    form = kfast.Json({"id": "int64"})
    documents = [b'{"id":%d%s}' % (n, b',"x":1,"y":2' * (n % 3 == 0)) for n in range(30)]
    column = BytesColumn.from_values(documents)
    made = form.decode_some(column, None, stop_at_first=False, most_bytes=1)
    assert made.node is not None
    assert made.node.unknown is not None
    assert len(made.node.unknown.counts) == made.node.length
    node = form.deserialize_column(column, None, stop_at_first=False).node
    assert node is not None
    assert node.unknown is not None
    assert (node.unknown.total, node.unknown.paths) == (20, ("x", "y"))
    assert node.select(slice(1, 3)).unknown is None
    for rows in (slice(2, 7), np.array([3, 4, 6]), np.array([0, -1, 27])):
        part = node.select(rows)
        assert part.unknown is not None
        ids = part.children[0].data.tolist()
        assert part.unknown.counts.tolist() == [2 * (n % 3 == 0) for n in ids]
    joined = type(node).concat([node.select(slice(1, 3)), node.select(slice(3, 5))])
    assert joined.unknown is not None
    assert joined.unknown.counts.tolist() == [0, 0, 2, 0]
