"""UTF-8 of texts in decoders: every kind of byte beside every other, where blocks of 16 end."""

from __future__ import annotations

import itertools

import pytest

from kfast.deserializers.avro import Avro
from kfast.deserializers.json import Json

EDGES = bytes.fromhex("41 7f 80 8f 90 9f a0 bf c1 c2 df e0 e1 ec ed ef f0 f4 f5")
"""The first and last of each kind of byte, as RFC 3629 has them."""
BEFORE = (0, 13, 14, 15, 29)
LONGER = ("ä" * 20, "aß" * 30, "中" * 20, "ก็" * 20, "😀" * 9, "aä中😀" * 9)


def texts() -> list[bytes]:
    made = [
        b"a" * before + bytes(edges)
        for before in BEFORE
        for length in (1, 2, 3)
        for edges in itertools.product(EDGES, repeat=length)
    ]
    for text in LONGER:
        raw = text.encode()
        made += [raw[:end] for end in range(len(raw) + 1)]
        made += [raw[:at] + b"\x80" + raw[at:] for at in range(len(raw) + 1)]
    return made


def is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("form", ["Avro", "JSON"])
def test_what_is_text_is_what_python_takes_for_it(form: str) -> None:
    """TC-183: as Python decides, wherever in a text and however long it is."""
    given = texts()
    if form == "Avro":
        values = [bytes([(2 * len(raw)) & 0x7F | 0x80, 2 * len(raw) >> 7]) + raw for raw in given]
        decoded = Avro('"string"').decode(values, on_error="null")
    else:
        values = [b'["' + raw + b'"]' for raw in given]
        decoded = Json(["string"]).decode(values, on_error="null")
    good = [is_text(raw) for raw in given]
    assert (~decoded.values.is_null).tolist() == good
    assert set(decoded.errors.code) == {"utf8"}
    found = [raw.decode() for raw, is_good in zip(given, good, strict=True) if is_good]
    columns = decoded.values if form == "Avro" else decoded.values.items
    assert [text for text in columns.to_list() if text is not None] == found
