"""Any writer's and reader's schema: kfast's verdict is that of the avro package."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import avro.compatibility
import avro.schema
from hypothesis import event, given
from hypothesis import strategies as st

from kfast.errors import ConfigurationError
from kfast.schemas.avro_resolution import resolve
from kfast.schemas.avro_text import canonical_form, parse_avro
from tests.property.avro_schemas import Schemas
from tests.soaking import examples


def pair_of(seed: int) -> tuple[Any, Any]:
    """A writer's schema, and one that was made of it by a few changes."""
    schemas = Schemas(Random(seed))
    writer = schemas.record()
    return writer, schemas.evolved(writer, is_root=True)


def reference(writer: Any, reader: Any) -> bool:
    """Whether the avro package reads all values of the writer's schema."""
    one, other = (avro.schema.parse(json.dumps(schema)) for schema in (writer, reader))
    checker = avro.compatibility.ReaderWriterCompatibilityChecker()
    verdict = checker.get_compatibility(other, one).compatibility
    return bool(verdict is avro.compatibility.SchemaCompatibilityType.compatible)


@given(st.integers(0))
@examples(300)
def test_the_verdict_on_a_pair_is_the_reference_resolvers(seed: int) -> None:
    """TC-63: refused or partial where the avro package says incompatible, and nowhere else.

    The avro package has no third verdict: a writer's union or enum with a part that cannot be read
    is incompatible there, and an error of those rows here.
    """
    writer, reader = pair_of(seed)
    is_compatible = reference(writer, reader)
    try:
        step = resolve(parse_avro(json.dumps(writer)), parse_avro(json.dumps(reader)))
    except ConfigurationError:
        event("refused")
        assert not is_compatible
    else:
        event("partial" if step.is_partial else "compatible")
        assert is_compatible is not step.is_partial


@given(st.integers(0))
@examples(100)
def test_a_schema_reads_itself_and_its_canonical_form_is_the_avro_packages(seed: int) -> None:
    """TC-60."""
    text = json.dumps(Schemas(Random(seed)).record())
    schema = parse_avro(text)
    assert not resolve(schema, schema).is_partial
    assert json.loads(canonical_form(schema.root)) == json.loads(
        avro.schema.parse(text).canonical_form
    )
