"""Keys and values of ``kfast read`` with a schema: typed columns of Parquet and Arrow.

Owns: schemas as texts and files, and the file of what could not be read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kfast._optional import optional_package
from kfast._values import dataclass
from kfast.errors import ConfigurationError

if TYPE_CHECKING:
    from kfast.records.errors import RecordErrors

FRAMINGS: Final = ("none", "confluent", "apicurio")
TYPED_KINDS: Final = ("json",)
"""Kinds of keys and values that take a schema."""
_ERROR_ENDINGS: Final = (".jsonl", ".parquet")


@dataclass(slots=True, frozen=True)
class TypedOptions:
    """What is said of keys or values with a schema."""

    schema: str | None = None
    framing: str = "none"


def typed_deserializer(column: str, kind: str, options: TypedOptions) -> Any:
    """Return the deserializer of a column; None if it has no schema.

    Raises
    ------
    ConfigurationError
        The schema cannot be, or belongs to a kind that takes none.
    """
    if options.schema is None:
        if options.framing != "none":
            raise ConfigurationError(
                f"--{column}-framing without a schema", hint=f"--{column}-schema TEXT or @FILE"
            )
        return None
    if kind not in TYPED_KINDS:
        raise ConfigurationError(
            f"--{column}-schema: {column}s of kind {kind} have no schema",
            hint=f"--{column} {' or '.join(TYPED_KINDS)}",
        )
    from kfast import Json  # noqa: PLC0415 - with NumPy

    return Json(read_schema(column, options.schema), framing=options.framing)


def read_schema(column: str, given: str) -> object:
    """Return the schema that a text, or the file behind an ``@``, has: JSON, or Spark's DDL."""
    text = given
    if given.startswith("@"):
        path = Path(given[1:])
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"--{column}-schema {given}: cannot be read",
                cause=str(error),
                hint="a file that ends in .json or .sql",
            ) from error
    text = text.strip()
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(
            f"--{column}-schema: is not JSON",
            cause=str(error),
            hint='such as {"id": "int64", "price": "float64"}',
        ) from error


def check_errors_file(name: str | None) -> None:
    """Check the ending of ``--errors``, and that what writes it is there."""
    if name is None:
        return
    ending = Path(name).suffix.lower()
    if ending not in _ERROR_ENDINGS:
        raise ConfigurationError(
            f"--errors {name}: unknown ending", hint=f"use {' or '.join(_ERROR_ENDINGS)}"
        )
    if ending == ".parquet":
        optional_package("pyarrow", "--errors FILE.parquet")


def write_errors(name: str, found: list[RecordErrors]) -> None:
    """Write what could not be read, one row per key or value; without any, an empty file."""
    from kfast.records.errors import RecordErrors  # noqa: PLC0415 - with NumPy

    errors = RecordErrors.concat(found)
    path = Path(name)
    if path.suffix.lower() == ".parquet":
        pyarrow = optional_package("pyarrow", "--errors FILE.parquet")
        from pyarrow import parquet  # noqa: PLC0415 - optional

        parquet.write_table(pyarrow.Table.from_batches([errors.to_arrow()]), path)
        return
    with path.open("w", encoding="utf-8") as out:
        for error in errors:
            row = error._asdict()
            raw = row.pop("raw")
            row["raw_hex"] = None if raw is None else raw.hex()
            out.write(json.dumps(row) + "\n")
