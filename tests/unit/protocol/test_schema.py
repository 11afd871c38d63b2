"""The declarations messages are made of."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kfast.protocol.schema import I32, STR, ArrayOf, Versions, wire, wire_fields
from tests.unit.protocol.toys import Everything, Inner


@pytest.mark.parametrize(
    ("text", "first", "last"), [("0+", 0, 32767), ("3-5", 3, 5), ("7", 7, 7), ("12+", 12, 32767)]
)
def test_versions(text: str, first: int, last: int) -> None:
    versions = Versions.parse(text)
    assert (versions.first, versions.last) == (first, last)
    assert first in versions
    assert last in versions
    assert first - 1 not in versions
    assert last + 1 not in versions


def test_defaults() -> None:
    value = Everything()
    assert (value.flag, value.port, value.ratio, value.topic_id) == (False, 0, 0.0, bytes(16))
    assert (value.blob, value.numbers, value.strict, value.maybe) == (b"", [], -1, None)
    assert value.single == Inner(0, "", "")


def test_mutable_defaults_are_not_shared() -> None:
    one, other = Everything(), Everything()
    one.names.append("a")
    one.single.number = 5
    assert (other.names, other.single.number) == ([], 0)


def test_messages_have_no_dict() -> None:
    assert not hasattr(Everything(), "__dict__")
    assert not hasattr(Inner(), "__dict__")


def test_fields_come_in_wire_order() -> None:
    assert list(wire_fields(Inner)) == ["number", "text", "note"]
    assert wire_fields(Inner)["note"].tag == 0
    assert wire_fields(Inner)["text"].is_nullable(3)
    assert not wire_fields(Inner)["text"].is_nullable(2)


def test_a_field_without_wire_is_refused() -> None:
    @dataclass(slots=True)
    class Bad:
        number: int = 0

    with pytest.raises(TypeError, match=r"Bad\.number"):
        wire_fields(Bad)


def test_a_positional_field_behind_a_tagged_one_is_refused() -> None:
    @dataclass(slots=True)
    class Bad:
        tagged: str = wire(STR, tag=0)
        numbers: list[int] = wire(ArrayOf(I32))

    with pytest.raises(TypeError, match=r"Bad\.numbers"):
        wire_fields(Bad)
