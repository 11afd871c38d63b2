"""Files of Protobuf before they are linked, and what makes a pool of them.

``descriptor_set`` and ``proto_text`` read files into the same few definitions; here names of types
are resolved, features are inherited, and what a file may not have is refused. A type that is named
in part is looked for in the scope of the field, then in the one around it, and so on, as protoc
does: the first scope that has the first part of the name has to have the rest of it. Only what the
file imports is seen, but for names with a dot in front.

A file that is imported and not given is an error only where a type of it is needed: many are
imported for their options alone.

Features are numbers by number, as in ``google.protobuf.FeatureSet``; those that decoding does not
depend on are left out. A file has them for all of its fields and enums, which may have their own.
Files may be hostile: what they stand for is bounded, and the only exception is
``ConfigurationError``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from math import inf, isnan
from struct import pack, unpack
from typing import Final, NoReturn, TypeGuard

from kfast.errors import ConfigurationError
from kfast.schemas.descriptors import (
    NAMED_TYPES,
    Default,
    ProtoEnum,
    ProtoField,
    ProtoMessage,
    ProtoPool,
    ProtoType,
    nearest,
)

MAX_NESTING: Final = 64
"""Levels of messages in messages."""
MAX_NAME: Final = 512
"""Characters of a full name."""
MAX_TYPES: Final = 100_000
"""Messages and enums of a pool."""
MAX_NUMBER: Final = (1 << 29) - 1
RESERVED_NUMBERS: Final = range(19_000, 20_000)

FIELD_PRESENCE, ENUM_TYPE, MESSAGE_ENCODING = 1, 2, 5
EXPLICIT, IMPLICIT, LEGACY_REQUIRED = 1, 2, 3
OPEN, CLOSED = 1, 2
LENGTH_PREFIXED, DELIMITED = 1, 2
FEATURES: Final = {
    FIELD_PRESENCE: (EXPLICIT, IMPLICIT, LEGACY_REQUIRED),
    ENUM_TYPE: (OPEN, CLOSED),
    MESSAGE_ENCODING: (LENGTH_PREFIXED, DELIMITED),
}
"""Features that decoding depends on, with their values."""
_EDITION_2023: Final = {
    FIELD_PRESENCE: EXPLICIT,
    ENUM_TYPE: OPEN,
    MESSAGE_ENCODING: LENGTH_PREFIXED,
}
EDITIONS: Final = {
    "proto2": {**_EDITION_2023, ENUM_TYPE: CLOSED},
    "proto3": {**_EDITION_2023, FIELD_PRESENCE: IMPLICIT},
    "2023": _EDITION_2023,
    "2024": _EDITION_2023,
}
"""What the features are in a file that does not set them, by syntax or edition."""

Features = Mapping[int, int]
NO_PLACE: Final = -1
IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME: Final = re.compile(rf"\.?{IDENTIFIER.pattern}(?:\.{IDENTIFIER.pattern})*")
_SHOWN: Final = 60
NO_SET_HINT: Final = "give a descriptor set: protoc --include_imports --descriptor_set_out=FILE"
"""What to do about a file that is not there."""
_MAP_KEYS: Final = frozenset(
    set(ProtoType) - NAMED_TYPES - {ProtoType.DOUBLE, ProtoType.FLOAT, ProtoType.BYTES}
)


@dataclass(slots=True, eq=False)
class FieldDefinition:
    """A field. ``type`` is None where only linking can say whether its type is an enum.

    ``oneof`` is the number of the one it is in, -1 for none. ``place`` of this and of the others is
    where it stands in the text.
    """

    name: str
    number: int
    type: ProtoType | None
    type_name: str = ""
    is_repeated: bool = False
    is_required: bool = False
    is_optional3: bool = False
    """Whether it is ``optional`` in proto3."""
    oneof: int = -1
    default: Default | None = None
    features: Features = field(default_factory=dict)
    place: int = NO_PLACE


@dataclass(slots=True, eq=False)
class EnumDefinition:
    """An enum."""

    name: str
    values: list[tuple[str, int]] = field(default_factory=list)
    features: Features = field(default_factory=dict)
    place: int = NO_PLACE


@dataclass(slots=True, eq=False)
class MessageDefinition:
    """A message."""

    name: str
    fields: list[FieldDefinition] = field(default_factory=list)
    messages: list[MessageDefinition] = field(default_factory=list)
    enums: list[EnumDefinition] = field(default_factory=list)
    oneofs: list[str] = field(default_factory=list)
    is_map_entry: bool = False
    place: int = NO_PLACE


@dataclass(slots=True, eq=False)
class FileDefinition:
    """A file. ``edition`` is a key of `EDITIONS`; ``public`` are those of the imports that are."""

    name: str
    edition: str = "proto2"
    package: str = ""
    imports: list[str] = field(default_factory=list)
    public: list[str] = field(default_factory=list)
    messages: list[MessageDefinition] = field(default_factory=list)
    enums: list[EnumDefinition] = field(default_factory=list)
    features: Features = field(default_factory=dict)
    text: str | None = None

    def refuse(
        self, why: str, place: int = NO_PLACE, *, actual: str | None = None, hint: str | None = None
    ) -> NoReturn:
        """Raise the error for a place of this file."""
        where = self.name[:_SHOWN] or "the Protobuf schema"
        if self.text is not None and place >= 0:
            line = self.text.count("\n", 0, place) + 1
            column = place - self.text.rfind("\n", 0, place)
            where = f"{where}, line {line}, column {column}"
        raise ConfigurationError(f"{where}: {why}", found=actual, hint=hint)


Load = Callable[[str], FileDefinition | None]


def link(files: Sequence[FileDefinition], load: Load, hint: str = NO_SET_HINT) -> ProtoPool:
    """Return the pool of files and of what they import; the last one is its main file.

    ``load`` returns the file of an import, None if it is not to be had; ``hint`` says what to do
    then.

    Raises
    ------
    ConfigurationError
        The files do not go together, or have what Protobuf does not allow.
    """
    return _Linker(files, load, hint).pool()


@dataclass(slots=True, eq=False)
class _Scope:
    """A name that has names below: a package, a message or an enum (with none that matter).

    ``files`` are the names of the files that have it: of a package several.
    """

    full_name: str = ""
    file: FileDefinition | None = None
    definition: MessageDefinition | EnumDefinition | None = None
    parent: _Scope | None = None
    files: set[str] = field(default_factory=set)
    below: dict[str, _Scope] = field(default_factory=dict)


class _Linker:
    def __init__(self, files: Sequence[FileDefinition], load: Load, hint: str) -> None:
        self._files: dict[str, FileDefinition] = {}
        self._missing: set[str] = set()
        self._root = _Scope()
        self._types: list[_Scope] = []
        self._messages: dict[str, ProtoMessage] = {}
        self._enums: dict[str, ProtoEnum] = {}
        self._visible: frozenset[str] = frozenset()
        self._resolved: dict[tuple[_Scope, str], _Scope] = {}
        self._value_names: dict[EnumDefinition, frozenset[str]] = {}
        self._main = files[-1].name
        self._hint = hint
        for file in files:
            if file.name in self._files:
                file.refuse("this file is there twice", hint="give each file once")
            self._files[file.name] = file
        self._load_imports(load)

    def _load_imports(self, load: Load) -> None:
        waiting = list(self._files.values())
        while waiting:
            for name in waiting.pop().imports:
                if name in self._files or name in self._missing:
                    continue
                file = load(name)
                if file is None:
                    self._missing.add(name)
                else:
                    self._files[name] = file
                    waiting.append(file)
        self._check_cycles()

    def _check_cycles(self) -> None:
        files = self._files
        imported = {
            name: [other for other in file.imports if other in files]
            for name, file in files.items()
        }
        try:
            TopologicalSorter(imported).prepare()
        except CycleError as error:
            first, *others = [name[:_SHOWN] for name in reversed(error.args[1])]
            shown = ", which imports ".join(others[:8])
            files[error.args[1][-1]].refuse(
                "files import each other",
                actual=f"{first or 'the schema'} imports {shown}",
                hint="move what they share to a file of its own",
            )

    def pool(self) -> ProtoPool:
        """Link all files."""
        for file in self._files.values():
            self._add_file(file)
        for file in self._files.values():
            self._link_file(file)
        nested = {
            scope.full_name: tuple(
                scope.below[message.name].full_name for message in scope.definition.messages
            )
            for scope in self._types
            if isinstance(scope.definition, MessageDefinition)
        }
        roots = {
            file.name: tuple(_joined(file.package, message.name) for message in file.messages)
            for file in self._files.values()
        }
        return ProtoPool(self._messages, self._enums, self._main, roots, nested)

    # --- names ------------------------------------------------------------------------------------

    def _add_file(self, file: FileDefinition) -> None:
        scope = self._root
        scope.files.add(file.name)
        if file.package:
            if len(file.package) > MAX_NAME or not _FULL_NAME.fullmatch("." + file.package):
                file.refuse("the name of the package is none", actual=file.package[:_SHOWN])
            for name in file.package.split("."):
                below = scope.below.get(name)
                if below is None:
                    below = _Scope(_joined(scope.full_name, name), parent=scope)
                    scope.below[name] = below
                elif below.definition is not None:
                    file.refuse(f"package {file.package} has the name of a type of {_name(below)}")
                scope = below
                scope.files.add(file.name)
        self._add_types(file, scope, file.messages, file.enums, 1)

    def _add_types(
        self,
        file: FileDefinition,
        scope: _Scope,
        messages: Sequence[MessageDefinition],
        enums: Sequence[EnumDefinition],
        depth: int,
    ) -> None:
        if messages and depth > MAX_NESTING:
            file.refuse(f"messages are nested more than {MAX_NESTING} levels deep")
        types: tuple[MessageDefinition | EnumDefinition, ...] = (*messages, *enums)
        for definition in types:
            full_name = _joined(scope.full_name, definition.name)
            if len(full_name) > MAX_NAME or not IDENTIFIER.fullmatch(definition.name):
                shown = definition.name[:_SHOWN]
                file.refuse("the name of a type is none", definition.place, actual=shown)
            other = scope.below.get(definition.name)
            if other is not None:
                file.refuse(
                    f"{full_name} is defined twice",
                    definition.place,
                    actual=f"it is in {_name(other)} too" if other.file is not file else None,
                    hint="give one of them another name",
                )
            type_scope = _Scope(full_name, file, definition, scope, {file.name})
            scope.below[definition.name] = type_scope
            self._types.append(type_scope)
            if len(self._types) > MAX_TYPES:
                file.refuse(f"there are more than {MAX_TYPES} messages and enums")
            if isinstance(definition, MessageDefinition):
                self._add_types(file, type_scope, definition.messages, definition.enums, depth + 1)

    def _visible_from(self, file: FileDefinition) -> frozenset[str]:
        """Return the names of the files whose types a file sees."""
        seen = {file.name}
        waiting = list(file.imports)
        while waiting:
            name = waiting.pop()
            if name not in seen and name in self._files:
                seen.add(name)
                waiting += self._files[name].public
        return frozenset(seen)

    def _resolve(self, file: FileDefinition, scope: _Scope, field: FieldDefinition) -> _Scope:
        """Return the type that a field names."""
        key = scope, field.type_name
        target = self._resolved.get(key)
        if target is None:
            if len(field.type_name) > MAX_NAME or not _FULL_NAME.fullmatch(field.type_name):
                shown = field.type_name[:_SHOWN]
                file.refuse(f"field {field.name} has no name of a type", field.place, actual=shown)
            target = self._look_up(scope, field.type_name)
            if target is None or target.definition is None:
                self._refuse_type(file, scope, field)
            self._resolved[key] = target
        return target

    def _look_up(self, scope: _Scope, name: str) -> _Scope | None:
        if name.startswith("."):
            return _descended(self._root, name[1:].split("."))
        first, *rest = name.split(".")
        around: _Scope | None = scope
        while around is not None:
            target = around.below.get(first)
            # What has the first part decides; a package alone is no type.
            if self._is_visible(target) and (rest or target.definition is not None):
                target = _descended(target, rest)
                return target if self._is_visible(target) else None
            around = around.parent
        return None

    def _is_visible(self, scope: _Scope | None) -> TypeGuard[_Scope]:
        return scope is not None and not self._visible.isdisjoint(scope.files)

    def _refuse_type(self, file: FileDefinition, scope: _Scope, field: FieldDefinition) -> NoReturn:
        name = field.type_name.removeprefix(".")
        short = name.rpartition(".")[2]
        names = [other.full_name for other in self._types]
        same = [other for other in self._types if other.full_name.endswith(f".{short}")]
        same += [other for other in self._types if other.full_name == short]
        lacking = [import_name for import_name in file.imports if import_name in self._missing]
        hidden = next((other for other in same if self._visible.isdisjoint(other.files)), None)
        near = nearest(name, names) or nearest(_joined(scope.full_name, name), names)
        near = near or nearest(_joined(file.package, name), names)
        actual = hint = None
        if hidden is not None and hidden.file is not None:
            actual = f"{hidden.full_name} is in {hidden.file.name}, which is not imported here"
            hint = f'import "{hidden.file.name}"'
        elif lacking:
            actual = f"imported and not given: {', '.join(lacking[:8])}"
            hint = self._hint
        elif same or near:
            hint = f'did you mean "{near or same[0].full_name}"?'
        else:
            hint = "import the file that has it"
        why = f'field {field.name} has the unknown type "{name}"'
        file.refuse(why, field.place, actual=actual, hint=hint)

    # --- messages and enums -----------------------------------------------------------------------

    def _link_file(self, file: FileDefinition) -> None:
        self._visible = self._visible_from(file)
        self._resolved.clear()
        features = {**EDITIONS[file.edition], **file.features}
        scope = self._root
        for name in file.package.split(".") if file.package else ():
            scope = scope.below[name]
        self._link_types(file, scope, features, file.messages, file.enums)

    def _link_types(
        self,
        file: FileDefinition,
        scope: _Scope,
        features: Features,
        messages: Sequence[MessageDefinition],
        enums: Sequence[EnumDefinition],
    ) -> None:
        for enum in enums:
            full_name = scope.below[enum.name].full_name
            self._enums[full_name] = _linked_enum(file, full_name, enum, features)
        for message in messages:
            self._link_message(file, scope.below[message.name], message, features)

    def _link_message(
        self, file: FileDefinition, scope: _Scope, message: MessageDefinition, features: Features
    ) -> None:
        _check_fields(file, scope.full_name, message)
        fields = tuple(self._field(file, scope, message, f, features) for f in message.fields)
        if message.is_map_entry:
            _check_map_entry(file, message, fields)
        self._messages[scope.full_name] = ProtoMessage(
            scope.full_name, fields, message.is_map_entry
        )
        self._link_types(file, scope, features, message.messages, message.enums)

    def _field(
        self,
        file: FileDefinition,
        scope: _Scope,
        message: MessageDefinition,
        field: FieldDefinition,
        around: Features,
    ) -> ProtoField:
        is_in_oneof = field.oneof >= 0 and not field.is_optional3
        oneof = message.oneofs[field.oneof] if is_in_oneof else None
        features = _merged(around, field.features)
        kind, type_name, enum = field.type, "", None
        if kind is None or kind in NAMED_TYPES:
            target = self._resolve(file, scope, field)
            type_name = target.full_name
            kind, enum = _kind_of(file, field, target, features, message.is_map_entry)
        elif field.type_name:
            file.refuse(f"field {field.name} is of two types", field.place)
        is_message = kind in {ProtoType.MESSAGE, ProtoType.GROUP}
        presence = features[FIELD_PRESENCE]
        has_presence = not field.is_repeated and (
            is_message or field.is_optional3 or oneof is not None or presence != IMPLICIT
        )
        if field.default is not None:
            names = self._names_of(enum) if enum is not None else None
            _check_default(file, field, kind, names, has_presence)
        return ProtoField(
            name=field.name,
            number=field.number,
            type=kind,
            type_name=type_name,
            is_repeated=field.is_repeated,
            is_required=field.is_required
            or (presence == LEGACY_REQUIRED and not field.is_repeated and oneof is None),
            has_presence=has_presence,
            oneof=oneof,
            default=_rounded(field.default) if kind is ProtoType.FLOAT else field.default,
        )

    def _names_of(self, enum: EnumDefinition) -> frozenset[str]:
        names = self._value_names.get(enum)
        if names is None:
            names = self._value_names[enum] = frozenset(name for name, _ in enum.values)
        return names


def _check_default(
    file: FileDefinition,
    field: FieldDefinition,
    kind: ProtoType,
    names: frozenset[str] | None,
    has_presence: bool,
) -> None:
    """Refuse a default where there can be none, and one that is none of an enum's names."""
    if not has_presence or kind in {ProtoType.MESSAGE, ProtoType.GROUP}:
        file.refuse(f"field {field.name} cannot have a default", field.place)
    if names is not None and field.default not in names:
        why = f"the default of field {field.name} is no value of its enum"
        file.refuse(why, field.place, actual=str(field.default)[:_SHOWN])


