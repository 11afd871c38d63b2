"""Pools of Protobuf from what users and registries have: descriptors, ``.proto`` text, or both.

Imports are found among what is given, then among the files that every
installation has (``proto_builtin``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kfast.errors import ConfigurationError
from kfast.registered_schema import PROTOBUF
from kfast.schemas.descriptor_set import read_descriptor_files
from kfast.schemas.descriptors import ProtoPool
from kfast.schemas.proto_builtin import builtin_file
from kfast.schemas.proto_files import FileDefinition, link
from kfast.schemas.proto_text import parse_file

if TYPE_CHECKING:
    from kfast.registered_schema import RegisteredSchema

MAX_TEXTS: Final = 16 << 20
"""Characters of a schema and what it imports."""


def read_descriptor_set(data: bytes) -> ProtoPool:
    """Return the pool of a FileDescriptorSet, whose last file is the main one.

    A FileDescriptorProto alone is one too, if it imports nothing but files that are built in.

    Raises
    ------
    ConfigurationError
        The bytes are no descriptors, or types are missing.
    """
    return link(read_descriptor_files(data), builtin_file)


def parse_proto(text: str, imports: Mapping[str, str] | None = None) -> ProtoPool:
    """Return the pool of ``.proto`` text.

    ``imports`` has the texts of files by the name under which they are imported; it is asked for
    those that are needed. A file that it does not have is missed only if a type of it is used.

    Raises
    ------
    ConfigurationError
        A text is no ``.proto`` text (with line and column), or types are missing.
    """
    left = MAX_TEXTS - len(text)

    def load(name: str) -> FileDefinition | None:
        nonlocal left
        found = imports.get(name) if imports is not None else None
        if found is None:
            return builtin_file(name)
        left -= len(found)
        if left < 0:
            raise ConfigurationError(f"the imports have more than {MAX_TEXTS} characters")
        return parse_file(found, name)

    return link([parse_file(text)], load)


def read_proto(schema: str | bytes) -> ProtoPool:
    """Return the pool of ``.proto`` text, or of the bytes of descriptors.

    Raises
    ------
    ConfigurationError
        It is neither.
    """
    return parse_proto(schema) if isinstance(schema, str) else read_descriptor_set(schema)


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
    main = _registered_file(schema, "")
    known: dict[str, RegisteredSchema] = {}
    waiting = deque([schema])
    seen = {id(schema)}
    while waiting:
        for reference in waiting.popleft().references:
            known.setdefault(reference.name, reference.schema)
            if id(reference.schema) not in seen:
                seen.add(id(reference.schema))
                waiting.append(reference.schema)
    left = MAX_TEXTS - len(schema.text)

    def load(name: str) -> FileDefinition | None:
        nonlocal left
        found = known.get(name)
        if found is None:
            return builtin_file(name)
        left -= len(found.text)
        if left < 0:
            raise ConfigurationError(f"{schema} and its references are too large")
        return _registered_file(found, name)

    return link([main], load)


def _registered_file(schema: RegisteredSchema, name: str) -> FileDefinition:
    """Return one file; a reference has the name under which it is imported."""
    descriptor = schema.descriptor
    if descriptor is None:
        return parse_file(schema.text, name)
    files = read_descriptor_files(descriptor)
    return replace(files[-1], name=name or files[-1].name)
