"""Random Protobuf: schemas as ``.proto`` text, and messages of them as bytes, slow and obvious.

A message is a list of fields in any order, so it has all that the wire allows: fields more than
once, sub-messages in parts, packed and unpacked numbers mixed, several members of a oneof, entries
of maps without key or value, unknown fields and groups, varints with more bytes than they need.
"""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from kfast.schemas.descriptors import ProtoField, ProtoPool, ProtoType
from tests.reference.protobuf_decoder import BYTES, FIXED, FIXED32, FIXED64, VARINT, WIRE_TYPES

KEYS = (
    "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
    "sfixed64", "bool", "string",
)  # fmt: skip
SCALARS = (*KEYS, "float", "double", "bytes")
WELL_KNOWN = {
    "google.protobuf.Timestamp": "timestamp", "google.protobuf.Duration": "duration",
    "google.protobuf.Int32Value": "wrappers", "google.protobuf.StringValue": "wrappers",
    "google.protobuf.Struct": "struct", "google.protobuf.Any": "any",
    "google.protobuf.Empty": "empty",
}  # fmt: skip
UNKNOWN = range(900, 1000)
"""Numbers of fields that no schema has."""


# --- schemas --------------------------------------------------------------------------------------


@st.composite
def schemas(draw: st.DrawFn, *, has_groups: bool = False) -> str:
    """Draw the text of a file whose first message is ``Root``, the only one with groups."""
    is_proto3 = draw(st.booleans())
    count = draw(st.integers(0, 3))
    names = ["Root", *(f"M{n}" for n in range(count))]
    enums = ["Open"] if is_proto3 else ["Closed"]
    text = ""
    for name in names:
        body = draw(_members(names[1:], enums, is_proto3, has_groups and name == "Root"))
        text += f"message {name} {{\n{body}}}\n"
    if is_proto3:
        text += "enum Open { option allow_alias = true; A = 0; B = 1; C = 1; D = -5; E = 70000; }\n"
    else:
        text += "enum Closed { X = 3; Y = 7; Z = -1; }\nenum WithZero { O = 0; P = 1; }\n"
    imports = {file for name, file in WELL_KNOWN.items() if name in text}
    lines = "".join(f'import "google/protobuf/{name}.proto";\n' for name in sorted(imports))
    return f'syntax = "proto{3 if is_proto3 else 2}";\npackage p;\n{lines}{text}'


@st.composite
def _members(
    draw: st.DrawFn, messages: list[str], enums: list[str], is_proto3: bool, has_groups: bool
) -> str:
    numbers = draw(
        st.lists(st.integers(1, 40) | st.sampled_from([500, 536870911]), min_size=1, max_size=7,
                 unique=True)
    )  # fmt: skip
    of_oneof = draw(st.sets(st.sampled_from(numbers), max_size=3))
    lines, inside = [], []
    for number in numbers:
        name = f"f{number}"
        kind = draw(st.sampled_from([*SCALARS, *WELL_KNOWN, *enums * 3, *messages * 3]))
        if number in of_oneof:
            inside.append(f"    {kind} {name} = {number};\n")
            continue
        shape = draw(st.sampled_from(["plain", "optional", "repeated", "map", "group"]))
        if shape == "map":
            key = draw(st.sampled_from(KEYS))
            kind = "WithZero" if kind == "Closed" else kind
            lines.append(f"  map<{key}, {kind}> {name} = {number};\n")
        elif shape == "group" and has_groups and not is_proto3:
            lines.append(f"  optional group G{number} = {number} {{ optional int32 x = 1; }}\n")
        elif shape == "repeated":
            can_pack = kind in SCALARS and kind not in {"string", "bytes"}
            packed = draw(st.sampled_from(["true", "false"])) if can_pack else ""
            lines.append(
                f"  repeated {kind} {name} = {number}{f' [packed = {packed}]' * can_pack};\n"
            )
        elif is_proto3:
            lines.append(f"  {'optional ' * (shape == 'optional')}{kind} {name} = {number};\n")
        else:
            default = draw(st.sampled_from(["", _DEFAULTS.get(kind, "")]))
            is_required = shape == "plain" and not default and kind in SCALARS
            is_required = is_required and draw(st.integers(0, 3)) == 0
            label = "required" if is_required else "optional"
            lines.append(f"  {label} {kind} {name} = {number}{default};\n")
    if inside:
        lines.append(f"  oneof choice {{\n{''.join(inside)}  }}\n")
    return "".join(lines)


_DEFAULTS = {
    "int32": " [default = -5]", "uint64": " [default = 0xFFFFFFFFFFFFFFFF]",
    "string": ' [default = "a\\tü"]', "bytes": ' [default = "\\377"]', "bool": " [default = true]",
    "double": " [default = -inf]", "float": " [default = 0.1]", "Closed": " [default = Y]",
}  # fmt: skip


# --- messages -------------------------------------------------------------------------------------


def varint(number: int, size: int = 1) -> bytes:
    """Return a number of 64 bits, 7 bits per byte, in at least ``size`` bytes."""
    left = number & 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while left > 0x7F or len(out) + 1 < size:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def tagged(number: int, wire: int, value: bytes) -> bytes:
    return varint(number << 3 | wire) + value


