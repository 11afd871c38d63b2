"""``kfast schema show``: the schemas that the newest records of a topic have."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import click

import kfast
from kfast._native.wire_ids import scan
from kfast.cli.options import Command, Common, Count, Words
from kfast.cli.positions import Kind, Position, Range, Selection
from kfast.cli.ranges import matching_topics, resolve
from kfast.cli.registry import registry_of, registry_option
from kfast.cli.rows import Row, format_option, write_rows
from kfast.cli.schema_infer import INFER, infer_parameters, infer_schema
from kfast.records.columns.bytes import BytesColumn
from kfast.registered_schema import SchemaKey

COLUMNS: Final = ("id", "records", "status", "type", "references", "schema")
FRAMINGS: Final = ("confluent", "apicurio")
SAMPLE: Final = 1000
_HEADERS: Final = {"key": b"__key_schema_id", "value": b"__value_schema_id"}
_FOUND: Final = "found"
_UNKNOWN: Final = "unknown"


def _show(
    common: Common,
    topic: str,
    schema_registry: str | None,
    sample: int,
    column: str,
    framing: str,
    format: str,
) -> None:
    with registry_of(common, schema_registry) as registry:
        keys, others = _keys_of(common, topic, sample, column, framing)
        answers = registry.wait_for([*keys])
    rows: list[Row] = []
    for key, count in keys.most_common():
        schema = answers.found.get(key)
        if schema is None:
            rows.append((key.value, count, _UNKNOWN, None, None, None))
            continue
        names = [f"{each.subject}:{each.version}" for each in schema.references]
        rows.append((key.value, count, _FOUND, schema.schema_type, names, schema.text))
    rows += [(None, count, status, None, None, None) for status, count in others.most_common()]
    write_rows(COLUMNS, rows, format)


def _keys_of(
    common: Common, topic: str, sample: int, column: str, framing: str
) -> tuple[Counter[SchemaKey], Counter[str]]:
    """Count the schemas of the newest records, and why others have none."""
    newest = Selection(Range(Position(Kind.BEFORE_END, sample)))
    with kfast.KafkaConsumer(config=common.configs()) as consumer:
        topics = matching_topics(consumer, [topic])
        ranges, _ = resolve(consumer, topics, newest, None, skips_lost=True)
    keys: Counter[SchemaKey] = Counter()
    others: Counter[str] = Counter()
    for batch in kfast.scan_topic(
        [*ranges],
        start={tp: start for tp, (start, _) in ranges.items()},
        end={tp: end for tp, (_, end) in ranges.items()},
        columns=[column, "headers"],
        config=common.configs(),
    ):
        values = batch.keys if column == "key" else batch.values
        assert isinstance(values, BytesColumn)
        wire = scan(
            framing, *values.spans, headers=batch.headers.index, header_name=_HEADERS[column]
        )
        for (kind, value, _), rows in zip(wire.keys, wire.key_rows(), strict=True):
            keys[_key(kind, value)] += rows
        for number in range(len(wire)):
            _, rows, key, _, status = wire[number]
            if key < 0:
                others[status] += rows
    return keys, others


def _key(kind: str, value: int | bytes) -> SchemaKey:
    if isinstance(value, bytes):
        return SchemaKey.of_guid(value)
    return SchemaKey.of_id(value) if kind == "id" else SchemaKey.of_global_id(value)


_SHOW: Final = Command(
    "show",
    callback=click.pass_obj(_show),
    help="List the schemas that the newest records of a topic have, with how many have each. A "
    "record without one has a status: null, empty, truncated, magic (not framed), glue.",
    params=[
        click.Argument(["topic"], metavar="TOPIC"),
        registry_option(),
        click.Option(
            ["sample", "-n", "--sample"],
            type=Count(),
            default=SAMPLE,
            help=f"newest records of each partition (default {SAMPLE})",
        ),
        click.Option(
            ["--column"],
            type=Words(tuple(_HEADERS)),
            default="value",
            help="whose schemas (default value)",
        ),
        click.Option(
            ["--framing"],
            type=Words(FRAMINGS),
            default=FRAMINGS[0],
            help="how records name their schemas (default confluent)",
        ),
        format_option(),
    ],
    examples=(
        "kfast schema show orders --schema-registry http://localhost:8081",
        "kfast schema show orders -n 100000 -f csv",
        "kfast schema show orders -f json | jq -r '.[0].schema'",
    ),
)


def _schema(ctx: click.Context, topic: str | None, **options: Any) -> None:
    if topic is None:
        click.echo(ctx.get_help())
    else:
        infer_schema(ctx.obj, topic, **options)


command = Command(
    "schema",
    callback=click.pass_context(_schema),
    help="Print the schema of a topic's JSON values as Arrow types. kfast schema infer prints it "
    "as a dict; kfast schema show lists the schemas that a registry has for the records.",
    params=infer_parameters("arrow", needs_topic=False),
    examples=(
        "kfast schema orders",
        "kfast schema infer orders",
        "kfast schema show orders --schema-registry http://localhost:8081",
    ),
    subcommands={"show": _SHOW, "infer": INFER},
)
