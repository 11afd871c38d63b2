"""Schemas of keys and values of a query: the default one, and the columns that are asked for.

Owns which schema gives the columns, and that they can become those of the query; both are found
when the query is planned. A version of a registry's subject is looked up on the driver, once per
query, logged, and read by its number on all workers, so that a version that is registered meanwhile
changes nothing. Each process has one `SchemaRegistry` with its cache.

For formats with typed columns only: it imports the decoders.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from kfast._base.logs import get_logger
from kfast.deserializers.formats import known_root
from kfast.errors import ConfigurationError
from kfast.registry.registered_schema import AVRO, PROTOBUF, SchemaKey
from kfast.registry.schema_registry import SchemaRegistry
from kfast.schemas.ddl import ddl_type
from kfast.schemas.proto_folders import read_imports
from kfast.table.arrow_batches import deserializers_of
from kfast.table.projection import ColumnFormat, OutputColumn, Projection
from kfast.table.value_types import check_conversion, field_of_spark, in_spark

if TYPE_CHECKING:
    from kfast.deserializers.typed import TypedDeserializer
    from kfast.schemas.types import SchemaField
    from kfast.spark.source.options import SourceOptions

logger = get_logger(__name__)

_REGISTRIES: Final[dict[SchemaRegistry, SchemaRegistry]] = {}
_SCHEMA_TYPES: Final = {"avro": AVRO, "protobuf": PROTOBUF}


def registry_of(arguments: Mapping[str, object]) -> SchemaRegistry | None:
    """Return this process's registry with these arguments; None without any."""
    if not arguments:
        return None
    registry = SchemaRegistry(**arguments)  # type: ignore[arg-type]  # checked with the options
    return _REGISTRIES.setdefault(registry, registry)


def default_type(source: str, options: SourceOptions) -> str:
    """Return the type of ``key`` or ``value`` in a query without a user's schema, in Spark's DDL.

    Raises
    ------
    ConfigurationError
        The format needs a schema, or the registry has none that columns can have.
    SchemaRegistryError
        The registry cannot be reached, or refuses.
    """
    if options.format_of(source).kind == "json":
        raise ConfigurationError(
            f"{source}Format = json needs a schema",
            hint=f'.schema("offset long, {source} struct<id: long, price: double>")',
        )
    root = _root(source, planned_format(source, options), None, options)
    return ddl_type(in_spark(root, source), source)


def planned_format(
    source: str, options: SourceOptions, column: OutputColumn | None = None
) -> ColumnFormat:
    """Return how workers decode ``key`` or ``value``: the same whatever is registered meanwhile.

    Raises
    ------
    ConfigurationError
        Arguments do not fit the format, or the column is not what values can become.
    SchemaRegistryError
        The registry cannot be reached, or refuses.
    """
    form = options.format_of(source)
    arguments = dict(form.arguments)
    if "descriptor_set" in arguments:
        folders = arguments.pop("imports", None)
        arguments |= _descriptors(source, arguments["descriptor_set"], folders)
    elif "imports" in arguments:
        raise _no_text(source)
    if _is_looked_up(options, source, arguments):
        version = _registered(source, options)
        arguments["options"] = {**arguments.get("options", {}), "reader": version}
    column_format = ColumnFormat(form.kind, arguments)
    if column is not None:
        field = field_of_spark(column.json_type, column.name)
        if form.kind != "json":
            check_conversion(_root(source, column_format, column, options), field, column.name)
        else:
            _deserializer(source, column_format, column, options)
    return column_format


def followed_columns(options: SourceOptions) -> list[str]:
    """Return which of ``key`` and ``value`` have the columns of a subject's latest version."""
    return [
        source
        for source in ("key", "value")
        for form in (options.format_of(source),)
        if form.version is None and _is_looked_up(options, source, form.arguments)
    ]


def latest_version(source: str, options: SourceOptions) -> str:
    """Return the version that `planned_format` reads by now, as a reader is named.

    Raises
    ------
    SchemaRegistryError
        The registry cannot be reached, or refuses.
    """
    return _registered(source, options)


