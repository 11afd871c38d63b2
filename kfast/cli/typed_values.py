"""Keys and values of ``kfast read`` with a schema: options, schemas of files, and what is bad.

Owns: ``--value``, ``--value-schema`` and the like as deserializers, and the file of ``--errors``.
Which formats there are, and what each takes, is in ``kfast.schemas.formats``.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kfast._base.optional import optional_package
from kfast.cli.options import Words
from kfast.cli.output import Output, open_output
from kfast.errors import ConfigNotFoundError, ConfigurationError, DeserializationError
from kfast.schemas.formats import FORMATS, TYPED_FORMATS

if TYPE_CHECKING:
    from kfast.columns.record_errors import RecordErrors
    from kfast.deserializers.typed import TypedDeserializer
    from kfast.registry.registered_schema import SchemaSource

FRAMINGS: Final = tuple(dict.fromkeys(f for row in FORMATS.values() for f in row.framings))
_OF_REGISTRY: Final = frozenset({"confluent", "apicurio"})
_ENDINGS: Final = {
    "json": (".json", ".sql"),
    "avro": (".avsc", ".json"),
    "protobuf": (".proto", ".desc"),
}
"""Files of schemas."""
_NAMES: Final = ("schema", "framing", "message", "imports")
"""Options of keys and values besides their kind."""
_VERSION: Final = re.compile(r"latest|[^\s;{]+:(?:latest|\d+)")
"""A version of a subject in place of a schema."""
_ERROR_ENDINGS: Final = (".jsonl", ".parquet")
_ERROR_ROWS: Final = 1 << 12
"""Errors that are written at a time."""


@dataclass(slots=True, frozen=True)
class TypedOptions:
    """What is said of keys or values besides their kind."""

    schema: str | None = None
    framing: str | None = None
    message: str | None = None
    imports: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """Return the names of the options that are given."""
        return [name for name in _NAMES if getattr(self, name)]


def taken_options(values: dict[str, Any]) -> dict[str, TypedOptions]:
    """Take the options of keys and values out of a command's arguments."""
    return {
        column: TypedOptions(*(values.pop(f"{column}_{name}") for name in _NAMES))
        for column in ("key", "value")
    }


def typed_options() -> list[click.Parameter]:
    """Make the options of keys and values with a schema."""
    options: list[click.Parameter] = []
    for name in ("key", "value"):
        options += [
            click.Option(
                [f"--{name}-schema"],
                metavar="TEXT",
                help=f"schema of {name}s: of json names and types, or Spark's DDL; of avro the "
                "writer's, with a registry the reader's; of protobuf .proto text; @FILE is a "
                "file of .json, .sql, .avsc, .proto or .desc",
            ),
            click.Option(
                [f"--{name}-framing"],
                type=Words(FRAMINGS),
                help=f"what stands before {name}s with a schema (default confluent with "
                "--schema-registry, else none)",
            ),
            click.Option(
                [f"--{name}-message"], metavar="NAME", help=f"message of protobuf {name}s"
            ),
            click.Option(
                [f"--{name}-imports"],
                metavar="DIR",
                multiple=True,
                help="where files are that .proto text imports, before the folder of @FILE; may be "
                "repeated",
            ),
        ]
    return options


def typed_deserializers(
    kinds: Mapping[str, str],
    options: Mapping[str, TypedOptions],
    registry: Callable[[], SchemaSource | None],
    *,
    is_registry_given: bool,
    reader: str | None = None,
) -> dict[str, TypedDeserializer]:
    """Return the deserializers of keys and values that have a schema.

    ``registry`` returns the one that the option or a setting names; that of a setting is used
    where a schema is to be looked up. ``reader`` is that of Avro and Protobuf where no schema is
    given with a registry.

    Raises
    ------
    ConfigurationError
        A schema cannot be, or an option belongs to kinds that do not take it.
    """
    deserializers: dict[str, TypedDeserializer] = {}
    for column, kind in kinds.items():
        typed = options.get(column, TypedOptions())
        if kind not in TYPED_FORMATS:
            refuse_schema_options(column, kind, typed)
        elif kind != "json" or _has_schema(column, typed):
            is_used = is_registry_given or needs_registry(kind, typed)
            source = registry() if is_used else None
            is_read = kind != "json" and source is not None and typed.schema is None
            more = {"reader": reader} if is_read and reader is not None else {}
            deserializers[column] = _deserializer(column, kind, typed, source, more)
    if is_registry_given and not deserializers:
        raise ConfigurationError(
            "--schema-registry: no key or value has a schema", hint="--value avro or protobuf"
        )
    return deserializers


