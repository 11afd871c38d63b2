"""``Protobuf``: messages become typed columns.

Knows the arguments, which message is wanted, and which one a value has by its message indexes;
descriptors, columns and plans are in ``kfast.schemas``, bytes in ``_native/protobuf_decode``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Never

from kfast._base.logs import get_logger
from kfast._base.spelling import did_you_mean
from kfast._native import protobuf_decode
from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.record_errors import ErrorKind
from kfast.deserializers.framed import (
    NO_SCHEMA,
    NONE,
    Key,
    Place,
    RegistryDeserializer,
    keys_of,
    place_of,
    plans_of_rows,
    shown_place,
    version_key,
)
from kfast.deserializers.typed import Piece
from kfast.errors import ConfigurationError
from kfast.registry.registered_schema import SchemaKey
from kfast.schemas.descriptors import ProtoPool
from kfast.schemas.layout import layout
from kfast.schemas.proto_schema import read_proto, registered_pool
from kfast.schemas.protobuf_columns import message_columns
from kfast.schemas.protobuf_plan import ProtobufPlan, compile_plan
from kfast.schemas.selection import Selection, select
from kfast.schemas.types import SchemaField

if TYPE_CHECKING:
    from kfast.registry.registered_schema import RegisteredSchema, SchemaSource

logger = get_logger(__name__)

_NO_LAYOUT: Final = layout(NO_SCHEMA)
_CHOICES: Final = {"enums": ("name", "number"), "absent": ("default", "null")}
_MOST_FILES: Final = 10_000
_LENGTH_DELIMITED: Final = 2
_WIRE_TYPES: Final = (
    "a varint",
    "a 64-bit number",
    "a length-delimited field",
    "a group",
    "the end of a group",
    "a 32-bit number",
)

_Path = tuple[int, ...]
"""Message indexes."""


class _Target(NamedTuple):
    """The message that is wanted, and how values of it become columns."""

    name: str
    plan: ProtobufPlan


class Protobuf(RegistryDeserializer):
    """Protobuf messages, as typed columns.

    Parameters
    ----------
    message : generated class, descriptor or str, optional
        The message that is wanted: a class that protoc has generated, its ``DESCRIPTOR``, or a full
        name such as ``"shop.Order"``. Default: with a registry the message that the first value of
        each topic has, which depends on where reading begins.
    descriptor_set : bytes or str, optional
        Where a message is that is given by name: a serialized FileDescriptorSet (``protoc
        --include_imports --descriptor_set_out``), or the text of a ``.proto`` file.
    imports : mapping of str to str or bytes, optional
        Files that the text imports, and those that they import: texts, or descriptors, by the names
        under which they are imported. The well-known types need not be given.
    registry : SchemaRegistry, optional
        Where the schemas are that values name; they say which message of its file a value is.
    reader : str, optional
        The schema of the registry that gives the columns: ``"latest"`` for the latest version of
        ``<topic>-value`` or ``<topic>-key``, ``"SUBJECT:latest"`` or ``"SUBJECT:3"`` for a version
        of a subject, looked up when it is first needed. Without ``message``, the columns are those
        of its first message.
    framing : {"none", "confluent", "apicurio"}, optional
        How values name their schema and message. Default: ``"confluent"`` with a registry, else
        ``"none"``. With a message that is known and no registry, its own file has the indexes.
    columns : sequence of str, optional
        Paths of the columns that are wanted, such as ``["id", "order.price", "lines[].sku"]``;
        the others are skipped. Default: all.
    enums : {"name", "number"}
        What enums become: a dictionary of names, or int32.
    absent : {"default", "null"}
        What fields are that a message lacks and that have a default: proto3's without ``optional``,
        and those that declare one. All others are null.
    max_depth : int
        How deep messages may be nested, and groups that are skipped; at most 256.

    Raises
    ------
    ConfigurationError
        There is no such message, or a part of it cannot be a column.

    Notes
    -----
    The Protobuf runtime is not needed. Values are decoded by the wanted message's field numbers,
    whatever schema they were written with. Nothing is looked up at construction. Objects are
    immutable, equal if their arguments are, and pickle.

    Examples
    --------
    >>> text = 'syntax = "proto3"; message Order { int64 id = 1; string user = 2; }'
    >>> kfast.Protobuf("Order", descriptor_set=text).decode([b"\\x08\\x07"]).values.to_list()
    [{'id': 7, 'user': ''}]
    """

    __slots__ = ("_absent", "_enums", "_name", "_pool", "_reader")

    format_name: ClassVar[str] = "Protobuf"
    has_indexes: ClassVar[bool] = True
    schema_misfit: ClassVar[str] = "which is not that of the wanted message"

    def __init__(
        self,
        message: Any = None,
        *,
        descriptor_set: bytes | str | None = None,
        imports: Mapping[str, str | bytes] | None = None,
        registry: SchemaSource | None = None,
        reader: str | None = None,
        framing: str | None = None,
        columns: Sequence[str] | None = None,
        enums: Literal["name", "number"] = "name",
        absent: Literal["default", "null"] = "default",
        max_depth: int = 64,
        **unknown: Never,
    ) -> None:
        self._refuse_unknown(unknown)
        self._set_registry(framing, registry, max_depth)
        self._columns: Selection = select(columns)
        self._enums: Literal["name", "number"] = _checked("enums", enums)
        self._absent: Literal["default", "null"] = _checked("absent", absent)
        if message is not None and not isinstance(message, str):
            message, descriptor_set = _described(message, descriptor_set)
        self._name: str | None = None if message is None else message.removeprefix(".")
        self._check_arguments(descriptor_set, imports, reader)
        self._pool: ProtoPool | None = None
        self._reader: _Target | None = None
        used: dict[str, str | bytes] = {}
        if descriptor_set is not None:
            assert self._name is not None
            self._pool = read_proto(_checked_set(descriptor_set), imports)
            self._reader = self._target_of(self._pool, self._name)
            used = {
                name: file for name, file in (imports or {}).items() if name in self._pool.files
            }
        if reader is not None:
            self._set_reader_key(reader)
        options: dict[str, Any] = {
            "message": self._name,
            "descriptor_set": descriptor_set,
            "imports": used or None,
            "registry": registry,
            "reader": reader,
            "framing": None if self._framing == NONE and registry is None else self._framing,
            "columns": None if columns is None else tuple(columns),
            "enums": None if enums == "name" else enums,
            "absent": None if absent == "default" else absent,
            "max_depth": None if max_depth == 64 else max_depth,
        }
        self._options = {name: value for name, value in options.items() if value is not None}

    def _check_arguments(self, descriptor_set: object, imports: object, reader: object) -> None:
        if imports is not None:
            _check_imports(descriptor_set, imports)
        if reader is not None and descriptor_set is not None:
            raise ConfigurationError(
                "reader and the descriptor of a message both say which columns there are",
                hint="leave one of them out",
            )
        if descriptor_set is not None and self._name is None:
            raise ConfigurationError(
                "Protobuf needs the name of a message in the descriptor set",
                hint='Protobuf("package.Message", descriptor_set=...)',
            )
        is_known = descriptor_set is not None or reader is not None
        if not is_known and (self._registry is None or self._framing == NONE):
            raise ConfigurationError(
                "Protobuf needs the descriptor of a message where values do not name it",
                found=None if self._name is None else f"the name {self._name!r} alone",
                hint="Protobuf(GENERATED_CLASS), Protobuf(NAME, descriptor_set=...) or registry=",
            )

    def _target_of(self, pool: ProtoPool, name: str) -> _Target:
        columns = message_columns(
            pool,
            name,
            columns=self._columns,
            enums=self._enums,
            absent=self._absent,
            max_depth=self._max_depth,
        )
        return _Target(name, compile_plan(columns))

    # --- what users see ---------------------------------------------------------------------------

    @property
    def _some_target(self) -> _Target | None:
        return self._reader or next(iter(list(self._targets.values())), None)

    @property
    def root(self) -> SchemaField | None:
        """The root of the schema, of the first one if topics have several."""
        target = self._some_target
        return None if target is None else target.plan.column

    @property
    def message(self) -> str | None:
        """Full name of the message that is wanted; None while it is not known."""
        target = self._some_target
        return self._name if target is None else target.name

    @property
    def plan(self) -> ProtobufPlan | None:
        """How values are read; its repr has one line per field. None while it is not known."""
        target = self._some_target
        return None if target is None else target.plan

    def __repr__(self) -> str:
        shown = dict(self._options)
        name = shown.pop("message", None)
        raw = shown.pop("descriptor_set", None)
        parts = [] if name is None else [repr(name)]
        if raw is not None:
            parts.append(
                f"descriptor_set=<{len(raw)} {'bytes' if isinstance(raw, bytes) else 'characters'}>"
            )
        if "imports" in shown:
            shown["imports"] = [*shown["imports"]]
        parts += [f"{key}={value!r}" for key, value in shown.items()]
        return f"{type(self).__name__}({', '.join(parts)})"

    # --- schemas of a registry --------------------------------------------------------------------

    @property
    def is_serialized(self) -> bool:
        """Whether schemas of a registry are wanted as descriptors."""
        return True

    def _read(self, _key: SchemaKey, schema: RegisteredSchema, /) -> ProtoPool:
        return registered_pool(schema)

    # --- decoding ---------------------------------------------------------------------------------

    def _decode(
        self, column: BytesColumn, headers: HeadersColumn | None, mode: int, most_bytes: int
    ) -> Piece:
        rows: Any = None
        prefixes: Any = None
        if self._framing == NONE:
            target = self._reader or self._target(column, ())
        else:
            wire = self._scan(column, headers)
            keys = list(zip(keys_of(wire), (path for _, _, path in wire.keys), strict=True))
            target = self._reader or self._target(column, keys)
            plans = [self._plan(key, path or (0,), target) for key, path in keys]
            rows, prefixes = plans_of_rows(wire, plans)
        if target is None:
            root, parts, names, nodes = NO_SCHEMA, None, {}, _NO_LAYOUT
        else:
            plan = target.plan
            root, parts, names, nodes = plan.column, plan.parts, plan.names, plan.layout
        built, errors = protobuf_decode.decode(
            nodes,
            names,
            parts,
            *column.spans,
            mode,
            rows,
            prefixes,
            self._max_depth,
            most_bytes,
        )
        return Piece(root, built, errors)

    def _target(
        self, column: BytesColumn, keys: Sequence[tuple[Key, _Path | None]]
    ) -> _Target | None:
        """Return the message of a topic that has none given: the reader's, or the first value's."""
        place = place_of(column)
        target: _Target | None = self._targets.get(place)
        if target is not None:
            return target
        if self._reader_key is not None:
            return self._target_of_reader(self._reader_key, place, is_needed=len(column) > 0)
        for key, path in keys:
            pool = self._known.get(key)
            if not isinstance(pool, ProtoPool):
                continue
            try:
                name = pool.at_indexes(path or (0,))
                if self._name is not None and not _is_message(pool, path or (0,), self._name):
                    continue
                candidate = self._target_of(pool, self._name or name)
            except LookupError:
                continue
            return self._found(place, key, candidate)
        return None

    def _target_of_reader(
        self, reader: str, place: Place | None, *, is_needed: bool
    ) -> _Target | None:
        key = version_key(reader, place)
        pool = self._known.get(key)
        if not isinstance(pool, ProtoPool):
            if is_needed:
                raise self._no_reader(place)
            return None
        try:
            name = self._name or pool.at_indexes((0,))
        except LookupError:
            raise ConfigurationError(
                f"{key} has no message", hint='reader="SUBJECT:VERSION" names another one'
            ) from None
        return self._found(place, key, self._target_of(pool, name))

    def _found(self, place: Place | None, key: Key, candidate: _Target) -> _Target:
        target: _Target = self._targets.setdefault(place, candidate)
        logger.info("the message of %s is %s of %s", shown_place(place), target.name, key)
        return target

    def _plan(self, key: Key, path: _Path, target: _Target | None) -> int:
        """Return 0 for values of the wanted message, and a negated error for others."""
        pool = self._pool if self._registry is None else self._known.get(key)
        if isinstance(pool, ErrorKind):
            return -pool
        if pool is None or target is None:
            return -(ErrorKind.UNKNOWN_SCHEMA if pool is None else ErrorKind.SCHEMA)
        return 0 if _is_message(pool, path, target.name) else -ErrorKind.SCHEMA

    def _type_at(self, raw: bytes, position: int) -> str:
        wire = raw[position] & 7 if position < len(raw) else len(_WIRE_TYPES)
        return _WIRE_TYPES[wire] if wire < len(_WIRE_TYPES) else ""


def _is_message(pool: ProtoPool, path: _Path, name: str) -> bool:
    """Whether message indexes in the main file of a schema mean a message."""
    outer = pool.files[pool.main]
    if name not in pool.messages or not any(name == o or name.startswith(f"{o}.") for o in outer):
        return False
    return pool.is_at(path, name)


def _checked(name: str, value: Any) -> Any:
    choices = _CHOICES[name]
    if value in choices:
        return value
    near = did_you_mean(value, choices) if isinstance(value, str) else None
    raise ConfigurationError(
        f"{name} is {' or '.join(map(repr, choices))}, not {value!r}",
        hint=f"{name}={near or choices[0]!r}",
    )


def _checked_set(descriptor_set: object) -> bytes | str:
    if isinstance(descriptor_set, bytes | str):
        return descriptor_set
    raise ConfigurationError(
        f"descriptor_set is the bytes of a FileDescriptorSet or .proto text, not "
        f"{type(descriptor_set).__name__}",
        hint="open(FILE, 'rb').read() gives the bytes of a file",
    )


def _check_imports(descriptor_set: object, imports: object) -> None:
    if descriptor_set is None or not isinstance(imports, Mapping):
        raise ConfigurationError(
            "imports are the files that the text of descriptor_set imports, by name"
            if descriptor_set is None
            else f"imports is a mapping of names to texts, not {type(imports).__name__}",
            hint='Protobuf(NAME, descriptor_set=TEXT, imports={"shop/money.proto": TEXT})',
        )
    for name, file in imports.items():
        if not isinstance(name, str) or not isinstance(file, str | bytes):
            raise ConfigurationError(
                f"imports has names and texts, not {type(name).__name__} and {type(file).__name__}",
                hint="open(FILE).read() gives the text of a file",
            )


def _described(message: Any, descriptor_set: object) -> tuple[str, bytes]:
    """Return name and descriptors of a generated class, or of a descriptor, by what it has."""
    if descriptor_set is not None:
        raise ConfigurationError(
            "descriptor_set is for a message that is given by name",
            hint="Protobuf(GENERATED_CLASS)",
        )
    descriptor = getattr(message, "DESCRIPTOR", message)
    name, file = getattr(descriptor, "full_name", None), getattr(descriptor, "file", None)
    if not isinstance(name, str) or not isinstance(getattr(file, "serialized_pb", None), bytes):
        raise ConfigurationError(
            f"message is a generated class, a descriptor or a name, not {type(message).__name__}",
            hint='Protobuf(orders_pb2.Order), or Protobuf("shop.Order", descriptor_set=...)',
        )
    return name, b"".join(_in_set(dependency) for dependency in _files(file))


def _files(file: Any) -> Iterator[bytes]:
    """Yield the descriptors of a file and of all that it imports, this one last."""
    descriptors: dict[str, bytes] = {}
    waiting = [file]
    while waiting and len(descriptors) < _MOST_FILES:
        imported = waiting.pop()
        if imported.name not in descriptors:
            descriptors[imported.name] = imported.serialized_pb
            waiting.extend(imported.dependencies)
    own = descriptors.pop(file.name)
    yield from descriptors.values()
    yield own


def _in_set(file: bytes) -> bytes:
    """Return a file as an entry of a FileDescriptorSet: its field 1."""
    entry, size = bytearray([1 << 3 | _LENGTH_DELIMITED]), len(file)
    while size > 0x7F:
        entry.append(size & 0x7F | 0x80)
        size >>= 7
    entry.append(size)
    return bytes(entry) + file
