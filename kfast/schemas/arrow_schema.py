"""Arrow schemas, by PyCapsule and without an Arrow library: to trees of types, and back.

A node is the tuple ``(format, name, is_nullable, metadata, children, dictionary)`` that
``_native.arrow_export`` reads and makes. Names and nullability are kept. Besides extension types
``arrow.uuid`` and ``arrow.json``, metadata that counts is ``kfast:source`` (a path with dots, or a
JSON list of steps) and ``kfast:encoding``.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

from kfast._base.arrow_metadata import decode_metadata, encode_metadata
from kfast._native import arrow_export
from kfast.schemas.field import checked_field, source_steps
from kfast.schemas.names import (
    MAX_FIXED_SIZE,
    UTC_NAMES,
    decimal_type,
    list_type,
    map_type,
    struct_type,
    zone_refusal,
)
from kfast.schemas.refusals import check_nesting, refusal
from kfast.schemas.types import DataType, Kind, SchemaField

Node: TypeAlias = tuple[Any, ...]

SOURCE_KEY: Final = "kfast:source"
ENCODING_KEY: Final = "kfast:encoding"
_EXTENSION: Final = "ARROW:extension:name"
_EXTENSION_DETAILS: Final = "ARROW:extension:metadata"

_SIMPLE: Final = {
    "b": DataType(Kind.BOOL),
    "c": DataType(Kind.INT8),
    "s": DataType(Kind.INT16),
    "i": DataType(Kind.INT32),
    "l": DataType(Kind.INT64),
    "C": DataType(Kind.UINT8),
    "S": DataType(Kind.UINT16),
    "I": DataType(Kind.UINT32),
    "L": DataType(Kind.UINT64),
    "f": DataType(Kind.FLOAT32),
    "g": DataType(Kind.FLOAT64),
    "u": DataType(Kind.STRING),
    "U": DataType(Kind.STRING, is_large=True),
    "z": DataType(Kind.BINARY),
    "Z": DataType(Kind.BINARY, is_large=True),
    "tdD": DataType(Kind.DATE32),
    "tts": DataType(Kind.TIME32, unit="s"),
    "ttm": DataType(Kind.TIME32, unit="ms"),
    "ttu": DataType(Kind.TIME64, unit="us"),
    "ttn": DataType(Kind.TIME64, unit="ns"),
    "tDs": DataType(Kind.DURATION, unit="s"),
    "tDm": DataType(Kind.DURATION, unit="ms"),
    "tDu": DataType(Kind.DURATION, unit="us"),
    "tDn": DataType(Kind.DURATION, unit="ns"),
}
_FORMATS: Final = {data_type: text for text, data_type in _SIMPLE.items()}
_VIEWS: Final = {"vu": DataType(Kind.STRING), "vz": DataType(Kind.BINARY)}
_UNITS: Final = {"s": "s", "m": "ms", "u": "us", "n": "ns"}
_INDEX_FORMATS: Final = frozenset("cCsSiIlL")
_TEXT_FORMATS: Final = frozenset({"u", "U", "vu"})
_REFUSED: Final = {
    "n": ("null", "leave the field out"),
    "e": ("float16", 'write "float32"'),
    "tdm": ("date64", 'write "date32"'),
    "+r": ("run-end encoded", None),
}
_REFUSED_PREFIXES: Final = {
    "ti": ("an interval", 'write "duration[ms]" or "int64"'),
    "+w": ("a list of fixed size", 'write "list<...>"'),
    "+v": ("a list view", 'write "list<...>"'),
    "+u": ("a union", 'write "raw"'),
}
_UUID_BYTES: Final = 16


def field_of_arrow(schema: Any, path: str = "", depth: int = 0) -> SchemaField:
    """Return the field that an object with ``__arrow_c_schema__`` describes.

    Raises
    ------
    ConfigurationError
        It has a type that columns cannot have; the message has the path.
    """
    return _field_of_node(arrow_export.read_schema(schema.__arrow_c_schema__()), path, depth)


def schema_capsule(field: SchemaField) -> object:
    """Return the ``arrow_schema`` capsule of a field."""
    return arrow_export.schema_capsule(arrow_node(field))


def arrow_node(field: SchemaField) -> Node:
    """Return the node of a field and all below it."""
    kind = field.type.kind
    entries: dict[str, str] = {}
    children: tuple[Node, ...] = tuple(map(arrow_node, field.type.fields))
    dictionary: Node | None = None
    if kind is Kind.MAP:
        children = (("+s", "entries", False, None, children, None),)
    if kind is Kind.DICTIONARY:
        dictionary = ("u", "", True, None, (), None)
    if kind is Kind.UUID or (kind is Kind.RAW and field.type.is_json):
        entries[_EXTENSION] = "arrow.uuid" if kind is Kind.UUID else "arrow.json"
        entries[_EXTENSION_DETAILS] = ""
    if field.source:
        entries[SOURCE_KEY] = _source_text(field.source)
    if field.encoding:
        entries[ENCODING_KEY] = field.encoding
    metadata = encode_metadata(entries) if entries else None
    return arrow_format(field.type), field.name, field.is_nullable, metadata, children, dictionary


def arrow_format(data_type: DataType) -> str:
    """Return a type's format string in the Arrow C data interface."""
    kind = data_type.kind
    if kind is Kind.NULL:
        return "n"
    simple = _FORMATS.get(data_type)
    if simple is not None:
        return simple
    if kind is Kind.TIMESTAMP:
        return f"ts{data_type.unit[0]}:{'UTC' if data_type.is_utc else ''}"
    if kind in {Kind.DECIMAL128, Kind.DECIMAL256}:
        return (
            f"d:{data_type.precision},{data_type.scale}{',256' if kind is Kind.DECIMAL256 else ''}"
        )
    if kind in {Kind.UUID, Kind.FIXED_BINARY}:
        return f"w:{data_type.width}"
    if kind is Kind.LIST:
        return "+L" if data_type.is_large else "+l"
    if kind is Kind.RAW:
        return "u" if data_type.is_json else "z"
    return {Kind.DICTIONARY: "i", Kind.MAP: "+m", Kind.STRUCT: "+s"}[kind]


