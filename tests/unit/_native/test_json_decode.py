"""JSON rows: keys, defaults, nulls, errors, lifted fields, duplicates, nesting, framing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kfast._native import json_decode
from kfast.columns.bytes import BytesColumn
from kfast.errors import ConfigurationError
from kfast.schemas.field import Field
from kfast.schemas.json_plan import json_plan
from kfast.schemas.schema import Schema
from kfast.schemas.types import Kind
from tests.reference.built_values import failures, values_of
from tests.unit._native.json_rows import (
    DEPTH,
    DUPLICATE,
    EMPTY,
    MAGIC,
    MISSING,
    RANGE,
    SYNTAX,
    TOO_LARGE,
    TRAILING,
    TRUNCATED,
    TYPE,
    UTF8,
    decode,
    one,
)

OBJECT = {"id": "int64", "name": "string", "flag": Field("bool", default=True)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"id":1,"name":"a","flag":false}', (1, "a", False)),
        (b'{"flag":false,"name":"a","id":1}', (1, "a", False)),
        (b' { "id" : 1 , "name" : "a" } ', (1, "a", True)),
        (b'{"id":1,"flag":null}', (1, None, None)),
        (b"{}", (None, None, True)),
        (rb'{"\u0069d":7,"na\u006de":"x"}', (7, "x", True)),
        (b'{"id2":1,"i":2,"ID":3,"":4}', (None, None, True)),
        (b'{"x":{"id":5},"id":6,"y":[{"id":7}]}', (6, None, True)),
        (b'{"x":tru,"y":01,"id":6}', (6, None, True)),
        (b'{"x":1234567890123456,"y":-12345678901234567.5e-3,"id":6}', (6, None, True)),
        (b'{"x":1234567890123456', (TRUNCATED, 21)),
        (b'{"id":1,"id":1}', (DUPLICATE, 8)),
        (b'{"id":null,"id":1}', (DUPLICATE, 11)),
        (rb'{"id":1,"\u0069d":1}', (DUPLICATE, 8)),
        (b'{"x":1,"x":2}', (None, None, True)),
        (b'{"id":1,}', (SYNTAX, 8)),
        (b'{,"id":1}', (SYNTAX, 1)),
        (b'{"id"}', (SYNTAX, 5)),
        (b'{"id":}', (SYNTAX, 6)),
        (b'{"id":1 "name":2}', (SYNTAX, 8)),
        (b'{"id":1', (TRUNCATED, 7)),
        (b'{"id":', (TRUNCATED, 6)),
        (b'{"id', (TRUNCATED, 4)),
        (b'{"name":"}', (TRUNCATED, 10)),
        (b"{", (TRUNCATED, 1)),
        (b'{"id":1}{"id":2}', (TRAILING, 8)),
        (b'{"id":1}\n{"id":2}', (TRAILING, 9)),
        (b'{"id":1}x', (TRAILING, 8)),
        (b'{"id":1}]', (TRAILING, 8)),
        (b'{"x":"\xff","id":1}', (UTF8, 6)),
        (b'{"\xff":1}', (UTF8, 2)),
        (b'{"x":"\\q"}', (SYNTAX, 7)),
        (b'{"x":"\\ud800"}', (UTF8, 6)),
        (b'{"x":"a\nb"}', (SYNTAX, 7)),
        (b'{"x":[1}', (SYNTAX, 7)),
        (b'{"x":[1,]}', (SYNTAX, 8)),
        (b'{"x":{"a":1,}}', (SYNTAX, 12)),
        (b'{"x":{"a"}}', (SYNTAX, 9)),
        (b"{\"x\":'a'}", (SYNTAX, 5)),
        (b'{"x":}', (SYNTAX, 5)),
        (b"[]", (TYPE, 0)),
        (b'"x"', (TYPE, 0)),
        (b"null", None),
    ],
    ids=str,
)
def test_objects(text: bytes, expected: Any) -> None:
    """TC-05: keys in any order, escaped, unknown, repeated and missing ones."""
    found = one(OBJECT, text)
    if isinstance(found, dict):
        found = tuple(found.values())
    assert found == expected


def test_keys_that_are_prefixes_and_long() -> None:
    """TC-05"""
    names = ["a", "ab", "abc", "b" * 7, "b" * 8, "b" * 9, "c" * 40, "c" * 41, "é", '"', "\\", "\0"]
    schema = dict.fromkeys(names, "int32")
    document = {name: i for i, name in enumerate(names)}
    shuffled = dict(sorted(document.items(), reverse=True))
    texts = [json.dumps(each).encode() for each in (document, shuffled, document) for _ in range(3)]
    texts += [json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()] * 3
    values, errors = decode(schema, *texts)
    assert not errors
    assert all(value == document for value in values)


def test_order_of_keys_is_learned_and_changes() -> None:
    """TC-06: whatever the order of keys was before, each row has its own values."""
    generator = random.Random(5)
    names = [f"k{i}" for i in range(12)]
    rows = []
    for i in range(400):
        picked = generator.sample([*names, "x", "y", "z" * 30], generator.randrange(1, 15))
        if i % 50 < 25:
            picked.sort()
        rows.append({name: generator.randrange(1000) for name in picked})
    values, errors = decode(
        dict.fromkeys(names, "int32"), *(json.dumps(row).encode() for row in rows)
    )
    assert not errors
    assert values == [{name: row.get(name) for name in names} for row in rows]


@pytest.mark.parametrize("is_last", [False, True])
def test_duplicates_whatever_order_was_learned(is_last: bool) -> None:
    """TC-11: a key that stands twice is found among rows whose keys are all as expected."""
    generator = random.Random(8)
    names = ["a", "b", "c", "d"]
    shapes: list[list[str]] = [names, names[1:], names[::-1]]
    rows = []
    for i in range(600):
        keys = list(shapes[i // 100 % 3])
        if generator.random() < (0.9 if i % 200 > 150 else 0.1):
            keys.insert(generator.randrange(5), generator.choice(names))
        rows.append([(key, generator.randrange(100)) for key in keys])
    texts = ["{" + ",".join(f'"{key}":{value}' for key, value in row) + "}" for row in rows]
    values, errors = decode(
        dict.fromkeys(names, "int32"), *map(str.encode, texts), duplicates_last=is_last
    )
    are_good = [is_last or len(dict(row)) == len(row) for row in rows]
    assert [each.row for each in errors] == [i for i, good in enumerate(are_good) if not good]
    assert all(each.code == DUPLICATE for each in errors)
    assert values == [
        {name: dict(row).get(name) for name in names} if good else None
        for row, good in zip(rows, are_good, strict=True)
    ]


def test_more_keys_than_are_remembered() -> None:
    document = {f"key{i}": i for i in range(500)}
    schema = {"key3": "int32", "key499": "int32"}
    values, errors = decode(schema, *[json.dumps(document).encode()] * 3)
    assert not errors
    assert values == [{"key3": 3, "key499": 499}] * 3


def test_required_and_defaults() -> None:
    """TC-07: a missing key or null is null, the default, or makes the row bad."""
    schema = {
        "a": "int8 not null",
        "b": Field("int8", required=True, default=5),
        "c": Field(["string"], default=["x", "y"]),
        "d": Field({"e": "int8 not null", "f": Field("string", default="z")}, default={"e": 1}),
    }
    full = {"a": 1, "b": 5, "c": ["x", "y"], "d": {"e": 1, "f": "z"}}
    values, errors = decode(
        schema,
        b'{"a":1}',
        b'{"a":1,"b":null,"c":null,"d":null}',
        b"{}",
        b'{"a":null}',
        b'{"a":2,"d":{}}',
        b'{"a":3,"d":{"e":4}}',
        None,
    )
    assert values[0] == full
    assert values[1] == {"a": 1, "b": 5, "c": None, "d": None}
    assert values[2:5] == [None] * 3
    assert values[5] == full | {"a": 3, "d": {"e": 4, "f": "z"}}
    assert values[6] is None
    assert [(e.row, e.code, e.position) for e in errors] == [
        (2, MISSING, 1),
        (3, MISSING, 5),
        (4, MISSING, 12),
    ]
    assert [e.node for e in errors] == [1, 1, 6]


def test_null_documents_and_tombstones() -> None:
    """TC-08: a tombstone and the document null are null rows, an empty value is bad."""
    documents = (None, b"null", b" null ", b"", b"{}")
    values, errors = decode({"a": "int8"}, *documents)
    assert values == [None, None, None, None, {"a": None}]
    assert [(e.row, e.code) for e in errors] == [(3, EMPTY)]
    values, errors = decode(Field({"a": "int8"}, required=True), *documents)
    assert [(e.row, e.code) for e in errors] == [(1, MISSING), (2, MISSING), (3, EMPTY)]


def test_rows_equal_messages_and_bad_rows_leave_nothing() -> None:
    """TC-09: each bad row is rolled back with its strings, lists and dictionaries, and named."""
    schema = {
        "s": "string",
        "l": [{"x": ["string"], "k": "dictionary"}],
        "m": "map<string, string>",
        "i": "int8",
    }
    lines: list[Any] = [{"x": ["p", "q"], "k": "u"}]
    good: dict[str, Any] = {"s": "abc", "l": lines, "m": {"a": "b"}, "i": 1}
    bad = good | {"l": [*lines, {"x": ["r" * 50], "k": "new"}], "i": 1000}
    rows = [good, bad, good, bad, bad, good]
    texts = [json.dumps(each).encode() for each in rows]
    expected = good | {"m": [("a", "b")]}
    values, errors = decode(schema, *texts)
    assert values == [None if each is bad else expected for each in rows]
    assert [(e.row, e.code, e.node) for e in errors] == [
        (1, RANGE, 10),
        (3, RANGE, 10),
        (4, RANGE, 10),
    ]
    values, errors = decode(schema, *texts, mode=0)
    assert values == [expected]
    assert [e.row for e in errors] == [1]


def test_path_of_an_error() -> None:
    """TC-09"""
    schema = {"l": [{"m": {str: ["int8"]}}]}
    _, errors = decode(
        schema, b'{"l":[{},{"m":{"a":[1,2],"b":[1,"x"]}}]}', b'{"l":[{"m":{"a":[]}},7]}'
    )
    assert [(e.node, e.indexes, e.code) for e in errors] == [(6, (1, 1), TYPE), (2, (1,), TYPE)]


def test_deep_lists_have_eight_indexes() -> None:
    schema: Any = "int8"
    for _ in range(12):
        schema = [schema]
    _, errors = decode(schema, b"[" * 12 + b"1,x" + b"]" * 12)
    assert errors[0].indexes == (0,) * 8


def test_lifted_fields() -> None:
    """TC-10: a source renames a key or lifts a path, and objects on the way have no column."""
    schema = {
        "price": Field("float64", source="order.price"),
        "who": Field("string", source="order.by.name", default="?"),
        "id": Field("int64", source="ID"),
        "dot": Field("int8", source=("a.b",)),
        "inner": {"x": Field("int8", source="p.q")},
    }
    documents: list[tuple[bytes, Any]] = [
        (
            b'{"order":{"price":1.5,"by":{"name":"x"}},"ID":1,"a.b":2,"inner":{"p":{"q":3}}}',
            {"price": 1.5, "who": "x", "id": 1, "dot": 2, "inner": {"x": 3}},
        ),
        (
            b'{"order":{"by":{}},"price":9,"id":5}',
            {"price": None, "who": "?", "id": None, "dot": None, "inner": None},
        ),
        (
            b'{"order":null,"inner":{}}',
            {"price": None, "who": "?", "id": None, "dot": None, "inner": {"x": None}},
        ),
        (b'{"order":[1]}', TYPE),
        (b'{"order":{"price":1},"order":{"by":null}}', DUPLICATE),
        (b'{"order":{"by":{},"by":{}}}', DUPLICATE),
    ]
    values, errors = decode(schema, *(text for text, _ in documents))
    codes = {e.row: e.code for e in errors}
    assert [codes.get(row, value) for row, value in enumerate(values)] == [e for _, e in documents]
    last, errors = decode(schema, *(text for text, _ in documents[4:]), duplicates_last=True)
    assert not errors
    assert [row["price"] for row in last] == [None, None]


@pytest.mark.parametrize("duplicates_last", [False, True])
def test_null_in_place_of_an_object_on_the_way_to_columns(duplicates_last: bool) -> None:
    """TC-10: what it would have had is missing, also where its key is all that is wanted."""
    schema = {
        "price": Field("float64", source="order.price"),
        "who": Field("string", source="order.by.name", default="?"),
    }
    nothing = {"price": None, "who": "?"}
    documents = {
        b'{"order":null}': nothing,
        b'{"order":{"price":1,"by":null}}': {"price": 1.0, "who": "?"},
        b'{"order":{"by":null}}': nothing,
        b'{"order":{"price":1,"by":{"name":"x"}}}': {"price": 1.0, "who": "x"},
        b'{"order" : null }': nothing,
        b"{}": nothing,
    }
    values, errors = decode(schema, *documents, duplicates_last=duplicates_last)
    assert not errors
    assert values == [*documents.values()]
    twice = [b'{"order":null,"order":{"price":2}}', b'{"order":{"price":2},"order":null}']
    values, errors = decode(schema, *twice, duplicates_last=duplicates_last)
    assert [each.code for each in errors] == ([] if duplicates_last else [DUPLICATE, DUPLICATE])
    if duplicates_last:
        assert values == [{"price": 2.0, "who": "?"}, nothing]
    required = {"price": Field("float64", source="order.price", required=True)}
    values, errors = decode(required, b'{"order":null}', b'{"order":{"price":3}}')
    assert values == [None, {"price": 3.0}]
    assert [(each.row, each.code, each.position) for each in errors] == [(0, MISSING, 9)]


def test_two_fields_of_one_key() -> None:
    for second in ("a", "a.b"):
        root = Schema({"a": "raw", "b": Field("raw", source=second)}).root
        with pytest.raises(ConfigurationError, match='which "a" reads, too'):
            json_plan(root)
    root = Schema({"x": Field("int8", source="a.b"), "a": "raw"}).root
    with pytest.raises(ConfigurationError, match='which "x" reads, too'):
        json_plan(root)


def test_duplicates_last() -> None:
    """TC-11: with duplicates="last" the last value of a key counts, as json and orjson have it."""
    schema = {"a": "int8", "l": [{"b": "string"}], "m": {str: {str: "int8"}}}
    document = (
        b'{"a":1,"l":[{"b":"x"},{}],"a":null,"m":{"p":{"x":1,"x":2},"q":{},"p":{"y":5}},'
        b'"l":[{"b":"u","b":"w"}]}'
    )
    values, errors = decode(schema, document, document, duplicates_last=True)
    assert not errors
    assert values == [{"a": None, "l": [{"b": "w"}], "m": [("q", []), ("p", [("y", 5)])]}] * 2


def test_a_map_of_many_keys() -> None:
    entries = {f"key-{i}": i % 100 for i in range(3000)}
    text = json.dumps(entries).encode()
    values, errors = decode("map<string, int8>", text, text[:-1] + b',"key-7":1}')
    assert values[0] == list(entries.items())
    assert [e.code for e in errors] == [DUPLICATE]
    values, errors = decode("map<string, int8>", text[:-1] + b',"key-7":99}', duplicates_last=True)
    assert dict(values[0]) == entries | {"key-7": 99}
    assert len(values[0]) == 3000


def test_depth() -> None:
    """TC-12: documents deeper than max_depth are bad rows, wanted or skipped, at any size."""
    for schema in ({"a": "int8"}, {"x": "raw"}, "raw"):
        deep = b'{"x":' + b"[" * 63 + b"]" * 63 + b"}"
        assert decode(schema, deep)[1] == []
        deeper = b'{"x":' + b"[" * 64 + b"]" * 64 + b"}"
        assert [(e.code, e.position) for e in decode(schema, deeper)[1]] == [(DEPTH, 68)]
        bomb = b'{"x":' + b'[{"x":' * 200_000
        assert [e.code for e in decode(schema, bomb)[1]] == [DEPTH]
        assert decode(schema, deeper, max_depth=1024)[1] == []
    assert [e.code for e in decode([["int8"]], b"[[1]]", max_depth=1)[1]] == [DEPTH]


def test_prefixes_and_codes_of_rows() -> None:
    """TC-14: positions count from the first byte of the prefix, and a code needs no document."""
    documents = [b'\7{"a":1}', b'{"a":2}', b"\7\7", b'\7\7{"a":x}', b"\7", None]
    column = BytesColumn.from_values(documents)
    root = Schema({"a": "int8"}).root
    built, errors, _ = json_decode.decode(
        json_plan(root),
        *column.spans,
        *(1, 1 << 40),
        row_plans=np.array([0, 0, 0, 0, -MAGIC, 0], np.int32),
        prefixes=np.array([1, 0, 2, 2, 0, 0], np.int32),
    )
    assert values_of(root, built) == [{"a": 1}, {"a": 2}, *[None] * 4]
    assert [(e.row, e.code, e.position) for e in failures(errors)] == [
        (2, EMPTY, 2), (3, SYNTAX, 7), (4, MAGIC, 0),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="one prefix per row"):
        json_decode.decode(json_plan(root), *column.spans, 1, prefixes=np.array([1, 0], np.int32))


def test_a_row_with_too_much_is_named() -> None:
    plan = json_plan(Schema(["int64"]).root)
    document = b"[" + b"1," * 14_000_000 + b"1]"
    data = np.frombuffer(document, np.uint8)
    built, errors, _ = json_decode.decode(
        plan, data, np.zeros(1, np.int64), np.array([len(document)], np.int32), 1
    )
    assert built[1] == 1
    assert [each.code for each in failures(errors)] == [TOO_LARGE]


def test_a_row_with_too_much_is_named_whatever_was_reserved() -> None:
    """TC-180: what is reserved depends on all rows, and what is too large does not."""
    document = b'"' + b"x" * (66 << 20) + b'"'
    data = np.frombuffer(document, np.uint8)
    lengths = np.array([len(document), 3, len(document)], np.int32)
    starts = np.array([0, len(document) - 3, 0], np.int64)
    built, errors, _ = json_decode.decode(
        json_plan(Schema("string").root), data, starts, lengths, 1
    )
    assert built[1] == 3
    assert [(each.row, each.code) for each in failures(errors) if each.row != 1] == [
        (0, TOO_LARGE), (2, TOO_LARGE),
    ]  # fmt: skip


def test_a_small_part_of_a_large_document_is_no_large_row() -> None:
    """TC-180: what is too large is what the columns have, not what the document has."""
    document = b'{"a": "small", "b": "' + b"x" * (66 << 20) + b'"}'
    data = np.frombuffer(document, np.uint8)
    built, errors, _ = json_decode.decode(
        json_plan(Schema({"a": "string"}).root),
        *(data, np.zeros(1, np.int64), np.array([len(document)], np.int32), 1),
    )
    assert errors is None
    assert built[1] == 1


def test_the_decoding_ends_when_there_is_enough() -> None:
    documents = [json.dumps({"s": "x" * 1000}).encode()] * 500
    data = np.frombuffer(b"".join(documents), np.uint8)
    size = len(documents[0])
    plan = json_plan(Schema({"s": "string"}).root)
    starts = np.arange(500, dtype=np.int64) * size
    lengths = np.full(500, size, np.int32)
    built, errors, _ = json_decode.decode(plan, data, starts, lengths, 1, 1)
    assert errors is None
    assert 0 < built[1] < 500


def test_numbers_of_kinds_are_those_of_the_compiled_code() -> None:
    text = Path("src_pyx/kfast/_native/kinds.pxd").read_text(encoding="utf-8")
    for kind in Kind:
        assert f"KIND_{kind.name} = {kind.value}\n" in text


def test_repr_of_a_plan() -> None:
    plan = json_plan(
        Schema(
            {
                "a": "int8 not null",
                "l": [Field("string", default="x")],
                "p": Field("raw", source="q.r"),
            }
        ).root
    )
    assert repr(plan).splitlines() == [
        "  0 struct       $ a=1 l=2 q=4",
        "  1 int8         a required",
        "  2 list         l each=3",
        "  3 string       l[] default",
        "  4 path_object  $ r=5",
        "  5 raw          p",
    ]
