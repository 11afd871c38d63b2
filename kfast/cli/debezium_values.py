"""The options of ``kfast ingest`` for change events of Debezium, and the deserializer they mean.

Owns their names. What values are besides, ``--value`` and its options say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from kfast.cli.options import Words
from kfast.cli.typed_values import TypedOptions, read_schema
from kfast.errors import ConfigurationError
from kfast.schemas.formats import TYPED_FORMATS

if TYPE_CHECKING:
    from kfast.deserializers.debezium import Debezium
    from kfast.deserializers.typed import TypedDeserializer

EVENTS: Final = ("envelope", "payload", "rows")
_DECIMALS: Final = ("precise", "string", "double")
_JSON: Final = "json"


def debezium_options() -> list[click.Parameter]:
    """Make the options."""
    return [
        click.Option(
            ["--upsert"],
            default="",
            metavar="KEY,...",
            help="with --format delta: rows are inserted, updated and deleted by these columns",
        ),
        click.Option(
            ["--debezium"],
            type=Words(EVENTS),
            help="values are events of Debezium: envelopes, of json also those in payload, or rows "
            "that ExtractNewRecordState has flattened; --value-schema of json is that of the rows",
        ),
        click.Option(
            ["decimals", "--debezium-decimals"],
            type=Words(_DECIMALS),
            help="decimal.handling.mode of the connector, for json",
        ),
    ]


def without_json(
    events: str | None, typed: Mapping[str, TypedOptions], kind: str
) -> Mapping[str, TypedOptions]:
    """Return the options of a deserializer, without those that are of events of JSON."""
    if events is None or kind != _JSON:
        return typed
    return {**typed, "value": TypedOptions()}


def debezium_of(
    events: str,
    decimals: str | None,
    kind: str,
    given: TypedOptions,
    made: TypedDeserializer | None,
) -> Debezium:
    """Return the deserializer of events; ``made`` is that of values of Avro and Protobuf.

    Raises
    ------
    ConfigurationError
        A schema cannot be, or is missing.
    """
    from kfast.deserializers.debezium import Debezium  # noqa: PLC0415 - with NumPy

    if kind not in TYPED_FORMATS:
        raise ConfigurationError(
            f"--debezium: values of kind {kind} have no columns",
            hint=f"--value {' or '.join(TYPED_FORMATS)}",
        )
    options: dict[str, Any] = {"envelope": events != "rows", "decimals": decimals}
    if events == "payload":
        options["payload"] = True
    if kind != _JSON:
        return Debezium(made, **options)
    if given.schema is None:
        raise ConfigurationError(
            "--debezium: events of JSON need the columns of their rows",
            hint="--value-schema TEXT, or @FILE.json with the schema of a message",
        )
    for name in replace(given, schema=None, framing=None).given():
        raise ConfigurationError(f"--value-{name} is not for json", hint="leave it out")
    if given.framing is not None:
        options["framing"] = given.framing
    return Debezium(read_schema("value", kind, given.schema), **options)