def _source_text(source: tuple[str, ...]) -> str:
    text = ".".join(source)
    return text if source_steps(text, "") == source and text[0] != "[" else json.dumps(source)


def _field_of_node(node: Node, path: str, depth: int) -> SchemaField:
    _, name, is_nullable, raw, _, _ = node
    metadata = decode_metadata(raw)
    data_type = _type_of_node(node, metadata.get(_EXTENSION, ""), path, depth)
    source: object = metadata.get(SOURCE_KEY)
    if isinstance(source, str) and source.startswith("["):
        try:
            source = tuple(json.loads(source))
        except (ValueError, TypeError):
            raise refusal(path, f"{SOURCE_KEY} is no list of steps: {source}") from None
    return checked_field(
        SchemaField(
            name,
            data_type,
            is_nullable,
            source=source_steps(source, path),
            encoding=metadata.get(ENCODING_KEY, ""),
        ),
        path,
    )


def _type_of_node(node: Node, extension: str, path: str, depth: int) -> DataType:
    text, _, _, _, children, dictionary = node
    if dictionary is not None:
        if text in _INDEX_FORMATS and dictionary[0] in _TEXT_FORMATS:
            return DataType(Kind.DICTIONARY)
        raise refusal(path, "a dictionary has values of text", 'write "dictionary"')
    if extension == "arrow.json" and text in _TEXT_FORMATS:
        return DataType(Kind.RAW, is_json=True)
    simple = _SIMPLE.get(text) or _VIEWS.get(text)
    if simple is not None:
        return simple
    if text.startswith("ts"):
        zone = text[4:]
        if zone and zone.lower() not in UTC_NAMES:
            raise zone_refusal(path, zone)
        return DataType(Kind.TIMESTAMP, unit=_UNITS[text[2]], is_utc=bool(zone))
    if text.startswith("d:"):
        numbers = [int(number) for number in text[2:].split(",")]
        is_wide = len(numbers) == 3 and numbers[2] > 128
        return decimal_type(
            Kind.DECIMAL256 if is_wide else Kind.DECIMAL128, numbers[0], numbers[1], path
        )
    if text.startswith("w:"):
        size = int(text[2:])
        if extension == "arrow.uuid" and size == _UUID_BYTES:
            return DataType(Kind.UUID)
        if not 0 < size <= MAX_FIXED_SIZE:
            raise refusal(path, f"a fixed size is 1 to {MAX_FIXED_SIZE} bytes, not {size}")
        return DataType(Kind.FIXED_BINARY, size=size)
    if text in {"+l", "+L", "+m", "+s"}:
        return _nested(text, children, path, depth + 1)
    type_name, hint = _REFUSED.get(text) or _REFUSED_PREFIXES.get(text[:2]) or (f'"{text}"', None)
    raise refusal(path, f"columns cannot have this Arrow type: {type_name}", hint)


def _nested(text: str, children: tuple[Node, ...], path: str, depth: int) -> DataType:
    check_nesting(path, depth)
    if text == "+m":
        key, value = children[0][4]
        return map_type(
            _field_of_node(key, f"{path}{{key}}", depth).type,
            _field_of_node(value, f"{path}{{value}}", depth),
            path,
        )
    if text == "+s":
        fields = [
            _field_of_node(child, f"{path}.{child[1]}" if path else child[1], depth)
            for child in children
        ]
        return struct_type(fields, path)
    return list_type(_field_of_node(children[0], f"{path}[]", depth), is_large=text == "+L")
