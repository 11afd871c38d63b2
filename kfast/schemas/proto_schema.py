"""Pools of Protobuf from what users and registries have: descriptors, ``.proto`` text, or both.

Imports are found among what is given, by name, then among the files that every installation has
(``proto_builtin``). References of a registry are imports like any others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kfast.errors import ConfigurationError
from kfast.registry.registered_schema import PROTOBUF
from kfast.schemas.descriptor_set import read_descriptor_files
from kfast.schemas.descriptors import ProtoPool
from kfast.schemas.proto_builtin import builtin_file
from kfast.schemas.proto_files import NO_SET_HINT, FileDefinition, link
from kfast.schemas.proto_text import parse_file

if TYPE_CHECKING:
    from kfast.registry.registered_schema import RegisteredSchema

MAX_TEXTS: Final = 16 << 20
"""Characters of a schema and what it imports."""

File = str | bytes
"""A file of Protobuf: its text, or its descriptor."""

_IMPORTS_HINT: Final = (
    "give its text by imports= (--value-imports DIR), or a descriptor set: "
    "protoc --include_imports --descriptor_set_out=FILE"
)


def read_descriptor_set(data: bytes, imports: Mapping[str, File] | None = None) -> ProtoPool:
    """Return the pool of a FileDescriptorSet, whose last file is the main one.

    A FileDescriptorProto alone is one too, with ``imports`` like those of text.

    Raises
    ------
    ConfigurationError
        The bytes are no descriptors, or types are missing.
    """
    return _linked(read_descriptor_files(data), len(data), imports or {})


def parse_proto(text: str, imports: Mapping[str, File] | None = None) -> ProtoPool:
    """Return the pool of ``.proto`` text.

    ``imports`` has files by the name under which they are imported; those that are needed are read.
    A file that it does not have is missed only if a type of it is used.

    Raises
    ------
    ConfigurationError
        A text is no ``.proto`` text (with line and column), files import each other, or types are
        missing or there twice.
    """
    files = imports or {}
    # Among the files of a folder the main one is there too, and has its name from there.
    own = text.strip()
    names = (name for name, file in files.items() if isinstance(file, str) and file.strip() == own)
    return _linked([parse_file(text, next(names, ""))], len(text), files)


def read_proto(schema: File, imports: Mapping[str, File] | None = None) -> ProtoPool:
    """Return the pool of ``.proto`` text, or of the bytes of descriptors, and of its imports.

    Raises
    ------
    ConfigurationError
        It is neither.
    """
    if isinstance(schema, str):
        return parse_proto(schema, imports)
    return read_descriptor_set(schema, imports)


def registered_pool(schema: RegisteredSchema) -> ProtoPool:
    """Return the pool of a schema of a registry, its main file; each may be in either form.

    Where references have several versions of a file, the one counts that is fewest steps away.

    Raises
    ------
    ConfigurationError
        The schema is none of Protobuf, or cannot be read.
    """
    if schema.schema_type != PROTOBUF:
        raise ConfigurationError(f"{schema} is no schema of Protobuf")
    schemas: dict[str, RegisteredSchema] = {}
    waiting = deque([schema])
    seen = {id(schema)}
    while waiting:
        for reference in waiting.popleft().references:
            schemas.setdefault(reference.name, reference.schema)
            if id(reference.schema) not in seen:
                seen.add(id(reference.schema))
                waiting.append(reference.schema)
    return _linked(
        [_file(_form(schema), "")],
        len(schema.text),
        {name: _form(referenced) for name, referenced in schemas.items()},
        f"{schema} and its references are too large",
        NO_SET_HINT,
    )


def _form(schema: RegisteredSchema) -> File:
    descriptor = schema.descriptor
    return schema.text if descriptor is None else descriptor


def _file(file: File, name: str) -> FileDefinition:
    """Return one file; an import has the name under which it is imported."""
    if isinstance(file, str):
        return parse_file(file, name)
    definition = read_descriptor_files(file)[-1]
    return replace(definition, name=name or definition.name)


def _linked(
    files: Sequence[FileDefinition],
    size: int,
    imports: Mapping[str, File],
    too_large: str = f"the imports have more than {MAX_TEXTS} characters",
    hint: str = _IMPORTS_HINT,
) -> ProtoPool:
    left = MAX_TEXTS - size

    def load(name: str) -> FileDefinition | None:
        nonlocal left
        file = imports.get(name)
        if file is None:
            return builtin_file(name)
        left -= len(file)
        if left < 0:
            raise ConfigurationError(too_large)
        return _file(file, name)

    return link(files, load, hint)
