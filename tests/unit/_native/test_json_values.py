"""Every rule of JSON values, one row each, compared with ``json`` and msgspec's strict mode."""

from __future__ import annotations

import base64
import json
import locale
import uuid
from typing import Any

import msgspec
import pytest

from kfast.schemas.field import Field
from tests.unit._native.json_rows import (
    DUPLICATE,
    EMPTY,
    MISSING,
    RANGE,
    SYNTAX,
    TRAILING,
    TRUNCATED,
    TYPE,
    UTF8,
    one,
)


def is_json(text: bytes) -> bool:
    def refuse(name: str) -> Any:
        raise ValueError(name)

    try:
        json.loads(text.decode(), parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return True


SCALARS: list[tuple[object, bytes, Any]] = [
    ("int64", b"0", 0),
    ("int64", b"-0", 0),
    ("int64", b" \t\r\n12 \n", 12),
    ("int64", b"9223372036854775807", 2**63 - 1),
    ("int64", b"-9223372036854775808", -(2**63)),
    ("int64", b"9223372036854775808", (RANGE, 0)),
    ("int64", b"-9223372036854775809", (RANGE, 0)),
    ("int64", b"9007199254740993", 2**53 + 1),
    ("int64", b"123456789012345678901234567890", (RANGE, 0)),
    ("int64", b"1.0", (TYPE, 0)),
    ("int64", b"1e3", (TYPE, 0)),
    ("int64", b'"1"', (TYPE, 0)),
    ("int64", b"01", (SYNTAX, 0)),
    ("int64", b"+1", (SYNTAX, 0)),
    ("int64", b"-", (TRUNCATED, 1)),
    ("int64", b"-x", (SYNTAX, 0)),
    ("int64", b"1.", (TRUNCATED, 2)),
    ("int64", b"12a", (SYNTAX, 2)),
    ("int64", b"1 2", (TRAILING, 2)),
    ("int64", b"true", (TYPE, 0)),
    ("int64", b"[1]", (TYPE, 0)),
    ("int64", b"{}", (TYPE, 0)),
    ("int64", b"null", None),
    ("int64", b"nul", (TRUNCATED, 3)),
    ("int64", b"nulL", (SYNTAX, 0)),
    ("int64", b"\xef\xbb\xbf1", (SYNTAX, 0)),
    ("int64", b"", (EMPTY, 0)),
    ("int64", b"  ", (TRUNCATED, 2)),
    ("uint64", b"18446744073709551615", 2**64 - 1),
    ("uint64", b"18446744073709551616", (RANGE, 0)),
    ("uint64", b"-1", (RANGE, 0)),
    ("uint64", b"-0", 0),
    ("int8", b"-128", -128),
    ("int8", b"128", (RANGE, 0)),
    ("int16", b"-32768", -32768),
    ("int16", b"32768", (RANGE, 0)),
    ("int32", b"-2147483648", -(2**31)),
    ("int32", b"2147483648", (RANGE, 0)),
    ("uint8", b"255", 255),
    ("uint8", b"256", (RANGE, 0)),
    ("uint16", b"65535", 65535),
    ("uint16", b"65536", (RANGE, 0)),
    ("uint32", b"4294967295", 2**32 - 1),
    ("uint32", b"4294967296", (RANGE, 0)),
    ("float64", b"0.1", 0.1),
    ("float64", b"-0", -0.0),
    ("float64", b"1E5", 1e5),
    ("float64", b"1e+5", 1e5),
    ("float64", b"12", 12.0),
    ("float64", b"1.7976931348623157e308", 1.7976931348623157e308),
    ("float64", b"1e309", (RANGE, 0)),
    ("float64", b"-1e999999999999", (RANGE, 0)),
    ("float64", b"1e-999999999999", 0.0),
    ("float64", b".5", (SYNTAX, 0)),
    ("float64", b"1.", (TRUNCATED, 2)),
    ("float64", b"1.x", (SYNTAX, 0)),
    ("float64", b"01.5", (SYNTAX, 0)),
    ("float64", b"1e", (TRUNCATED, 2)),
    ("float64", b"1,5", (TRAILING, 1)),
    ("float64", b"NaN", (SYNTAX, 0)),
    ("float64", b"Infinity", (SYNTAX, 0)),
    ("float64", b"-Infinity", (SYNTAX, 0)),
    ("float64", b'"1.5"', (TYPE, 0)),
    ("float32", b"3.4028234663852886e38", 3.4028234663852886e38),
    ("float32", b"3.5e38", (RANGE, 0)),
    ("bool", b"true", True),
    ("bool", b"false", False),
    ("bool", b"1", (TYPE, 0)),
    ("bool", b'"true"', (TYPE, 0)),
    ("bool", b"truth", (SYNTAX, 0)),
    ("bool", b"tru", (TRUNCATED, 3)),
    ("string", b'""', ""),
    ("string", b'"abc"', "abc"),
    ("string", b'"' + b"x" * 40 + b'"', "x" * 40),
    ("string", '"é€😀"'.encode(), "é€😀"),
    ("string", rb'"\"\\\/\b\f\n\r\t\u00e9\u20AC\ud83d\ude00\u0000"', '"\\/\b\f\n\r\té€😀\0'),
    ("string", b'"' + b"a" * 15 + rb'\n"', "a" * 15 + "\n"),
    ("string", b'"' + b"a" * 31 + rb'\u0041' + b"b" * 33 + b'"', "a" * 31 + "A" + "b" * 33),
    ("string", rb'"\ud800"', (UTF8, 1)),
    ("string", rb'"\ude00\ud83d"', (UTF8, 1)),
    ("string", rb'"a\ud83dx"', (UTF8, 2)),
    ("string", rb'"\ud83d\u0041"', (UTF8, 1)),
    ("string", rb'"\x41"', (SYNTAX, 2)),
    ("string", rb'"\u12g4"', (SYNTAX, 1)),
    ("string", b'"a\tb"', (SYNTAX, 2)),
    ("string", b'"a\x00b"', (SYNTAX, 2)),
    ("string", b'"a\xffb"', (UTF8, 2)),
    ("string", "é".encode().join([b'"'] * 2).replace(b"\xa9", b"\xc3\xa9"), (UTF8, 1)),
    ("string", b'"\xed\xa0\x80"', (UTF8, 1)),
    ("string", b'"\xc0\x80"', (UTF8, 1)),
    ("string", b'"' + b"a" * 100 + "é".encode() * 20 + b'\xf5"', (UTF8, 141)),
    ("string", b'"abc', (TRUNCATED, 4)),
    ("string", b'"abc\\', (TRUNCATED, 5)),
    ("string", b'"' + b"x" * 50, (TRUNCATED, 51)),
    ("string", b'"a" "b"', (TRAILING, 4)),
    ("string", b"12", (TYPE, 0)),
    ("string", b"'a'", (SYNTAX, 0)),
    ("dictionary", b'"b\\u0075y"', "buy"),
    ("dictionary", b"1", (TYPE, 0)),
    ("binary", b'"AAEC/w=="', b"\x00\x01\x02\xff"),
    ("binary", b'""', b""),
    ("binary", b'"AAEC_w=="', (TYPE, 0)),
    ("binary", b'"AAE"', (TYPE, 0)),
    ("binary", b'"AAF="', b"\x00\x01"[:0] or (TYPE, 0)),
    ("binary", b'"AA=A"', (TYPE, 0)),
    ("binary", b'"===="', (TYPE, 0)),
    (Field("binary", encoding="base64url"), b'"AAEC_w=="', b"\x00\x01\x02\xff"),
    (Field("binary", encoding="hex"), b'"00fFa1"', b"\x00\xff\xa1"),
    (Field("binary", encoding="hex"), b'"0"', (TYPE, 0)),
    (Field("binary", encoding="hex"), b'"0g"', (TYPE, 0)),
    (Field("binary", encoding="utf8"), '"é\\n"'.encode(), "é\n".encode()),
    ("fixed_size_binary(3)", b'"AAEC"', b"\x00\x01\x02"),
    ("fixed_size_binary(3)", b'"AA=="', (RANGE, 0)),
    (Field("fixed_size_binary(2)", encoding="hex"), rb'"\u00301ff"', b"\x01\xff"),
    ("uuid", b'"01234567-89ab-CDEF-0123-456789abcdef"', bytes.fromhex("0123456789abcdef" * 2)),
    ("uuid", b'"0123456789abcdef0123456789abcdef"', (TYPE, 0)),
    ("uuid", b'"01234567-89ab-cdef-0123_456789abcdef"', (TYPE, 0)),
    ("uuid", b'"01234567-89ab-cdef-0123-456789abcdeg"', (TYPE, 0)),
    ("timestamp[ms]", b"1732000000031", 1732000000031),
    ("timestamp[ms]", b'"1970-01-01T00:00:01.5"', 1500),
    ("timestamp[ms]", b'"1970-01-01 00:00:01.500000"', 1500),
    ("timestamp[ms]", b'"1970-01-01T00:00:01.0001"', (RANGE, 0)),
    ("timestamp[ms]", b'"1970-01-01T00:00:01Z"', (TYPE, 0)),
    ("timestamp[ms, UTC]", b'"1970-01-01T00:00:01"', (TYPE, 0)),
    ("timestamp[ms, UTC]", b'"1970-01-01t00:00:01z"', 1000),
    ("timestamp[s, UTC]", b'"1970-01-01T00:00:00+01:30"', -5400),
    ("timestamp[s, UTC]", b'"1970-01-01T00:00:00-23:59"', 86340),
    ("timestamp[s, UTC]", b'"1970-01-01T00:00:00+24:00"', (RANGE, 0)),
    ("timestamp[s, UTC]", b'"1970-01-01T00:00:00+0130"', (TYPE, 0)),
    ("timestamp[s]", b'"2016-12-31T23:59:60"', (RANGE, 0)),
    ("timestamp[s]", b'"2023-02-29T00:00:00"', (RANGE, 0)),
    ("timestamp[s]", b'"1900-02-29T00:00:00"', (RANGE, 0)),
    ("timestamp[s]", b'"2000-02-29T00:00:00"', 951782400),
    ("timestamp[s]", b'"0000-03-01T00:00:00"', -62162035200),
    ("timestamp[s]", b'"9999-12-31T23:59:59"', 253402300799),
    ("timestamp[s]", b'"2000-13-01T00:00:00"', (RANGE, 0)),
    ("timestamp[s]", b'"2000-01-01"', (TYPE, 0)),
    ("timestamp[s]", b'"soon"', (TYPE, 0)),
    ("timestamp[s]", b"1.5", (TYPE, 0)),
    ("timestamp[ns]", b'"1677-09-21T00:12:43.145224193"', -(2**63) + 1),
    ("timestamp[ns]", b'"1677-09-21T00:12:43.145224192"', (RANGE, 0)),
    ("timestamp[ns]", b'"2262-04-11T23:47:16.854775807"', 2**63 - 1),
    ("timestamp[ns]", b'"2262-04-11T23:47:16.854775808"', (RANGE, 0)),
    ("timestamp[ns]", b"-9223372036854775808", (RANGE, 0)),
    (Field("timestamp[us]", encoding="epoch_ms"), b"-3", -3000),
    (Field("timestamp[us]", encoding="epoch_ms"), b'"1970-01-01T00:00:01"', (TYPE, 0)),
    (Field("timestamp[s]", encoding="epoch_ms"), b"3000", 3),
    (Field("timestamp[s]", encoding="epoch_ms"), b"3001", (RANGE, 0)),
    (Field("timestamp[ns]", encoding="epoch_s"), b"9223372037", (RANGE, 0)),
    (Field("timestamp[s]", encoding="rfc3339"), b"3", (TYPE, 0)),
    ("date32", b'"1970-01-02"', 1),
    ("date32", b'"1969-12-31"', -1),
    ("date32", b"19000", 19000),
    ("date32", b'"1970-01-02T00:00:00"', (TYPE, 0)),
    ("date32", b'"1970-00-02"', (RANGE, 0)),
    ("time32[s]", b'"23:59:59"', 86399),
    ("time32[ms]", b'"00:00:00.5"', 500),
    ("time64[ns]", b'"00:00:00.000000001"', 1),
    ("time64[us]", b'"24:00:00"', (RANGE, 0)),
    ("time32[s]", b"86399", 86399),
    ("time32[s]", b"86400", (RANGE, 0)),
    ("time64[ns]", b"86400000000000", (RANGE, 0)),
    ("time64[us]", b'"10:00"', (TYPE, 0)),
    ("time64[us]", b'"10:00:00Z"', (TYPE, 0)),
    ("duration[ms]", b"-5", -5),
    ("duration[ms]", b"-9223372036854775808", (RANGE, 0)),
    ("duration[ms]", b'"5"', (TYPE, 0)),
    ("decimal128(6, 2)", b"1234.56", 123456),
    ("decimal128(6, 2)", b'"-1234.5"', -123450),
    ("decimal128(6, 2)", b"1.2300e1", 1230),
    ("decimal128(6, 2)", b"12e2", 120000),
    ("decimal128(6, 2)", b"0.001", (RANGE, 0)),
    ("decimal128(6, 2)", b"10000", (RANGE, 0)),
    ("decimal128(6, 2)", b"1e400", (RANGE, 0)),
    ("decimal128(6, 2)", b"0e400", 0),
    ("decimal128(6, 2)", b'"1,5"', (TYPE, 0)),
    ("decimal128(6, 2)", b'""', (TYPE, 0)),
    ("decimal128(38, 0)", b"-" + b"9" * 38, -(10**38 - 1)),
    ("decimal128(38, 0)", b"1" + b"0" * 38, (RANGE, 0)),
    ("decimal256(76, 40)", b"9" * 36 + b"." + b"9" * 40, 10**76 - 1),
    ("decimal256(76, 40)", b"-0." + b"0" * 39 + b"1", -1),
    ("raw", b' {"a": [1, "x"]} ', b'{"a": [1, "x"]}'),
    ("raw", b"null", None),
    ("raw", b"[01]", (SYNTAX, 1)),
    ("raw", b"tru", (TRUNCATED, 3)),
    (["int64"], b"[]", []),
    (["int64"], b"[1, null ,3]", [1, None, 3]),
    (["int64"], b"[1,]", (SYNTAX, 3)),
    (["int64"], b"[,1]", (SYNTAX, 1)),
    (["int64"], b"[1 2]", (SYNTAX, 3)),
    (["int64"], b"[1", (TRUNCATED, 2)),
    (["int64"], b"[", (TRUNCATED, 1)),
    (["int64"], b"[1]]", (TRAILING, 3)),
    (["int64 not null"], b"[1,null]", (MISSING, 3)),
    ([["int8"]], b"[[1],[],null,[2,3]]", [[1], [], None, [2, 3]]),
    (["string"], b'["a","b]","c"]', ["a", "b]", "c"]),
    ("map<string, int8>", b'{"a":1, "b" : null}', [("a", 1), ("b", None)]),
    ("map<string, int8>", b"{}", []),
    ("map<string, int8>", b'{"a":1,"b":2,"a":3}', (DUPLICATE, 0)),
    ("map<string, int8>", rb'{"a":1,"\u0061":2}', (DUPLICATE, 0)),
    ("map<string, int8>", b'{"a":1,}', (SYNTAX, 7)),
    ("map<string, int8>", b'{"a" 1}', (SYNTAX, 5)),
    ("map<string, int8>", b'{"a":300}', (RANGE, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "text", "expected"), SCALARS, ids=str)
def test_values(schema: object, text: bytes, expected: Any) -> None:
    """TC-04: each form of a value is read exactly, or refused with its code and byte."""
    found = one(schema, text)
    assert repr(found) == repr(expected)
    if isinstance(expected, tuple):
        is_wrong_json = expected[0] in {EMPTY, TRUNCATED, TRAILING, SYNTAX}
        assert is_wrong_json == (not is_json(text)) or expected[0] == UTF8


@pytest.mark.parametrize(
    ("schema", "made"),
    [("int64", int), ("float64", float), ("bool", bool), ("string", str), (["int64"], list[int])],
)
def test_the_same_as_msgspec(schema: object, made: Any) -> None:
    for other, text, expected in SCALARS:
        if other != schema or text == b"null" or b"null" in text:
            continue
        is_bad = isinstance(expected, tuple)
        if schema == "int64" and expected == (RANGE, 0):
            continue  # Python's integers have no range
        try:
            value = msgspec.json.decode(text, type=made)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            assert is_bad, text
        else:
            assert not is_bad, text
            assert value == expected


@pytest.mark.parametrize(
    ("coerce", "schema", "text", "expected"),
    [
        ("number_text", "int64", b'"12"', 12),
        ("number_text", "int64", rb'"\u0031\u0032"', 12),
        ("number_text", "int64", b'"12 "', (TYPE, 0)),
        ("number_text", "int64", b'""', (TYPE, 0)),
        ("number_text", "int64", b'"0x1"', (TYPE, 0)),
        ("number_text", "int64", b'"1.0"', (TYPE, 0)),
        ("number_text", "int8", b'"300"', (RANGE, 0)),
        ("number_text", "float64", b'"1.5e3"', 1500.0),
        ("number_text", "float64", b'"1,5"', (TYPE, 0)),
        ("number_text", "float64", b'"nan"', (TYPE, 0)),
        ("number_text", "string", b"12", (TYPE, 0)),
        ("integral_float", "int64", b"1.0", 1),
        ("integral_float", "int64", b"1e3", 1000),
        ("integral_float", "int64", b"-1.50e1", -15),
        ("integral_float", "int64", b"1.5", (TYPE, 0)),
        ("integral_float", "int64", b"1e-1", (TYPE, 0)),
        ("integral_float", "int64", b"1e30", (RANGE, 0)),
        ("integral_float", "int64", b"1e999999", (RANGE, 0)),
        ("integral_float", "int64", b"9223372036854775807.0", 2**63 - 1),
        ("integral_float", "int64", b"9223372036854775808.0", (RANGE, 0)),
        ("integral_float", "uint64", b"18446744073709551615.000", 2**64 - 1),
        ("integral_float", "int64", b"1.", (TRUNCATED, 2)),
        ("integral_float", "timestamp[ms]", b"1.7e12", 1700000000000),
        ("stringify", "string", b"1.50", "1.50"),
        ("stringify", "string", b"true", "true"),
        ("stringify", "string", b' {"a": [1]} ', '{"a": [1]}'),
        ("stringify", "string", b'"x"', "x"),
        ("stringify", "string", b"null", None),
        ("stringify", "string", b"01", (SYNTAX, 0)),
        ("truncate_time", "timestamp[s]", b'"1970-01-01T00:00:01.9"', 1),
        ("truncate_time", "timestamp[s]", b'"1969-12-31T23:59:59.9"', -1),
        ("truncate_time", "time32[s]", b'"00:00:01.9"', 1),
    ],
    ids=str,
)
def test_coerce(coerce: str, schema: object, text: bytes, expected: Any) -> None:
    """TC-13: each coercion is opted in to by its name, and loses nothing but what it says."""
    assert repr(one(schema, text, coerce=(coerce,))) == repr(expected)


def test_truncated_epochs() -> None:
    schema = Field("timestamp[s]", encoding="epoch_ms")
    assert one(schema, b"-1", coerce=("truncate_time",)) == -1
    assert one(schema, b"1999", coerce=("truncate_time",)) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"NaN", "nan"), (b"Infinity", "inf"), (b"-Infinity", "-inf"), (b"-0.0", "-0.0"),
        (b"Nan", "(4, 0)"), (b"-Inf", "(2, 4)"), (b"inf", "(4, 0)"), (b"01", "(4, 0)"),
    ],
)  # fmt: skip
def test_allow_nan(text: bytes, expected: str) -> None:
    assert repr(one("float64", text, allow_nan=True)) == expected
    if expected[0] != "(":
        assert one("raw", b"[" + text + b"]", allow_nan=True) == b"[" + text + b"]"
        assert one({"a": "int8"}, b'{"x":' + text + b"}", allow_nan=True) == {"a": None}


def test_the_locale_has_no_say() -> None:
    """TC-15: numbers are read the same where the decimal point is a comma."""
    before = locale.setlocale(locale.LC_NUMERIC)
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "nl_NL.utf8"):
        try:
            locale.setlocale(locale.LC_NUMERIC, name)
        except locale.Error:
            continue
        break
    try:
        assert one("float64", b"1.5") == 1.5
        assert one("float64", b"1234567890.12345678901e-20") == 1234567890.12345678901e-20
        assert one("float64", b"1,5") == (TRAILING, 1)
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)


def test_random_binaries_and_uuids() -> None:
    for size in range(40):
        raw = bytes(range(size))
        assert one("binary", json.dumps(base64.b64encode(raw).decode()).encode()) == raw
    made = uuid.UUID(int=2**127 + 12345)
    assert one("uuid", f'"{made}"'.encode()) == made.bytes
