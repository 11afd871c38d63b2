"""``kfast schema``: the schema of a topic as columns, and those that its newest records name."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

import kfast
from kfast.cli.admin import note
from kfast.cli.options import Command, Common, Count, Words
from kfast.cli.registry import find_registry, registry_of, registry_option
from kfast.cli.rows import Cell, Row, format_option, write_rows
from kfast.cli.schema_infer import INFER, infer_parameters, infer_schema, newest, write_schema
from kfast.columns.bytes import BytesColumn
from kfast.deserializers.formats import known_root
from kfast.errors import ConfigurationError
from kfast.internals import scan
from kfast.registry.registered_schema import JSON, PROTOBUF, SchemaKey
from kfast.schemas.proto_schema import registered_pool
from kfast.schemas.protobuf_columns import message_columns
from kfast.schemas.schema import Schema

if TYPE_CHECKING:
    from kfast import SchemaRegistry
    from kfast.registry.registered_schema import RegisteredSchema

COLUMNS: Final = ("id", "records", "status", "latest", "type", "references", "schema")
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
    newest = SchemaKey.of_version(f"{topic}-{column}")
    with registry_of(common, schema_registry) as registry:
        # Before anything is read: whether this is a registry at all.
        latest = registry.wait_for([newest]).schemas.get(newest)
        keys, others = _keys_of(common, topic, sample, column, framing)
        answers = registry.wait_for([*keys])
    rows: list[Row] = []
    is_used = False
    for key, count in keys.most_common():
        schema = answers.schemas.get(key)
        if schema is None:
            rows.append((key.value, count, _UNKNOWN, None, None, None, None))
            continue
        is_latest = latest is not None and _is_same(schema, latest)
        is_used = is_used or is_latest
        rows.append((key.value, count, _FOUND, None if latest is None else is_latest, *_of(schema)))
    if latest is not None and not is_used:
        rows.append((latest.id, 0, _FOUND, True, *_of(latest)))
    rows += [
        (None, count, status, None, None, None, None) for status, count in others.most_common()
    ]
    write_rows(COLUMNS, rows, format)


def _of(schema: RegisteredSchema) -> tuple[Cell, Cell, Cell]:
    names = [f"{reference.subject}:{reference.version}" for reference in schema.references]
    return schema.schema_type, names, schema.text


def _is_same(one: RegisteredSchema, other: RegisteredSchema) -> bool:
    return (one.schema_type, one.text) == (other.schema_type, other.text)


def _keys_of(
    common: Common, topic: str, sample: int, column: str, framing: str
) -> tuple[Counter[SchemaKey], Counter[str]]:
    """Count the schemas of the newest records, and why others have none."""
    keys: Counter[SchemaKey] = Counter()
    others: Counter[str] = Counter()
    for batch in newest(common, topic, sample, [column, "headers"]):
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
    help="List the schemas that the newest records of a topic have, with how many have each, and "
    "the latest one of the topic's subject. A record without one has a status: null, empty, "
    "truncated, magic (not framed), glue.",
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


def _schema(
    ctx: click.Context,
    topic: str | None,
    schema_registry: str | None,
    message: str | None,
    **options: Any,
) -> None:
    if topic is None:
        click.echo(ctx.get_help())
        return
    common: Common = ctx.obj
    column = options["column"]
    registry = find_registry(common, schema_registry)
    if registry is not None:
        with registry:
            schema = _registered(registry, topic, column, message)
        if schema is not None:
            write_schema(schema, "spark" if options["ddl"] else options["form"])
            return
        note(common, f"the registry has no columns for {topic}-{column}: this is of its JSON")
    infer_schema(common, topic, **options)


def _registered(
    registry: SchemaRegistry, topic: str, column: str, message: str | None
) -> Schema | None:
    """Return the columns of the latest schema of a topic's subject, None if there are none."""
    key = SchemaKey.of_version(f"{topic}-{column}")
    schema = registry.wait_for([key], is_serialized=True).schemas.get(key)
    if schema is None or schema.schema_type == JSON:
        return None
    if schema.schema_type == PROTOBUF:
        return _of_protobuf(schema, message)
    root = known_root(kfast.Avro(reader=f"{key.value}:latest", registry=registry), topic, column)
    return None if root is None else Schema(root)


def _of_protobuf(schema: RegisteredSchema, message: str | None) -> Schema:
    pool = registered_pool(schema)
    names = pool.files[pool.main]
    if message is None:
        if len(names) != 1:
            raise ConfigurationError(
                f"the schema of {schema.subject} has several messages",
                found=", ".join(names),
                hint=f"--message {names[0]}" if names else "kfast schema show",
            )
        message = names[0]
    return Schema(message_columns(pool, message).root)


command = Command(
    "schema",
    callback=click.pass_context(_schema),
    help="Print the schema of a topic's values as Arrow types: the latest one of a registry, if "
    "one is named, else one that fits its JSON. kfast schema infer prints the latter as a dict; "
    "kfast schema show lists the schemas that a registry has for the records.",
    params=[
        *infer_parameters("arrow", needs_topic=False),
        registry_option(),
        click.Option(
            ["--message"], metavar="NAME", help="message of a schema of Protobuf with several"
        ),
    ],
    examples=(
        "kfast schema orders",
        "kfast schema orders --schema-registry http://localhost:8081 --ddl",
        "kfast schema show orders --schema-registry http://localhost:8081",
    ),
    subcommands={"show": _SHOW, "infer": INFER},
)
