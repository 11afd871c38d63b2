"""Which columns a table may get: those that are added and nullable.

Files that were written before read as null there. Everything else that differs is refused by name:
a column of another type, and one that is left out. The members of structs are columns, too; those
inside of lists and maps are not, as many readers cannot add them to older files. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from kfast.errors import ConfigurationError
from kfast.schemas.ddl import ddl_type, field_of_ddl
from kfast.schemas.types import Kind, SchemaField


def check_schema(found: str, wanted: str, url: str) -> list[str]:
    """Check that a table with some columns can be written with others; both are in Spark's DDL.

    Returns the paths of those that are added. Raises ``ConfigurationError``.
    """
    if found == wanted:
        return []
    return [*_added(field_of_ddl(found), field_of_ddl(wanted), "", url)]


def _added(found: SchemaField, wanted: SchemaField, above: str, url: str) -> Iterator[str]:
    new = {field.name.lower(): field for field in wanted.type.fields}
    for old in found.type.fields:
        path = f"{above}{old.name}"
        field = new.pop(old.name.lower(), None)
        if field is not None and _are_structs(old, field):
            yield from _added(old, field, f"{path}.", url)
        elif field is None or (field.type, field.is_nullable) != (old.type, old.is_nullable):
            raise ConfigurationError(
                f"{url} has the column {path} of type {_text(old)}",
                found=f"this one has {'no such column' if field is None else _text(field)}",
                hint="columns may be added, not changed or left out: write to another folder",
            )
    for field in new.values():
        path = f"{above}{field.name}"
        if not field.is_nullable:
            raise ConfigurationError(
                f"{url} has no column {path}, and it is NOT NULL",
                cause="files that were written before read as null there",
                hint="leave NOT NULL out, or write to another folder",
            )
        yield path


def _are_structs(old: SchemaField, field: SchemaField) -> bool:
    is_struct = field.type.kind is old.type.kind is Kind.STRUCT
    return is_struct and field.is_nullable == old.is_nullable


def _text(field: SchemaField) -> str:
    return ddl_type(field, "").lower() + ("" if field.is_nullable else " not null")
