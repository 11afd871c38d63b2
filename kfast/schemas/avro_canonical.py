"""Fingerprints of Avro schemas, by which single-object encoding names the writer's.

The Parsing Canonical Form of Avro's specification: what matters for reading bytes, written in one
way. Its CRC-64-AVRO is the fingerprint.
"""

from __future__ import annotations

import json

from kfast._native import wire_ids
from kfast.schemas.avro_text import AvroKind, AvroType


def canonical_form(avro: AvroType) -> str:
    """Return the Parsing Canonical Form of a schema."""
    return _written(avro, set())


def fingerprint(avro: AvroType) -> int:
    """Return the CRC-64-AVRO of a schema, as an unsigned number."""
    return wire_ids.fingerprint(canonical_form(avro).encode())


def _written(avro: AvroType, defined: set[str]) -> str:
    kind = avro.kind.name.lower()
    if avro.kind is AvroKind.UNION:
        return f"[{','.join(_written(branch, defined) for branch in avro.types)}]"
    if avro.kind is AvroKind.ARRAY:
        return f'{{"type":"array","items":{_written(avro.types[0], defined)}}}'
    if avro.kind is AvroKind.MAP:
        return f'{{"type":"map","values":{_written(avro.types[0], defined)}}}'
    if not avro.name:
        return f'"{kind}"'
    if avro.name in defined or avro.kind is AvroKind.RECURSION:
        return _text(avro.name)
    defined.add(avro.name)
    begin = f'{{"name":{_text(avro.name)},"type":"{kind}"'
    if avro.kind is AvroKind.FIXED:
        return f'{begin},"size":{avro.size}}}'
    if avro.kind is AvroKind.ENUM:
        return f'{begin},"symbols":[{",".join(map(_text, avro.symbols))}]}}'
    fields = (
        f'{{"name":{_text(field.name)},"type":{_written(field.type, defined)}}}'
        for field in avro.fields
    )
    return f'{begin},"fields":[{",".join(fields)}]}}'


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
