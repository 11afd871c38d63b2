"""Floats from text: bit for bit what Python's ``float`` gives, and float32 rounded once."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kfast.schemas.json_plan import json_plan
from kfast.schemas.schema import Schema
from tests.reference.built_values import decode_json
from tests.soaking import examples

_DOUBLE = Schema(["float64"]).root
_SINGLE = Schema(["float32"]).root
_LONG = Schema(["int64"]).root
_INT = Schema(["int32"]).root
_PLANS = {"d": json_plan(_DOUBLE), "f": json_plan(_SINGLE)}


def read(texts: Sequence[str], kind: str = "d") -> list[float | None]:
    """Return the floats that texts are, None for those out of range."""
    root = _DOUBLE if kind == "d" else _SINGLE
    documents = [f"[{text}]".encode() for text in texts]
    values, errors = decode_json(_PLANS[kind], root, documents)
    assert all(each.code == 7 for each in errors)
    return [None if value is None else value[0] for value in values]


def bits(value: float | None) -> bytes:
    return b"out of range" if value is None else struct.pack("=d", value)


def check(texts: Sequence[str]) -> None:
    for text, value in zip(texts, read(texts), strict=True):
        expected: float | None = float(text)
        if abs(float(text)) == float("inf"):
            expected = None
        assert bits(value) == bits(expected), text


def single(text: str) -> float | None:
    """Return the float32 nearest to a text, to even in the middle, by exact fractions."""
    digits, _, exponent = text.lower().partition("e")
    if abs(int(exponent or 0)) > 450:
        return None if int(exponent) > 0 and float(digits) else -0.0 if text[0] == "-" else 0.0
    exact = Fraction(text)
    if abs(exact) >= 2**128:
        return None
    with np.errstate(over="ignore"):
        low = np.float32(abs(float(exact)))
        if not np.isfinite(low):
            low = np.finfo(np.float32).max
        around = [np.nextafter(low, np.float32(0)), low, np.nextafter(low, np.float32("inf"))]
    nearest = min(
        (each for each in around),
        key=lambda each: (
            abs((Fraction(2**128) if np.isinf(each) else Fraction(float(each))) - abs(exact)),
            int(each.view(np.uint32)) & 1,
        ),
    )
    if np.isinf(nearest):
        return None
    return -float(nearest) if text[0] == "-" else float(nearest)


HARD = [
    "0", "-0", "0.0", "0e5", "-0e-400", "1e22", "1e23", "123456789012345678e5", "9007199254740993",
    "9007199254740992.5", "9007199254740993.0000000000000000000000000000000001", "1e-22", "1e-23",
    "4.9e-324", "2.4703282292062327e-324", "2.4703282292062328e-324", "2.2250738585072011e-308",
    "2.2250738585072014e-308", "1.7976931348623157e308", "1.7976931348623158e308",
    "1.7976931348623159e308", "1e308", "1e309", "0.000000000000000000000000000000000001",
    "8.988465674311579e307", "6929495644600919.5", "3.7455744005952583e15",
    "1.00000005960464477540", "7.0064923216240853546186479164495e-46",
    "7.0064923216240853546186479164496e-46",
    "340282356779733661637539395458142568447", "340282356779733661637539395458142568448",
    "1" + "0" * 400, "0." + "0" * 400 + "1", "1" * 800, "0." + "1" * 800, "1e-400", "1E+2",
    "9214843084008499", "8.5e1", "100000016777215", "3.5028234666e38",
]  # fmt: skip


def test_hard_numbers() -> None:
    """TC-15: the nearest float64, whatever the digits."""
    check(HARD)


def test_hard_numbers_of_32_bits() -> None:
    for text, value in zip(HARD, read(HARD, "f"), strict=True):
        assert bits(value) == bits(single(text)), text


def test_the_middle_between_two_floats() -> None:
    """TC-15: hundreds of digits at, below and above the middle of two neighbours."""
    generator = random.Random(3)
    texts = []
    for _ in range(300):
        pattern = generator.randrange(1, 0x7FEFFFFFFFFFFFFF)
        if generator.random() < 0.2:
            pattern &= (1 << 54) - 1  # small ones
        low = struct.unpack("=d", pattern.to_bytes(8, "little"))[0]
        high = struct.unpack("=d", (pattern + 1).to_bytes(8, "little"))[0]
        middle = (Fraction(low) + Fraction(high)) / 2
        digits, exponent = middle.numerator, 0
        while middle.denominator > 1:  # a power of two: each 5 makes one more decimal place
            digits = middle.numerator * 5 ** (middle.denominator.bit_length() - 1)
            exponent = -(middle.denominator.bit_length() - 1)
            break
        for text in (f"{digits}", f"{digits}0000000001", f"{digits - 1}9999"):
            shift = len(text) - len(str(digits))
            texts.append(f"{text}e{exponent - shift}")
    check(texts)


@examples(60)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=40))
def test_what_repr_writes(values: list[float]) -> None:
    check([repr(value) for value in values])
    check([f"{value:.17e}" for value in values])
    check([f"{value:.30e}" for value in values])


@examples(60)
@given(
    st.lists(
        st.from_regex(
            r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True
        ),
        min_size=1,
        max_size=30,
    )
)
def test_any_number(texts: list[str]) -> None:
    check(texts)
    for text, value in zip(texts, read(texts, "f"), strict=True):
        assert bits(value) == bits(single(text)), text


def test_random_bits() -> None:
    generator = random.Random(11)
    doubles = [struct.unpack("=d", generator.randbytes(8))[0] for _ in range(3000)]
    check([repr(each) for each in doubles if abs(each) < float("inf")])
    short = [f"{generator.randrange(10**9)}e{generator.randrange(-60, 60)}" for _ in range(500)]
    for text, value in zip(short, read(short, "f"), strict=True):
        assert bits(value) == bits(single(text)), text


def lengths() -> list[str]:
    """Return numbers whose digits, places and signs are less than 16 bytes, as many, and more."""
    generator = random.Random(5)
    texts = []
    for digits in range(1, 21):
        whole = str(generator.randrange(10 ** (digits - 1), 10**digits))
        for places in range(18):
            fraction = "." + "".join(generator.choices("0123456789", k=places)) if places else ""
            for sign in ("", "-"):
                texts += [f"{sign}{whole}{fraction}", f"{sign}0{fraction}"]
    return texts


def test_numbers_of_every_length() -> None:
    """TC-15: the same rules for few digits and for many."""
    texts = lengths()
    check(texts)
    check([f"{text}e2" for text in texts])
    whole = [text for text in texts if text.lstrip("-").isdigit()]
    for root, size in ((_LONG, 63), (_INT, 31)):
        documents = [f"[{text}]".encode() for text in whole]
        values, errors = decode_json(json_plan(root), root, documents)
        expected = [int(text) if -(2**size) <= int(text) < 2**size else None for text in whole]
        assert [None if value is None else value[0] for value in values] == expected
        assert all(each.code == 7 for each in errors)
        assert len(errors) == expected.count(None)


def test_what_is_no_number_of_any_length() -> None:
    """TC-04: zeros in front, points and exponents without digits, and signs, are refused."""
    wrong = [
        each
        for text in lengths()
        for each in (f"0{text}", f"{text}.", f"{text}.e1", f"{text}e", f"+{text}", f"--{text}")
    ]
    for root in (_DOUBLE, _LONG):
        documents = [f"[{text}]".encode() for text in wrong]
        values, errors = decode_json(json_plan(root), root, documents)
        assert len(errors) == len(wrong)
        assert not any(values)
