"""Schemas inferred from samples of documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kfast.errors import DeserializationError
from kfast.schemas.inference import infer


def inferred(*documents: Any, **options: Any) -> str:
    root, _ = infer([json.dumps(each).encode() for each in documents], **options)
    return root.type_text


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ([1, -5, 2**63 - 1], "int64"),
        ([1, 2**63], "decimal128(38, 0)"),
        ([10**38 - 1], "decimal128(38, 0)"),
        ([10**38], "float64"),
        ([1, 1.5, None], "float64"),
        ([2**70, 0.5], "float64"),
        ([True, None], "bool"),
        (["a"], "string"),
        ([None], "raw"),
        ([1, "a"], "raw"),
        ([True, 1], "raw"),
        ([{"a": 1}, {"b": "x"}], "struct<a: int64, b: string>"),
        ([{"a": 1}, {"a": "x"}], "struct<a: raw>"),
        ([{"a": {"b": []}}], "struct<a: struct<b: list<raw>>>"),
        ([{"a": {}}], "struct<a: raw>"),
        ([[1], [2.5, None], []], "list<float64>"),
        ([[{"a": 1}], [{"a": 2, "b": True}]], "list<struct<a: int64, b: bool>>"),
        ([{"a": [1]}, {"a": {"x": 1}}], "struct<a: raw>"),
    ],
    ids=str,
)
def test_types(documents: list[Any], expected: str) -> None:
    """TC-03: a schema is inferred as documented, and what does not go together is raw."""
    assert inferred(*documents) == expected


def test_many_keys_are_a_map() -> None:
    document = {f"k{i}": i for i in range(9)}
    assert inferred(document, max_fields=8) == "map<string, int64>"
    assert inferred(document, max_fields=9).startswith("struct<k0")
    assert inferred(document | {"other": "x"}, max_fields=8) == "map<string, raw>"
    assert inferred([{"a": {"x": 1}}, {"a": {"y": 2.5}}, {"b": {"z": 1}}], max_fields=1) == (
        "list<map<string, map<string, float64>>>"
    )


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2024-01-31T10:00:00Z", "2024-01-31T10:00:00.5+02:00"], "timestamp[us, UTC]"),
        (["2024-01-31T10:00:00"], "timestamp[us]"),
        (["2024-01-31T10:00:00.1234567Z"], "timestamp[ns, UTC]"),
        (["2024-01-31T10:00:00Z", "2024-01-31T10:00:00"], "string"),
        (["2024-01-31T10:00:00Z", "soon"], "string"),
        (["2024-01-31"], "string"),
    ],
)
def test_timestamps_on_request(texts: list[str], expected: str) -> None:
    assert inferred(*texts, timestamps=True) == expected
    assert inferred(*texts) == "string"


def test_report() -> None:
    sample = [b'{"a":1}', None, b"{", '{"a":"x"}', b'{"a":null,"a":1}', b'{"a":NaN}', b"\xff"]
    root, report = infer(sample)
    assert root.type_text == "struct<a: raw>"
    assert (report.documents, report.bad, report.first_bad_row) == (7, 4, 2)
    top, a = report.paths
    assert (top.path, top.seen, top.null, top.kinds) == ("", 3, 1, {"object": 2})
    assert (a.path, a.seen, a.kinds, a.first_other_row) == ("a", 2, {"integer": 1, "string": 1}, 3)
    assert str(report).splitlines()[0] == "7 documents, 4 of them cannot be read"
    last = " ".join(str(report).splitlines()[-1].split())
    assert last == "a raw 2 0 integer 1, string 1 3"


def test_deep_documents_are_raw() -> None:
    root, _ = infer([b"[" * 200 + b"]" * 200])
    assert root.type_text.count("list<") == 63
    assert "raw" in root.type_text


@pytest.mark.parametrize("sample", [[], [b"x", b"", b"{}x"], [b"[" * 100_000]])
def test_nothing_readable(sample: list[bytes]) -> None:
    with pytest.raises(DeserializationError, match="no schema: none of"):
        infer(sample)


def test_documents_that_are_no_text_or_repeat_a_key_are_bad() -> None:
    """TC-03: they are counted, however many keys there are."""
    many = b"{" + b",".join(b'"k%d":1' % at for at in range(50_000)) + b',"k49999":2}'
    halves = [b'{"\\ud800":1}', b'{"a":"\\udfff"}', b'{"a":"\\ud83d\\ude00"}', b'{"a":"\\\\ud800"}']
    root, report = infer([b'{"a":"x"}', *halves, many])
    assert root.type_text == "struct<a: string>"
    assert (report.bad, report.first_bad_row) == (3, 1)
