"""``kfast schema infer``: a schema that fits the newest JSON documents of a topic.

Owns the forms in which it is printed: a dict for ``kfast.Json``, Arrow's types, Spark's DDL, types
of polars, or JSON for a file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

import click

import kfast
from kfast.cli.options import Command, Common, Count, Words
from kfast.cli.positions import Selection
from kfast.cli.ranges import matching_topics, resolve
from kfast.cli.rows import write_lines, write_note
from kfast.errors import ConfigurationError
from kfast.internals import Kind, Position, Range, internals_of
from kfast.schemas import types
from kfast.schemas.ddl import ddl_of_field
from kfast.schemas.schema import Schema
from kfast.schemas.types import DataType, SchemaField

SAMPLE: Final = 1000
FORMS: Final = ("dict", "arrow", "spark", "polars", "json")
_POLARS: Final[Mapping[types.Kind, str]] = {
    types.Kind.BOOL: "Boolean",
    **{
        kind: kind.name.capitalize().replace("Uint", "UInt")
        for kind in map(types.Kind, range(types.Kind.INT8, types.Kind.FLOAT64 + 1))
    },
    types.Kind.STRING: "String",
    types.Kind.DATE32: "Date",
    types.Kind.TIME32: "Time",
    types.Kind.TIME64: "Time",
    types.Kind.DICTIONARY: "Categorical",
}
"""The others are bytes."""
_UNITS: Final = {"s": "ms"}
"""polars has no seconds."""


def infer_schema(
    common: Common,
    topic: str,
    sample: int,
    column: str,
    timestamps: bool,
    ddl: bool,
    form: str,
    report: bool,
) -> None:
    """Print the schema of the newest records of a topic."""
    documents: list[bytes | None] = []
    for batch in newest(common, topic, sample, [column]):
        values: Any = batch.keys if column == "key" else batch.values
        documents += values.to_list()
    if not documents:
        raise ConfigurationError(
            f'"{topic}" has no records to infer a schema of', hint="write some JSON to it first"
        )
    reader = kfast.Json.infer(documents, timestamps=timestamps)
    write_schema(reader.schema, "spark" if ddl else form)
    counts = reader.report
    assert counts is not None
    if report:
        write_note(str(counts))
    elif counts.bad and not common.is_quiet:
        write_note(
            f"{counts.bad} of {counts.documents} documents cannot be read as JSON (--report)"
        )


def newest(common: Common, topic: str, sample: int, columns: Collection[str]) -> kfast.TopicScan:
    """Return the newest records of each partition of a topic."""
    with kfast.KafkaConsumer(config=common.configs()) as consumer:
        ranges, _ = resolve(
            internals_of(consumer),
            lambda: matching_topics(consumer, [topic]),
            Selection(Range(Position(Kind.BEFORE_END, sample))),
            None,
            skips_lost=True,
        )
    return kfast.scan_topic(
        [*ranges],
        start={tp: start for tp, (start, _) in ranges.items()},
        end={tp: end for tp, (_, end) in ranges.items()},
        columns=columns,
        config=common.configs(),
    )


def write_schema(schema: Schema | None, form: str) -> None:
    """Write a schema in one of the forms; its names may be anything."""
    write_lines(schema_text(schema, form), is_json=form == "json")


def schema_text(schema: Schema | None, form: str) -> str:
    """Return a schema in one of the forms."""
    assert schema is not None
    root = schema.root
    if form == "spark":
        return ddl_of_field(root)
    if form == "polars":
        return _polars_text(root)
    if form == "json":
        return json.dumps(_plain(root), ensure_ascii=False, indent=2)
    if form == "arrow" and schema.names:
        return "\n".join(f"{field.quoted_name}: {field.type_text}" for field in root.type.fields)
    return root.type_text if form == "arrow" else repr(schema)


def _polars_text(root: SchemaField) -> str:
    if root.type.kind is not types.Kind.STRUCT:
        return _polars_type(root.type)
    members = (f"    {field.name!r}: {_polars_type(field.type)},\n" for field in root.type.fields)
    return "{\n" + "".join(members) + "}"


def _polars_type(data_type: DataType) -> str:
    kind = data_type.kind
    if kind is types.Kind.STRUCT:
        members = ", ".join(
            f"{field.name!r}: {_polars_type(field.type)}" for field in data_type.fields
        )
        return f"pl.Struct({{{members}}})"
    if kind is types.Kind.LIST:
        return f"pl.List({_polars_type(data_type.item.type)})"
    if kind is types.Kind.MAP:  # polars has no maps
        value = _polars_type(data_type.fields[1].type)
        return f"pl.List(pl.Struct({{'key': pl.String, 'value': {value}}}))"
    if kind is types.Kind.TIMESTAMP:
        zone = ', "UTC"' if data_type.is_utc else ""
        return f'pl.Datetime("{_UNITS.get(data_type.unit, data_type.unit)}"{zone})'
    if kind is types.Kind.DURATION:
        return f'pl.Duration("{_UNITS.get(data_type.unit, data_type.unit)}")'
    if kind in {types.Kind.DECIMAL128, types.Kind.DECIMAL256}:
        return f"pl.Decimal({data_type.precision}, {data_type.scale})"
    if kind is types.Kind.RAW and data_type.is_json:
        return "pl.String"
    return f"pl.{_POLARS.get(kind, 'Binary')}"


def _plain(field: SchemaField) -> Any:
    """Return a field as a dict schema has it; all of what is inferred is nullable."""
    if field.type.kind is types.Kind.STRUCT:
        return {member.name: _plain(member) for member in field.type.fields}
    if field.type.kind is types.Kind.LIST:
        return [_plain(field.type.item)]
    return field.type_text


def infer_parameters(form: str, *, needs_topic: bool = True) -> list[click.Parameter]:
    """Make arguments and options; ``form`` is the usual one."""
    return [
        click.Argument(["topic"], metavar="TOPIC", required=needs_topic),
        click.Option(
            ["sample", "-n", "--sample"],
            type=Count(),
            default=SAMPLE,
            help=f"newest records of each partition (default {SAMPLE})",
        ),
        click.Option(
            ["--column"],
            type=Words(("key", "value")),
            default="value",
            help="whose documents (default value)",
        ),
        click.Option(
            ["--timestamps"],
            is_flag=True,
            help="texts that are all timestamps of RFC 3339 are timestamps",
        ),
        click.Option(["--ddl"], is_flag=True, help="Spark's DDL, as --as spark"),
        click.Option(
            ["form", "--as"],
            type=Words(FORMS),
            default=form,
            help=f"how the schema is printed (default {form})",
        ),
        click.Option(["--report"], is_flag=True, help="what each path has had, on standard error"),
    ]


INFER: Final = Command(
    "infer",
    callback=click.pass_obj(infer_schema),
    help="Print a schema that fits the newest JSON documents of a topic, as a dict to paste into "
    "kfast.Json. Kinds that do not go together become raw.",
    params=infer_parameters("dict"),
    examples=(
        "kfast schema infer orders",
        "kfast schema infer orders --timestamps --ddl",
        "kfast schema infer orders -n 100 --report",
    ),
)