def refuse_schema_options(column: str, kind: str, typed: TypedOptions) -> None:
    """Refuse what is said besides a kind that has no schema."""
    for name in typed.names():
        raise ConfigurationError(
            f"--{column}-{name}: {column}s of kind {kind} have no schema",
            hint=f"--{column} {' or '.join(TYPED_FORMATS)}",
        )


def _has_schema(column: str, typed: TypedOptions) -> bool:
    """Return whether JSON has one; without it, documents are written as they are."""
    if typed.schema is None and typed.names():
        raise ConfigurationError(
            f"--{column}-{typed.names()[0]} without a schema",
            hint=f"--{column}-schema TEXT or @FILE",
        )
    return typed.schema is not None


def needs_registry(kind: str, typed: TypedOptions) -> bool:
    """Return whether the schemas of values are those of a registry."""
    if kind == "json":
        return False
    if typed.framing is not None:
        return typed.framing in _OF_REGISTRY
    return typed.schema is None or version_of(typed.schema) is not None


def version_of(schema: str) -> tuple[str, str] | None:
    """Return the subject ("" for the topic's) and version that a text names, None for a schema."""
    if not _VERSION.fullmatch(schema):
        return None
    subject, _, version = schema.rpartition(":")
    return subject, version


def _deserializer(
    column: str,
    kind: str,
    typed: TypedOptions,
    registry: SchemaSource | None,
    options: Mapping[str, object],
) -> TypedDeserializer:
    from kfast.deserializers.formats import deserializer_of  # noqa: PLC0415 - with NumPy

    def spelled(name: str) -> str:
        if name == "registry":
            return "--schema-registry URL"
        return f"--{column}-{'schema' if name == 'descriptor_set' else name}"

    arguments: dict[str, Any] = {}
    if kind == "protobuf" and typed.schema is not None and version_of(typed.schema):
        options = {**options, "reader": typed.schema}
    elif typed.schema is not None:
        schema: Any = read_schema(column, kind, typed.schema)
        arguments["descriptor_set" if kind == "protobuf" else "schema"] = schema
        if kind == "protobuf" and isinstance(schema, str):
            arguments["imports"] = _imports(typed, schema)
    if typed.imports and "imports" not in arguments:
        raise ConfigurationError(
            f"--{column}-imports is for .proto text", hint=f"--{column}-schema @FILE.proto"
        )
    deserializer: Any = deserializer_of(
        kind,
        column=column,
        registry=registry,
        framing=typed.framing,
        message=typed.message,
        options=options,
        spelled=spelled,
        **arguments,
    )
    return deserializer  # type: ignore[no-any-return]  # of a typed format


def _imports(typed: TypedOptions, text: str) -> dict[str, str]:
    from kfast.schemas.proto_folders import read_imports  # noqa: PLC0415 - for Protobuf only

    assert typed.schema is not None
    is_file = typed.schema.startswith("@")
    own = (str(Path(typed.schema[1:]).parent),) if is_file else ()
    return read_imports(text, [*typed.imports, *own])


# --- schemas --------------------------------------------------------------------------------------