def _kind_of(
    file: FileDefinition,
    field: FieldDefinition,
    target: _Scope,
    features: Features,
    is_of_entry: bool,
) -> tuple[ProtoType, EnumDefinition | None]:
    """Return the type of a field whose type has a name, and the enum if it is one."""
    definition = target.definition
    is_enum = isinstance(definition, EnumDefinition)
    if field.type is not None and is_enum != (field.type is ProtoType.ENUM):
        kind = "an enum" if is_enum else "a message"
        file.refuse(f"field {field.name}: {target.full_name} is {kind}", field.place)
    if isinstance(definition, EnumDefinition):
        return ProtoType.ENUM, definition
    if field.type is ProtoType.GROUP:
        return ProtoType.GROUP, None
    is_entry = isinstance(definition, MessageDefinition) and definition.is_map_entry
    if is_entry and not field.is_repeated:
        file.refuse(f"field {field.name} is a map that is not repeated", field.place)
    # Map entries, and what is in them, have lengths whatever the features are.
    is_delimited = features[MESSAGE_ENCODING] == DELIMITED and not is_entry and not is_of_entry
    return ProtoType.GROUP if is_delimited else ProtoType.MESSAGE, None


def _linked_enum(
    file: FileDefinition, full_name: str, enum: EnumDefinition, around: Features
) -> ProtoEnum:
    is_closed = _merged(around, enum.features)[ENUM_TYPE] == CLOSED
    if not enum.values:
        file.refuse(f"enum {full_name} has no values", enum.place)
    seen: set[str] = set()
    for name, _ in enum.values:
        if not IDENTIFIER.fullmatch(name) or len(name) > MAX_NAME:
            shown = name[:_SHOWN]
            file.refuse(f"a value of enum {full_name} has no name", enum.place, actual=shown)
        if name in seen:
            file.refuse(f"enum {full_name} has the value {name} twice", enum.place)
        seen.add(name)
    if not is_closed and enum.values[0][1] != 0:
        file.refuse(
            f"the first value of enum {full_name} is not 0",
            enum.place,
            actual=f"{enum.values[0][0]} = {enum.values[0][1]}",
            hint="an open enum begins with 0, which is its default",
        )
    return ProtoEnum(full_name, tuple(enum.values), is_closed)