def sized(raw: bytes) -> bytes:
    return varint(len(raw)) + raw


@st.composite
def messages(
    draw: st.DrawFn,
    pool: ProtoPool,
    full_name: str,
    depth: int = 3,
    *,
    as_runtime: bool = False,
) -> bytes:
    """Draw bytes that are a message, and may lack what is required.

    ``as_runtime`` leaves out what Google's runtime reads in another way than kfast: numbers that a
    closed enum does not have, which it takes for unknown fields, and unknown fields in entries of
    maps, with which it drops the entry.
    """
    fields = pool.messages[full_name].fields
    has_unknown = not (as_runtime and pool.messages[full_name].is_map_entry)
    required = [f for f in fields if f.is_required] if draw(st.integers(0, 3)) else []
    parts = [draw(_field(pool, field, depth, as_runtime)) for field in required]
    for _ in range(draw(st.integers(0, 8 if depth == 3 else 3))):
        at = draw(st.integers(0, len(fields) if has_unknown else len(fields) - 1))
        is_known = at < len(fields)
        parts.append(
            draw(_field(pool, fields[at], depth, as_runtime) if is_known else unknown_fields())
        )
    return b"".join(parts)


def unknown_fields(depth: int = 3) -> st.SearchStrategy[bytes]:
    """Draw a field that no schema has: of any wire type, groups in groups too."""
    number = st.sampled_from(UNKNOWN)
    plain = st.one_of(
        st.builds(lambda n, v: tagged(n, VARINT, varint(v)), number, st.integers(0, 1 << 64)),
        st.builds(lambda n, v: tagged(n, FIXED64, v), number, st.binary(min_size=8, max_size=8)),
        st.builds(lambda n, v: tagged(n, FIXED32, v), number, st.binary(min_size=4, max_size=4)),
        st.builds(lambda n, v: tagged(n, BYTES, sized(v)), number, st.binary(max_size=5)),
    )
    if not depth:
        return plain
    inner = st.lists(unknown_fields(depth - 1), max_size=2).map(b"".join)
    groups = st.builds(lambda n, v: tagged(n, 3, v) + tagged(n, 4, b""), number, inner)
    return plain | groups


def _field(
    pool: ProtoPool, field: ProtoField, depth: int, as_runtime: bool
) -> st.SearchStrategy[bytes]:
    """Draw one field with its tag."""
    wire = WIRE_TYPES.get(field.type, VARINT)
    if field.type is ProtoType.GROUP:
        end = tagged(field.number, 4, b"")
        return st.just(tagged(field.number, 3, tagged(1, VARINT, b"\5")) + end)
    values = _raw_values(pool, field, depth, as_runtime)
    single = values.map(lambda value: tagged(field.number, wire, value))
    if not field.is_repeated or wire == BYTES:
        return single
    packed = st.lists(values, max_size=4).map(
        lambda parts: tagged(field.number, BYTES, sized(b"".join(parts)))
    )
    return single | packed


def _raw_values(
    pool: ProtoPool, field: ProtoField, depth: int, as_runtime: bool
) -> st.SearchStrategy[bytes]:
    """Draw a value without its tag."""
    kind = field.type
    if kind is ProtoType.MESSAGE:
        name = field.type_name
        return _sub_messages(pool, name, depth, as_runtime).map(sized)
    if kind is ProtoType.ENUM:
        enum = pool.enums[field.type_name]
        numbers = st.sampled_from([number for _, number in enum.values])
        if not (as_runtime and enum.is_closed):
            numbers |= st.integers(-3, 9)
        return numbers.map(varint)
    if kind is ProtoType.STRING:
        return st.text(max_size=5).map(lambda text: sized(text.encode()))
    if kind is ProtoType.BYTES:
        return st.binary(max_size=5).map(sized)
    if kind in FIXED:
        size = struct.calcsize(FIXED[kind])
        if kind in {ProtoType.FLOAT, ProtoType.DOUBLE}:  # not a number is unequal to itself
            floats = st.floats(allow_nan=False, width=32 if size == 4 else 64)
            return floats.map(lambda number: struct.pack(FIXED[kind], number))
        return st.binary(min_size=size, max_size=size)
    edges = [0, 1, -1, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1]
    numbers = st.integers(-2, 2) | st.sampled_from(edges) | st.integers(0, 2**64 - 1)
    return st.builds(varint, numbers, st.sampled_from([1, 1, 1, 2, 10]))


def _sub_messages(
    pool: ProtoPool, name: str, depth: int, as_runtime: bool
) -> st.SearchStrategy[bytes]:
    if name in {"google.protobuf.Timestamp", "google.protobuf.Duration"}:
        return st.lists(
            st.builds(lambda s: tagged(1, VARINT, varint(s)), st.integers(-(10**9), 10**9))
            | st.builds(lambda n: tagged(2, VARINT, varint(n)), st.integers(0, 10**9 - 1))
            | unknown_fields(0),
            max_size=3,
        ).map(b"".join)
    if not depth:
        return st.just(b"")
    return messages(pool, name, depth - 1, as_runtime=as_runtime)