def _is_looked_up(options: SourceOptions, source: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the columns are those of a subject's version."""
    framing = arguments.get("framing", "confluent" if options.registry else "none")
    is_given = bool({"schema", "descriptor_set"} & arguments.keys())
    is_given |= "reader" in arguments.get("options", {})
    return (
        options.format_of(source).kind in _SCHEMA_TYPES
        and bool(options.registry)
        and framing in {"confluent", "apicurio"}
        and not is_given
    )


def _registered(source: str, options: SourceOptions) -> str:
    """Return the version of a subject that gives the columns, as a reader is named."""
    form, registry = options.format_of(source), registry_of(options.registry)
    assert registry is not None
    subject = form.subject
    if subject is None:
        names = options.topics.names or frozenset()
        if len(names) != 1:
            raise ConfigurationError(
                f"the subject of the {source}s' schema is not known: the query has several topics",
                hint=f'.option("{source}Subject", "orders-{source}"), or give the schema',
            )
        (topic,) = names
        subject = f"{topic}-{source}"
    key = SchemaKey.of_version(subject, form.version)
    answers = registry.wait_for([key], is_serialized=form.kind == "protobuf")
    schema = answers.schemas.get(key)
    if schema is None:
        raise registry.not_there(key)
    if schema.schema_type != _SCHEMA_TYPES[form.kind]:
        raise ConfigurationError(
            f'subject "{subject}" has a schema of {schema.schema_type}, and {source}Format is '
            f"{form.kind}",
            hint=f"set {source}Format, or {source}Subject",
        )
    logger.info("%ss are read by %s", source, schema)
    return f"{subject}:{form.version or schema.version}"


def _root(
    source: str, form: ColumnFormat, column: OutputColumn | None, options: SourceOptions
) -> SchemaField:
    deserializer = _deserializer(source, form, column, options)
    root = known_root(deserializer, "", source)
    if root is None:  # the columns would be those of the first value, wherever a task begins
        raise ConfigurationError(
            f"the schema of the {source}s is not known",
            hint=f"set {source}Schema, or {source}Subject of a registry",
        )
    return root


def _deserializer(
    source: str, form: ColumnFormat, column: OutputColumn | None, options: SourceOptions
) -> TypedDeserializer:
    columns = () if column is None else (column,)
    plain = ColumnFormat()
    projection = Projection(
        columns,
        value=form if source == "value" else plain,
        key=form if source == "key" else plain,
        mode="FAILFAST",  # decoded, whether there is a column or not
    )
    deserializers = deserializers_of(
        projection, registry_of(options.registry), spelled=lambda name: _spelled(source, name)
    )
    return cast("TypedDeserializer", deserializers[source])


def _spelled(source: str, argument: str) -> str:
    """Return the option that has an argument of ``deserializer_of``."""
    if argument == "registry":
        return "schemaRegistry.url"
    return source + "".join(word.capitalize() for word in argument.split("_"))


def _descriptors(source: str, text: str, folders: str | None) -> dict[str, Any]:
    """Return the descriptors that are given as base64, or in a file of the driver.

    Of a ``.proto`` file that is its text, with those of the files that it imports.
    """
    path, proto = Path(text), None
    try:
        if path.is_file() and path.suffix == ".proto":
            proto = path.read_text(encoding="utf-8-sig")
        elif path.is_file():
            text = base64.b64encode(path.read_bytes()).decode()
    except (OSError, ValueError):  # too long for a name, or not text
        pass
    if proto is not None:
        around = [*filter(None, (folders or "").split(",")), str(path.parent)]
        return {"descriptor_set": proto, "imports": read_imports(proto, around)}
    if folders is not None:
        raise _no_text(source)
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigurationError(
            f"option {source}DescriptorSet is neither a file nor base64",
            hint="protoc --include_imports --descriptor_set_out=FILE x.proto",
        ) from None
    return {"descriptor_set": {"base64": text}}


def _no_text(source: str) -> ConfigurationError:
    return ConfigurationError(
        f"option {source}Imports is for a .proto file", hint=f"set {source}DescriptorSet to one"
    )
