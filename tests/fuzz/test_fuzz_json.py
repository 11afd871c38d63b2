"""TC-18: whatever the documents, rows out are rows in, and good rows are what ``json`` reads."""

from __future__ import annotations

import json
import time
from random import Random
from typing import Any

from kfast.deserializers.json import Json
from kfast.schemas.field import Field
from kfast.schemas.json_plan import json_plan
from kfast.schemas.schema import Schema
from tests.fuzz.rounds import fuzz
from tests.reference.built_values import decode_json

ROUNDS = 1500

SCHEMAS: tuple[Any, ...] = (
    {"id": "int64", "price": "float64", "user": "string", "side": "dictionary", "ok": "bool"},
    {"l": [{"a": "int8", "b": ["string"]}], "m": {str: ["int16"]}, "r": "raw"},
    {"t": "timestamp[us, UTC]", "d": "decimal128(20, 4)", "u": "uuid", "b": "binary"},
    {"f": "float32", "t": "timestamp[s]"},
    {"x": Field("int32", source="o.p.q", default=3), "y": Field("string", source="o.z")},
    {"x": Field("int32", source="o.p.q"), "y": Field("string", source="o.p.r")},
    {"k": Field("fixed_size_binary(3)", encoding="hex"), "day": "date32", "at": "time64[ns]"},
    [["int64"]],
    {str: "string"},
    "float64",
    "raw",
)  # fmt: skip
SAMPLES: tuple[bytes, ...] = (
    b'{"id":625095466,"price":1877.67,"user":"user-00071607","side":"sell","ok":true}',
    b' { "user" : "\\u00e9\\ud83d\\ude00 x", "id":-1, "extra":[1,{"a":"b"}], "price":1e-7 } ',
    b'{"l":[{"a":1,"b":["x","y\\n"]},null,{"b":[]}],"m":{"p":[1,2],"q":null},"r":{"any":[1.5e3]}}',
    b'{"t":"2024-02-29T12:34:56.789+01:00","d":"-123.4567","b":"AAEC","f":3.4e38}',
    b'{"t":1732000000031,"u":"01234567-89ab-cdef-0123-456789abcdef","d":1e3}',
    b'{"o":{"p":{"q":7},"z":"w","unwanted":"\xc3\xa9"},"more":"' + b"z" * 70 + b'"}',
    b'{"o":{"p":null}}',
    b'{"o":{"p":{"r":"x","q":1}}}',
    b'{"k":"00ffA0","day":"1969-12-31","at":"23:59:59.999999999"}',
    b"[[1,2],[],[9223372036854775807]]",
    b'{"a":"1","b":"2","c":null}',
    b"12345678901234567890.123456789012345678901234567890e-15",
    b"null",
)
PARTS: tuple[bytes, ...] = (
    b'"', b"\\", b"\\u", b"\\ud800", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\0",
    b"\xff", b"\xe2\x82", b"-", b"1", b"e9", b".", b"nul", b"null", b"true", b'{"id":', b'"l":[',
    b"[" * 70, b"9" * 30, b"x" * 17, b"",
)  # fmt: skip


def mutated(document: bytes, generator: Random) -> bytes:
    made = bytearray(document)
    for _ in range(generator.choice((0, 1, 1, 2, 4))):
        at = generator.randrange(len(made) + 1)
        size = generator.choice((0, 0, 1, 2, generator.randrange(20)))
        action = generator.randrange(4)
        if action == 0:
            made[at : at + size] = generator.choice(PARTS)
        elif action == 1 and made:
            made[min(at, len(made) - 1)] ^= 1 << generator.randrange(8)
        elif action == 2:
            del made[at:]
        else:
            made[at:at] = made[at : at + size]
    return bytes(made)


def strict(text: bytes) -> Any:
    def refuse(name: str) -> Any:
        raise ValueError(name)

    return json.loads(text.decode(), parse_constant=refuse)


def check(generator: Random) -> None:
    root = Schema(generator.choice(SCHEMAS)).root
    options: dict[str, Any] = {"duplicates_last": generator.random() < 0.3}
    if generator.random() < 0.3:
        options["coerce"] = ("number_text", "integral_float", "stringify", "truncate_time")
    depth = generator.choice((4, 64, 1024))
    plan = json_plan(root, max_depth=depth, **options)
    documents = [
        None if generator.random() < 0.05 else mutated(generator.choice(SAMPLES), generator)
        for _ in range(generator.randrange(1, 6))
    ]
    rows, errors = decode_json(plan, root, documents)
    assert len(rows) == len(documents)
    bad = {each.row for each in errors}
    assert all(rows[row] is None for row in bad)
    for each in errors:
        text = documents[each.row]
        assert text is not None
        assert 1 <= each.code <= 17
        assert 0 <= each.position <= len(text)
    # Each alone is the same: no row has anything to do with another one.
    for row, document in enumerate(documents):
        alone, found = decode_json(plan, root, [document])
        assert repr(alone[0]) == repr(rows[row])
        assert [each[1:] for each in found] == [e[1:] for e in errors if e.row == row]
        if document is not None and rows[row] is not None and str(root.type) == "raw":
            assert repr(strict(document)) == repr(strict(rows[row]))
    before, errors = decode_json(plan, root, documents, mode=0)
    assert repr(before) == repr(rows[: min(bad, default=len(rows))])


def test_documents() -> None:
    fuzz(check, ROUNDS)


def check_framed(generator: Random) -> None:
    """Check that documents behind a prefix are read as they are without one."""
    framing, size = generator.choice((("confluent", 5), ("apicurio", 9)))
    reader = Json({"id": "int64", "l": [{"a": "int8"}], "r": "raw"}, framing=framing)
    plain = Json(reader.schema)
    values = [
        mutated(bytes(size) + generator.choice(SAMPLES), generator)
        for _ in range(generator.randrange(1, 6))
    ]
    rows, errors = reader.decode(values, on_error="null")
    documents = [value[size:] for value in values]
    expected, found = plain.decode(documents, on_error="null")
    unframed = {row for row, value in enumerate(values) if len(value) < size or value[0]}
    wanted = [None if row in unframed else each for row, each in enumerate(expected.to_list())]
    assert repr(rows.to_list()) == repr(wanted)
    moved = [
        (each.offset, each.code, each.byte_position + size)
        for each in found
        if each.offset not in unframed
    ]
    kept = [each for each in errors if each.offset not in unframed]
    assert [(each.offset, each.code, each.byte_position) for each in kept] == moved
    codes = {each.code for each in errors if each.offset in unframed}
    assert codes <= {"magic", "truncated", "empty"}


def test_framed_documents() -> None:
    fuzz(check_framed, ROUNDS // 5)


def test_time_is_linear() -> None:
    """What would be quadratic takes minutes here, not a part of a second."""
    size = 200_000
    plans = {name: json_plan(Schema(name).root) for name in ("raw", "map<string, raw>")}
    documents = {
        "raw": [b'"' + b"\\u00e9" * size + b'"', b"[" * size, b'"' + b"\xc3\xa9" * size + b'\xff"'],
        "map<string, raw>": [
            b"{" + b",".join(b'"%d":%d' % (i, i) for i in range(size)) + b"}",
            b"{" + b'"a":1,' * size + b"}",
        ],
    }
    begin = time.monotonic()
    for name, texts in documents.items():
        rows, _ = decode_json(plans[name], Schema(name).root, texts)
        assert len(rows) == len(texts)
    assert time.monotonic() - begin < 60