def read_schema(column: str, kind: str, schema: str) -> object:
    """Return the schema that a text, or the file behind an ``@``, has, as its kind takes it.

    Of JSON that is a dict, a list or a text of DDL, of Avro its text, of Protobuf ``.proto`` text,
    or descriptors as bytes.
    """
    data, ending = schema.encode(), ""
    if schema.startswith("@"):
        path = Path(schema[1:])
        ending = path.suffix.lower()
        if ending not in _ENDINGS[kind]:
            raise ConfigurationError(
                f"--{column}-schema {schema}: no file of a schema of {kind}",
                hint=f"a file that ends in {' or '.join(_ENDINGS[kind])}",
            )
        data = _read(column, schema, path)
    if ending == ".desc":
        return data
    try:
        text = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"--{column}-schema {schema}: is not UTF-8", cause=str(error), hint="save it as UTF-8"
        ) from error
    if kind == "json" and (ending == ".json" or text.startswith(("{", "["))):
        return _json(column, text)
    return text


def _read(column: str, schema: str, path: Path) -> bytes:
    hint = "a file that can be read"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigNotFoundError(
            f"--{column}-schema {schema}: there is no such file", hint=hint
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"--{column}-schema {schema}: cannot be read", cause=str(error), hint=hint
        ) from error


def _json(column: str, text: str) -> object:
    import json  # noqa: PLC0415 - most reads need none

    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(
            f"--{column}-schema: is not JSON",
            cause=str(error),
            hint='such as {"id": "int64", "price": "float64"}',
        ) from error


# --- what cannot be read --------------------------------------------------------------------------


def with_command_hint(error: DeserializationError) -> DeserializationError:
    """Give an error what to type."""
    framing = 'framing="'
    if error.hint is not None and error.hint.startswith(framing):
        name = error.hint.removeprefix(framing).partition('"')[0]
        error.hint = f"--{error.column}-framing {name}"
    else:
        error.hint = "--on-error null, or --on-error skip"
    return error


def check_errors_file(name: str | None, output: str | None) -> None:
    """Check the ending of ``--errors``, that it is no output, and that what writes it is there."""
    if name is None:
        return
    ending = Path(name).suffix.lower()
    if ending not in _ERROR_ENDINGS:
        raise ConfigurationError(
            f"--errors {name}: unknown ending", hint=f"use {' or '.join(_ERROR_ENDINGS)}"
        )
    if output is not None and os.path.realpath(output) == os.path.realpath(name):
        raise ConfigurationError(
            f"--errors {name}: the records are written to it", hint="another file"
        )
    if ending == ".parquet":
        optional_package("pyarrow", "--errors FILE.parquet")


class ErrorsFile:
    """Writes what could not be read, a row per key or value; without any, a file without rows."""

    def __init__(self, output: Output, *, is_parquet: bool) -> None:
        self._output = output
        self._is_parquet = is_parquet
        self._writer: Any = None
        self._kept: list[RecordErrors] = []
        self._count = 0

    def add(self, errors: RecordErrors) -> None:
        """Take errors; they are written before long, and do not keep received data alive."""
        if len(errors):
            self._kept.append(errors)
            self._count += len(errors)
        if self._count >= _ERROR_ROWS:
            self._write()

    def end(self) -> None:
        """Write the rest."""
        self._write()
        if self._writer is not None:
            self._writer.close()

    def _write(self) -> None:
        from kfast.columns.record_errors import RecordErrors  # noqa: PLC0415 - with NumPy

        errors = RecordErrors.concat(self._kept)
        self._kept.clear()
        self._count = 0
        if not self._is_parquet:
            self._output.write("".join(map(_line, errors)).encode())
            return
        batch = errors.to_arrow()
        if self._writer is None:
            from pyarrow import parquet  # noqa: PLC0415 - optional

            self._writer = parquet.ParquetWriter(self._output, batch.schema)
        self._writer.write_batch(batch)


def _line(error: Any) -> str:
    import json  # noqa: PLC0415 - most reads need none

    row = error._asdict()
    raw = row.pop("raw")
    row["raw_hex"] = None if raw is None else raw.hex()
    return json.dumps(row) + "\n"


@contextlib.contextmanager
def open_errors(name: str | None) -> Iterator[ErrorsFile | None]:
    """Open the file of ``--errors``, which has its name when the body has ended."""
    if name is None:
        yield None
        return
    with open_output(name) as output:
        errors = ErrorsFile(output, is_parquet=Path(name).suffix.lower() == ".parquet")
        yield errors
        errors.end()