def _check_fields(file: FileDefinition, full_name: str, message: MessageDefinition) -> None:
    """Refuse numbers and names that a message may not have."""
    numbers: dict[int, str] = {}
    names: set[str] = set()
    used: set[int] = set()
    for member in message.fields:
        if not IDENTIFIER.fullmatch(member.name) or len(member.name) > MAX_NAME:
            shown = member.name[:_SHOWN]
            file.refuse(f"a field of {full_name} has no name", member.place, actual=shown)
        label = f"field {member.name} of {full_name}"
        if not 0 < member.number <= MAX_NUMBER or member.number in RESERVED_NUMBERS:
            hint = f"numbers are 1 to {MAX_NUMBER}, without 19000 to 19999"
            file.refuse(f"{label} has the number {member.number}", member.place, hint=hint)
        other = numbers.setdefault(member.number, member.name)
        if member.name in names or other != member.name:
            is_number = other != member.name
            same = f"the number {member.number}" if is_number else f'the name "{member.name}"'
            file.refuse(
                f"two fields of {full_name} have {same}",
                member.place,
                actual=f"{other}, {member.name}",
                hint="give one of them another",
            )
        names.add(member.name)
        if member.oneof >= 0:
            if member.oneof >= len(message.oneofs) or member.is_repeated or member.is_required:
                file.refuse(f"{label} cannot be in a oneof", member.place)
            used.add(member.oneof)
    oneofs: set[str] = set()
    for number, name in enumerate(message.oneofs):
        if name in oneofs:
            file.refuse(f"{full_name} has two oneofs {name[:_SHOWN]}", message.place)
        oneofs.add(name)
        if number not in used:
            file.refuse(f"oneof {name[:_SHOWN]} of {full_name} has no fields", message.place)


def _check_map_entry(
    file: FileDefinition, message: MessageDefinition, fields: Sequence[ProtoField]
) -> None:
    is_pair = [(f.name, f.number) for f in fields] == [("key", 1), ("value", 2)]
    if not is_pair or any(f.is_repeated for f in fields):
        file.refuse(f"map entry {message.name} does not have key and value", message.place)
    if fields[0].type not in _MAP_KEYS:
        file.refuse(
            f"keys of a map cannot be {fields[0].type.name.lower()}",
            message.fields[0].place,
            hint="they are integers, bool or string",
        )


def _merged(around: Features, own: Features) -> Features:
    return {**around, **own} if own else around


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _descended(scope: _Scope | None, names: Sequence[str]) -> _Scope | None:
    for name in names:
        scope = scope.below.get(name) if scope is not None else None
    return scope


def _name(scope: _Scope) -> str:
    return scope.file.name if scope.file is not None and scope.file.name else "another file"


def _rounded(default: Default | None) -> float | None:
    """Return a default as a float of 32 bits has it."""
    if default is None:
        return None
    number = float(default)
    try:
        (rounded,) = unpack("<f", pack("<f", number))
    except OverflowError:
        return inf if number > 0 else -inf
    return number if isnan(number) else float(rounded)
