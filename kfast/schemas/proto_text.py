"""``.proto`` text: proto2, proto3 and edition 2023.

Own parser: one pass, one token ahead. It reads messages, enums, fields, oneofs, maps and groups
with the options that decoding depends on (``default``, features), checks the form of the rest and
leaves it out: services, extensions, reserved names, other options. Names of types stay as they are
written; ``proto_files`` resolves them. What a schema may not have is refused here if the text alone
shows it, and there if it takes its types.

The text may come from a registry and is hostile: its size and the depth of messages are bounded,
and the only exception is ``ConfigurationError``, with line and column.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from kfast._base.spelling import did_you_mean
from kfast.errors import ConfigurationError
from kfast.schemas.descriptors import Default, ProtoType
from kfast.schemas.proto_files import (
    CLOSED,
    DELIMITED,
    ENUM_TYPE,
    EXPLICIT,
    FEATURES,
    FIELD_PRESENCE,
    IMPLICIT,
    LEGACY_REQUIRED,
    LENGTH_PREFIXED,
    MAX_NESTING,
    MAX_NUMBER,
    MESSAGE_ENCODING,
    OPEN,
    EnumDefinition,
    FieldDefinition,
    FileDefinition,
    MessageDefinition,
)
from kfast.schemas.proto_tokens import Token, TokenKind, TokenReader
from kfast.schemas.proto_values import float_of, integer_of, whole

MAX_TEXT: Final = 4 << 20
"""Characters of a file."""

_MESSAGES: Final = (ProtoType.GROUP, ProtoType.MESSAGE)
_SCALARS: Final = {
    kind.name.lower(): kind for kind in ProtoType if kind not in {*_MESSAGES, ProtoType.ENUM}
}
_LABELS: Final = ("optional", "required", "repeated")
_STATEMENTS: Final = ("message", "enum", "import", "package", "option", "service", "extend")
_FEATURES: Final = {
    "field_presence": (
        FIELD_PRESENCE,
        {"EXPLICIT": EXPLICIT, "IMPLICIT": IMPLICIT, "LEGACY_REQUIRED": LEGACY_REQUIRED},
    ),
    "enum_type": (ENUM_TYPE, {"OPEN": OPEN, "CLOSED": CLOSED}),
    "message_encoding": (
        MESSAGE_ENCODING,
        {"LENGTH_PREFIXED": LENGTH_PREFIXED, "DELIMITED": DELIMITED},
    ),
}
_INT32: Final = range(-(1 << 31), 1 << 31)


class _Option(NamedTuple):
    """An option: its name as it is written, and its value.

    ``sign`` is a minus or nothing. Of a value in braces ``tokens`` are those right inside of them.
    """

    name: str
    value: Token
    sign: str
    string: bytes
    tokens: tuple[Token, ...]


class _Range(NamedTuple):
    """Numbers that fields or values may not have, the last one included."""

    first: int
    last: int
    reason: str


def parse_file(text: str, name: str = "") -> FileDefinition:
    """Read the text of one file.

    Raises
    ------
    ConfigurationError
        It is no ``.proto`` text; with line and column.
    """
    if len(text) > MAX_TEXT:
        raise ConfigurationError(
            f"{name or 'the Protobuf schema'} has more than {MAX_TEXT} characters"
        )
    file = FileDefinition(name, text=text)
    _Parser(file, TokenReader(file, text)).parse()
    return file


class _Parser:
    def __init__(self, file: FileDefinition, tokens: TokenReader) -> None:
        self._file = file
        self._tokens = tokens
        self._has_edition = False

    def parse(self) -> None:
        """Read the whole file."""
        self._edition()
        tokens = self._tokens
        has_package = False
        while tokens.token.kind is not TokenKind.END:
            place = tokens.token.place
            if self._type_or_option(self._file, 1):
                continue
            if tokens.take_if("import"):
                self._import()
            elif tokens.take_if("package"):
                if has_package:
                    tokens.refuse("there is a package already", place, hint="leave one out")
                self._file.package = tokens.take_name()
                has_package = True
                tokens.expect(";")
            elif tokens.take_if("service"):
                tokens.take_kind(TokenKind.WORD)
                self._skip_block()
            else:
                near = did_you_mean(tokens.token.text[:40], _STATEMENTS)
                hint = f'did you mean "{near}"?' if near else f"write {', '.join(_STATEMENTS)}"
                actual = tokens.token.text[:40]
                tokens.refuse("no statement begins like this", place, actual=actual, hint=hint)

    def _edition(self) -> None:
        tokens = self._tokens
        if not tokens.is_at("syntax", "edition"):
            return
        word = tokens.take().text
        tokens.expect("=")
        place, value = tokens.token.place, tokens.take_text()
        tokens.expect(";")
        editions = ("proto2", "proto3") if word == "syntax" else ("2023",)
        if value not in editions:
            hint = f"known are {' and '.join(editions)}"
            if value == "2024":
                hint = "give a descriptor set: protoc --include_imports --descriptor_set_out=FILE"
            tokens.refuse(f"{word} {value[:40]!r} is not known", place, hint=hint)
        self._file.edition = value
        self._has_edition = True

    def _import(self) -> None:
        tokens = self._tokens
        is_public = tokens.take_if("public")
        if not is_public:
            tokens.take_if("weak")
        name = tokens.take_text()
        tokens.expect(";")
        if name not in self._file.imports:
            self._file.imports.append(name)
        if is_public:
            self._file.public.append(name)

    def _type_or_option(self, parent: FileDefinition | MessageDefinition, depth: int) -> bool:
        """Read a statement that files and messages have alike; False if none is here."""
        tokens = self._tokens
        if tokens.take_if(";"):
            return True
        if tokens.take_if("message"):
            place, name = tokens.token.place, tokens.take_kind(TokenKind.WORD).text
            message = MessageDefinition(name, place=place)
            parent.messages.append(message)
            self._message(message, depth)
        elif tokens.take_if("enum"):
            parent.enums.append(self._enum())
        elif tokens.take_if("extend"):
            self._extend(parent, depth)
        elif tokens.take_if("option"):
            self._own_option(parent)
        else:
            return False
        return True

    # --- messages ---------------------------------------------------------------------------------

    def _message(self, message: MessageDefinition, depth: int) -> None:
        """Read the body of a message or group."""
        tokens = self._tokens
        if depth > MAX_NESTING:
            place = tokens.token.place
            tokens.refuse(f"messages are nested more than {MAX_NESTING} levels deep", place)
        ranges: list[_Range] = []
        names: set[str] = set()
        tokens.expect("{")
        while not tokens.take_if("}"):
            if self._type_or_option(message, depth + 1):
                continue
            if tokens.take_if("extensions"):
                self._ranges(ranges, "one of extensions", range(1, (1 << 31) - 1))
                if tokens.is_at("["):
                    self._options()
                tokens.expect(";")
            elif tokens.take_if("reserved"):
                self._reserved(ranges, names, range(1, MAX_NUMBER + 1))
            elif tokens.take_if("oneof"):
                self._oneof(message, depth)
            else:
                message.fields.append(self._field(message.messages, depth))
        taken = [(field.number, field.name, field.place) for field in message.fields]
        self._check_reserved(ranges, names, taken)

    def _oneof(self, message: MessageDefinition, depth: int) -> None:
        tokens = self._tokens
        number = len(message.oneofs)
        message.oneofs.append(tokens.take_kind(TokenKind.WORD).text)
        tokens.expect("{")
        while not tokens.take_if("}"):
            if tokens.take_if("option"):
                self._feature({}, self._option(), "a oneof")
                tokens.expect(";")
            elif not tokens.take_if(";"):
                field = self._field(message.messages, depth, is_in_oneof=True)
                field.oneof = number
                message.fields.append(field)

    def _extend(self, parent: FileDefinition | MessageDefinition, depth: int) -> None:
        """Read extensions, of which only the messages of groups matter."""
        tokens = self._tokens
        tokens.take_name()
        tokens.expect("{")
        while not tokens.take_if("}"):
            if not tokens.take_if(";"):
                self._field(parent.messages, depth)

    def _field(
        self, messages: list[MessageDefinition], depth: int, *, is_in_oneof: bool = False
    ) -> FieldDefinition:
        """Read a field; its group or map entry is added to ``messages``."""
        tokens = self._tokens
        place = tokens.token.place
        label = tokens.take().text if tokens.is_at(*_LABELS) else ""
        kind = tokens.token
        if kind.kind is not TokenKind.WORD and kind.text != ".":
            tokens.expected("a field, or }")
        type_name = tokens.take_name()
        is_map = type_name == "map" and tokens.is_at("<")
        self._check_label(label, place, is_free=is_in_oneof or is_map)
        if is_map:
            if is_in_oneof:
                tokens.refuse("a map cannot be in a oneof", place, hint="put it in a message")
            return self._map(messages, place)
        field = FieldDefinition("", 0, _SCALARS.get(type_name), place=place)
        field.is_repeated, field.is_required = label == "repeated", label == "required"
        field.is_optional3 = label == "optional" and self._file.edition == "proto3"
        if type_name == "group":
            self._group(field, messages, depth)
            return field
        field.type_name = "" if field.type else type_name
        self._rest(field)
        tokens.expect(";")
        return field

    def _check_label(self, label: str, place: int, *, is_free: bool) -> None:
        edition = self._file.edition
        why = ""
        if is_free and label:
            why = "a field of a oneof, and a map, has no label"
        elif label == "required" and edition == "proto3":
            why = "proto3 has no required fields"
        elif label in {"required", "optional"} and edition not in {"proto2", "proto3"}:
            why = f"an edition has features.field_presence in place of {label}"
        if why:
            self._tokens.refuse(why, place, actual=label, hint=f"leave {label} out")
        if edition == "proto2" and not label and not is_free:
            self._tokens.refuse(
                "a field of proto2 needs a label",
                place,
                actual=None if self._has_edition else "no syntax at the begin means proto2",
                hint='write optional, required or repeated, or syntax = "proto3"; at the begin',
            )

    def _rest(self, field: FieldDefinition) -> None:
        """Read name, number and options of a field."""
        tokens = self._tokens
        field.name = tokens.take_kind(TokenKind.WORD, "the name of the field").text
        tokens.expect("=")
        field.number = self._whole("the number of the field")
        self._field_options(field)

    def _field_options(self, field: FieldDefinition) -> None:
        features: dict[int, int] = {}
        for option in self._options() if self._tokens.is_at("[") else ():
            if option.name == "default":
                why = "this is there twice" if field.default is not None else ""
                why = "proto3 has no defaults" if self._file.edition == "proto3" else why
                why = "messages have no defaults" if field.type in _MESSAGES else why
                if why:
                    self._tokens.refuse(why, option.value.place, hint="leave the default out")
                field.default = self._default(field.type, option)
            else:
                self._feature(features, option, "a field", FIELD_PRESENCE, MESSAGE_ENCODING)
        field.features = features

    def _group(self, field: FieldDefinition, messages: list[MessageDefinition], depth: int) -> None:
        tokens = self._tokens
        if self._file.edition != "proto2":
            hint = "write a message and a field of it"
            tokens.refuse(f"{self._file.edition} has no groups", field.place, hint=hint)
        message = MessageDefinition("", place=tokens.token.place)
        message.name = tokens.take_kind(TokenKind.WORD, "the name of the group").text
        if not message.name[0].isupper():
            tokens.refuse(
                "the name of a group begins with a capital letter",
                message.place,
                actual=message.name[:40],
            )
        tokens.expect("=")
        field.name, field.type_name = message.name.lower(), message.name
        field.type = ProtoType.GROUP
        field.number = self._whole("the number of the field")
        self._field_options(field)
        messages.append(message)
        self._message(message, depth + 1)

    def _map(self, messages: list[MessageDefinition], place: int) -> FieldDefinition:
        """Read a map, which is a repeated message with key and value."""
        tokens = self._tokens
        tokens.expect("<")
        key = self._entry_field("key", 1)
        tokens.expect(",")
        value = self._entry_field("value", 2)
        tokens.expect(">")
        field = FieldDefinition("", 0, ProtoType.MESSAGE, is_repeated=True, place=place)
        self._rest(field)
        tokens.expect(";")
        field.type_name = _entry_name(field.name)
        messages.append(
            MessageDefinition(field.type_name, [key, value], is_map_entry=True, place=place)
        )
        return field

    def _entry_field(self, name: str, number: int) -> FieldDefinition:
        place, type_name = self._tokens.token.place, self._tokens.take_name()
        kind = _SCALARS.get(type_name)
        return FieldDefinition(name, number, kind, "" if kind else type_name, place=place)

    # --- enums ------------------------------------------------------------------------------------

    def _enum(self) -> EnumDefinition:
        tokens = self._tokens
        enum = EnumDefinition("", place=tokens.token.place)
        enum.name = tokens.take_kind(TokenKind.WORD).text
        features: dict[int, int] = {}
        ranges: list[_Range] = []
        names: set[str] = set()
        taken: list[tuple[int, str, int]] = []
        has_aliases = False
        tokens.expect("{")
        while not tokens.take_if("}"):
            if tokens.take_if(";"):
                continue
            if tokens.take_if("option"):
                option = self._option()
                tokens.expect(";")
                has_aliases = has_aliases or (
                    option.name == "allow_alias" and option.value.text == "true"
                )
                self._feature(features, option, "an enum", ENUM_TYPE)
            elif tokens.take_if("reserved"):
                self._reserved(ranges, names, _INT32)
            else:
                place = tokens.token.place
                name = tokens.take_kind(TokenKind.WORD, "a value of the enum, or }").text
                tokens.expect("=")
                taken.append((self._signed(_INT32), name, place))
                if tokens.is_at("["):
                    self._options()
                tokens.expect(";")
        enum.values = [(name, number) for number, name, _ in taken]
        enum.features = features
        self._check_reserved(ranges, names, taken)
        if not has_aliases:
            self._check_aliases(taken)
        return enum

    def _check_aliases(self, taken: list[tuple[int, str, int]]) -> None:
        first: dict[int, str] = {}
        for number, name, place in taken:
            other = first.setdefault(number, name)
            if other != name:
                self._tokens.refuse(
                    f"two values of the enum have the number {number}",
                    place,
                    actual=f"{other[:40]}, {name[:40]}",
                    hint="option allow_alias = true; allows it",
                )

    # --- numbers ----------------------------------------------------------------------------------

    def _whole(self, description: str) -> int:
        token = self._tokens.token
        number = whole(token.text) if token.kind is TokenKind.NUMBER else None
        if number is None:
            self._tokens.expected(description)
        self._tokens.take()
        return number

    def _signed(self, limits: range) -> int:
        place = self._tokens.token.place
        sign = -1 if self._tokens.take_if("-") else 1
        number = sign * self._whole("a number")
        if number not in limits:
            self._tokens.refuse(
                "the number is out of range", place, hint=f"{limits[0]} to {limits[-1]}"
            )
        return number

    def _ranges(self, ranges: list[_Range], reason: str, limits: range) -> None:
        tokens = self._tokens
        while True:
            place, first = tokens.token.place, self._signed(limits)
            last = first
            if tokens.take_if("to"):
                last = limits[-1] if tokens.take_if("max") else self._signed(limits)
            if last < first:
                tokens.refuse("the range ends before it begins", place, actual=f"{first} to {last}")
            ranges.append(_Range(first, last, reason))
            if not tokens.take_if(","):
                return

    def _reserved(self, ranges: list[_Range], names: set[str], limits: range) -> None:
        tokens = self._tokens
        kind = tokens.token.kind
        if kind not in {TokenKind.STRING, TokenKind.WORD}:
            self._ranges(ranges, "reserved", limits)
        else:
            names.add(tokens.take_text() if kind is TokenKind.STRING else tokens.take().text)
            while tokens.take_if(","):
                is_word = tokens.token.kind is TokenKind.WORD
                names.add(tokens.take().text if is_word else tokens.take_text())
        tokens.expect(";")

    def _check_reserved(
        self, ranges: list[_Range], names: set[str], taken: list[tuple[int, str, int]]
    ) -> None:
        """Refuse fields or values whose number or name is reserved."""
        ranges.sort()
        begins = [reserved.first for reserved in ranges]
        last = None
        for reserved in ranges:
            if last is not None and reserved.first <= last.last:
                actual = f"{last.first} to {last.last}, {reserved.first} to {reserved.last}"
                place = self._tokens.token.place
                self._tokens.refuse("ranges of reserved numbers overlap", place, actual=actual)
            last = reserved
        for number, name, place in taken:
            at = bisect_right(begins, number) - 1
            if at >= 0 and number <= ranges[at].last:
                why = ranges[at].reason
                self._tokens.refuse(f"the number {number} of {name[:40]} is {why}", place)
            if name in names:
                self._tokens.refuse(f"the name {name[:40]} is reserved", place)

    # --- options ----------------------------------------------------------------------------------

    def _own_option(self, parent: FileDefinition | MessageDefinition) -> None:
        """Read an option of the file or of a message."""
        option = self._option()
        if isinstance(parent, FileDefinition):
            features = dict(parent.features)
            self._feature(features, option, "a file", *FEATURES)
            parent.features = features
        else:
            self._feature({}, option, "a message")
        self._tokens.expect(";")

    def _options(self) -> list[_Option]:
        """Read options in brackets."""
        self._tokens.expect("[")
        options = [self._option()]
        while self._tokens.take_if(","):
            options.append(self._option())
        self._tokens.expect("]")
        return options

    def _option(self) -> _Option:
        tokens = self._tokens
        parts = []
        while True:
            if tokens.take_if("("):
                parts.append(f"({tokens.take_name()})")
                tokens.expect(")")
            else:
                parts.append(tokens.take_kind(TokenKind.WORD, "the name of an option").text)
            if not tokens.take_if("."):
                break
        tokens.expect("=")
        name = ".".join(parts)
        sign = "-" if tokens.take_if("-") else ""
        value = tokens.token
        if value.text == "{" and not sign:
            return _Option(name, value, "", b"", self._skip_block())
        if value.kind is TokenKind.STRING and not sign:
            return _Option(name, value, "", tokens.take_string(), ())
        if value.kind not in {TokenKind.WORD, TokenKind.NUMBER}:
            tokens.expected("the value of the option")
        return _Option(name, tokens.take(), sign, b"", ())

    def _skip_block(self) -> tuple[Token, ...]:
        """Read what is in braces, and return the tokens that are in no further ones."""
        tokens = self._tokens
        place = tokens.token.place
        tokens.expect("{")
        outer = []
        depth = 1
        while depth:
            token = tokens.take()
            if token.kind is TokenKind.END:
                tokens.refuse("the block does not end", place, hint="write } behind it")
            depth += (token.text == "{") - (token.text == "}")
            if depth == 1:
                outer.append(token)
        return tuple(outer)

    def _default(self, kind: ProtoType | None, option: _Option) -> Default:
        value, text = option.value, option.sign + option.value.text
        is_word = value.kind is TokenKind.WORD
        default: Default | None = None
        if kind is None:
            default = text if is_word and not option.sign else None
        elif kind in {ProtoType.STRING, ProtoType.BYTES}:
            if value.kind is TokenKind.STRING:
                default = option.string if kind is ProtoType.BYTES else _text(option.string)
        elif kind is ProtoType.BOOL:
            default = {"true": True, "false": False}.get(text)
        elif kind in {ProtoType.FLOAT, ProtoType.DOUBLE}:
            default = float_of(text)
        else:
            default = integer_of(text, kind)
        if default is None:
            description = "the name of a value" if kind is None else kind.name.lower()
            self._tokens.refuse(
                "the default is not of the type of the field",
                value.place,
                actual=text[:40],
                hint=f"write {description}",
            )
        return default

    def _feature(
        self, features: dict[int, int], option: _Option, target: str, *numbers: int
    ) -> None:
        """Note a feature that decoding depends on; other options mean nothing here.

        ``numbers`` are the features that the ``target`` may have.
        """
        if option.name.split(".")[0] != "features":
            return
        if self._file.edition in {"proto2", "proto3"}:
            self._tokens.refuse(
                f"{self._file.edition} has no features",
                option.value.place,
                hint='write edition = "2023"; in place of syntax',
            )
        settings = [(option.name.removeprefix("features."), option.value)]
        if option.name == "features":
            inside = option.tokens
            settings = [
                (inside[at].text, inside[at + 2])
                for at in range(len(inside) - 2)
                if inside[at + 1].text == ":"
            ]
        for name, value in settings:
            if name not in _FEATURES:
                continue
            number, values = _FEATURES[name]
            if number not in numbers:
                self._tokens.refuse(f"{target} has no feature {name}", value.place)
            if value.text not in values:
                self._tokens.refuse(
                    f"feature {name} has a value that is not known",
                    value.place,
                    actual=value.text[:40],
                    hint=f"known are {', '.join(values)}",
                )
            features[number] = values[value.text]


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _entry_name(field: str) -> str:
    """Return the name of a map's message: the field's, in capitals where words begin."""
    parts = (word[0].upper() + word[1:] for word in field.split("_") if word)
    return f"{''.join(parts)}Entry"
