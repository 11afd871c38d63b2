"""Types as text: ``"int64 not null"``, ``"list<struct<sku: string, qty: int32>>"``.

Owns the names of types, other libraries' names for them, and the reader of nested type texts,
which also reads Spark's (``ddl``), with another table of names. Grammar::

    field  = type ["not null"]
    type   = name | name "[" word {"," word} "]" | name "(" number {"," number} ")"
           | ("list" | "large_list") "<" field ">" | "map" "<" field "," field ">"
           | "struct" "<" member {"," member} ">"
    member = (word | "`" text "`") ":" field

Letter case does not matter in names of types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kfast.schemas.refusals import check_name, check_nesting, refusal, unknown_name
from kfast.schemas.types import DataType, Kind, SchemaField

UNITS: Final = {
    Kind.TIME32: ("s", "ms"),
    Kind.TIME64: ("us", "ns"),
    Kind.TIMESTAMP: ("s", "ms", "us", "ns"),
    Kind.DURATION: ("s", "ms", "us", "ns"),
}
MAX_PRECISION: Final = {Kind.DECIMAL128: 38, Kind.DECIMAL256: 76}
UTC_NAMES: Final = frozenset({"utc", "etc/utc", "+00:00", "z"})
MAX_FIXED_SIZE: Final = 1 << 20

NAMES: Final[Mapping[str, DataType]] = {
    "bool": DataType(Kind.BOOL),
    "int8": DataType(Kind.INT8),
    "int16": DataType(Kind.INT16),
    "int32": DataType(Kind.INT32),
    "int64": DataType(Kind.INT64),
    "uint8": DataType(Kind.UINT8),
    "uint16": DataType(Kind.UINT16),
    "uint32": DataType(Kind.UINT32),
    "uint64": DataType(Kind.UINT64),
    "float32": DataType(Kind.FLOAT32),
    "float64": DataType(Kind.FLOAT64),
    "string": DataType(Kind.STRING),
    "large_string": DataType(Kind.STRING, is_large=True),
    "binary": DataType(Kind.BINARY),
    "large_binary": DataType(Kind.BINARY, is_large=True),
    "date32": DataType(Kind.DATE32),
    "time32": DataType(Kind.TIME32),
    "time64": DataType(Kind.TIME64),
    "timestamp": DataType(Kind.TIMESTAMP),
    "duration": DataType(Kind.DURATION),
    "decimal128": DataType(Kind.DECIMAL128),
    "decimal256": DataType(Kind.DECIMAL256),
    "uuid": DataType(Kind.UUID),
    "fixed_size_binary": DataType(Kind.FIXED_BINARY),
    "dictionary": DataType(Kind.DICTIONARY),
    "list": DataType(Kind.LIST),
    "large_list": DataType(Kind.LIST, is_large=True),
    "map": DataType(Kind.MAP),
    "struct": DataType(Kind.STRUCT),
    "raw": DataType(Kind.RAW, is_json=True),
}
"""Names of types, with what they need still missing where they have parameters."""

ALIASES: Final = {
    "boolean": "bool", "utf8": "string", "str": "string", "large_utf8": "large_string",
    "bytes": "binary", "float": "float32", "double": "float64", "date": "date32",
    "date32[day]": "date32", "time": "time64", "decimal": "decimal128", "json": "raw",
}  # fmt: skip
"""Names that Arrow and its libraries use elsewhere."""

_TABLE: Final = {**NAMES, **{alias: NAMES[name] for alias, name in ALIASES.items()}}
_TOKENS: Final = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^\s<>()\[\],:`]+)|([<>()\[\],:]))")


def field_of_text(text: str, path: str = "", depth: int = 0) -> SchemaField:
    """Return the field without a name that a type text describes.

    Raises
    ------
    ConfigurationError
        The text is no type; the message has the path.
    """
    reader = TypeText(text, path, _TABLE)
    field = reader.read_field(path, depth)
    reader.expect_end(path)
    return field


@dataclass(frozen=True, slots=True)
class Token:
    """One part of a type text: a word, a quoted name, or a mark; empty at the end."""

    text: str
    kind: str

    def is_mark(self, mark: str) -> bool:
        """Return whether this is one of the marks ``< > ( ) [ ] , :``."""
        return self.kind == "mark" and self.text == mark

    def is_word(self, word: str) -> bool:
        """Return whether this is an unquoted word, in any letter case."""
        return self.kind == "word" and self.text.lower() == word


_END: Final = Token("", "end")


class TypeText:
    """A cursor over the tokens of a type text.

    Parameters
    ----------
    text : str
        The whole text.
    path : str
        Its place in the schema, for errors.
    table : mapping
        Types by name in lower case.
    is_ddl : bool
        Whether members may stand without a colon and have comments, as in Spark's texts, where
        decimals have defaults.
    """

    def __init__(
        self, text: str, path: str, table: Mapping[str, DataType], *, is_ddl: bool = False
    ) -> None:
        self._text = text
        self._table = table
        self._is_ddl = is_ddl
        self._tokens = list(_tokens(text, path))
        self._at = 0

    @property
    def current(self) -> Token:
        """The token that comes next."""
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def take(self) -> Token:
        """Return the next token and go on behind it."""
        token = self.current
        self._at += 1
        return token

    def take_mark(self, mark: str) -> bool:
        """Go on behind a mark if it comes next, and return whether it does."""
        is_next = self.current.is_mark(mark)
        self._at += is_next
        return is_next

    def expect_mark(self, mark: str, path: str) -> None:
        """Go on behind a mark that has to come next."""
        if not self.take_mark(mark):
            raise self.unexpected(path, f'"{mark}"')

    def expect_end(self, path: str) -> None:
        """Raise ConfigurationError if something is left."""
        if self.current is not _END:
            raise self.unexpected(path, "the end")

    def unexpected(self, path: str, expected: str) -> Exception:
        """Return the error for a token that does not fit."""
        actual = f'"{self.current.text}"' if self.current is not _END else "the end"
        return refusal(
            path,
            f'{expected} was expected instead of {actual} in "{self._text}"',
            'write types like "int64", "timestamp[ms, UTC]", "list<struct<a: int32, b: string>>"',
        )

    def read_field(self, path: str, depth: int) -> SchemaField:
        """Read a type with ``not null`` behind it, or without."""
        read = self._read_type(path, depth)
        is_nullable = True
        if self.current.is_word("not"):
            self.take()
            if not self.take().is_word("null"):
                self._at -= 1
                raise self.unexpected(path, '"null" after "not"')
            is_nullable = False
        return SchemaField("", read, is_nullable)

    def read_member(self, prefix: str, depth: int) -> SchemaField:
        """Read the name of a struct's member, and its type."""
        name = self.take()
        if name.kind == "word" or (name.kind == "quoted" and name.text):
            path = f"{prefix}.{name.text}" if prefix else name.text
            if not self.take_mark(":") and not self._is_ddl:
                raise self.unexpected(path, '":"')
            return self.read_field(path, depth).renamed(name.text)
        self._at -= 1
        raise self.unexpected(prefix, "the name of a field")

    def _read_type(self, path: str, depth: int) -> DataType:
        token = self.take()
        if token.kind != "word":
            self._at -= 1
            raise self.unexpected(path, "a type")
        name = token.text.lower()
        data_type = self._table.get(name)
        if data_type is None:
            raise unknown_name(path, "type", token.text, self._table)
        if data_type.kind in UNITS and not data_type.unit:
            return self._with_unit(data_type, name, path)
        if data_type.kind in MAX_PRECISION:
            return self._with_precision(data_type, name, path)
        if data_type.kind is Kind.FIXED_BINARY or data_type.size:
            return self._with_size(data_type, name, path)
        if data_type.kind in {Kind.LIST, Kind.MAP, Kind.STRUCT}:
            return self._with_children(data_type, name, path, depth)
        if data_type.kind is Kind.DATE32 and self.take_mark("["):
            if not self.take().is_word("day"):
                raise refusal(path, f'{name} has no unit but "day"', 'write "date32"')
            self.expect_mark("]", path)
        return data_type

    def _with_unit(self, data_type: DataType, name: str, path: str) -> DataType:
        units = UNITS[data_type.kind]
        example = f"{name}[{units[-1]}]"
        if not self.take_mark("["):
            raise refusal(path, f"{name} needs a unit", f'write "{example}"')
        unit = self.take().text
        if unit not in units:
            raise refusal(path, f'"{unit}" is no unit of {name}', f"use one of: {', '.join(units)}")
        is_utc = False
        if data_type.kind is Kind.TIMESTAMP and self.take_mark(","):
            zone = ""
            while self.current.kind == "word" or self.current.is_mark(":"):
                zone += self.take().text
            if zone.lower().removeprefix("tz=") not in UTC_NAMES:
                raise zone_refusal(path, zone)
            is_utc = True
        self.expect_mark("]", path)
        return replace(data_type, unit=unit, is_utc=is_utc)

    def _with_precision(self, data_type: DataType, name: str, path: str) -> DataType:
        if self.take_mark("("):
            numbers = [self._number(path)]
            while self.take_mark(","):
                numbers.append(self._number(path))
            self.expect_mark(")", path)
        elif self._is_ddl:
            numbers = [10]
        else:
            raise refusal(path, f"{name} needs its precision", f'write "{name}(18, 4)"')
        if len(numbers) > 2:
            raise refusal(path, f"{name} has a precision and a scale only")
        precision, scale = numbers[0], numbers[1] if len(numbers) == 2 else 0
        kind = data_type.kind
        if name == "decimal" and precision > MAX_PRECISION[kind] and not self._is_ddl:
            kind = Kind.DECIMAL256
        return decimal_type(kind, precision, scale, path)

    def _with_size(self, data_type: DataType, name: str, path: str) -> DataType:
        opening = "[" if self.current.is_mark("[") else "("
        self.expect_mark(opening, path)
        size = self._number(path)
        self.expect_mark("]" if opening == "[" else ")", path)
        if data_type.kind is not Kind.FIXED_BINARY:
            # VARCHAR(n): Kafka's records have no such limit.
            return replace(data_type, size=0)
        if not 0 < size <= MAX_FIXED_SIZE:
            raise refusal(path, f"{name} has 1 to {MAX_FIXED_SIZE} bytes, not {size}")
        return replace(data_type, size=size)

    def _with_children(self, data_type: DataType, name: str, path: str, depth: int) -> DataType:
        check_nesting(path, depth + 1)
        if not self.take_mark("<"):
            raise refusal(path, f"{name} needs its types in < >", f'write "{_EXAMPLES[name]}"')
        if data_type.kind is Kind.LIST:
            item = self.read_field(f"{path}[]", depth + 1)
            self.expect_mark(">", path)
            return list_type(item, is_large=data_type.is_large)
        if data_type.kind is Kind.MAP:
            key = self.read_field(f"{path}{{key}}", depth + 1)
            self.expect_mark(",", path)
            value = self.read_field(f"{path}{{value}}", depth + 1)
            self.expect_mark(">", path)
            return map_type(key.type, value, path)
        fields = []
        while not self.current.is_mark(">"):
            fields.append(self.read_member(path, depth + 1))
            if not self.take_mark(","):
                break
        self.expect_mark(">", path)
        return struct_type(fields, path)

    def _number(self, path: str) -> int:
        token = self.take()
        if not (token.text.isascii() and token.text.isdigit() and len(token.text) < 9):
            self._at -= 1
            raise self.unexpected(path, "a number")
        return int(token.text)


_EXAMPLES: Final = {
    "list": "list<int32>",
    "large_list": "large_list<int32>",
    "array": "ARRAY<INT>",
    "map": "map<string, int32>",
    "struct": "struct<a: int32>",
}


def struct_type(fields: list[SchemaField], path: str) -> DataType:
    """Return a struct.

    Raises
    ------
    ConfigurationError
        It has no fields, or two of one name.
    """
    if not fields:
        raise refusal(path, "a struct needs at least one field", 'or write "raw"')
    seen: set[str] = set()
    for field in fields:
        check_name(path, field.name)
        if field.name in seen:
            inner = f"{path}.{field.name}" if path else field.name
            raise refusal(inner, "two fields have this name", "give one of them another name")
        seen.add(field.name)
    return DataType(Kind.STRUCT, fields=tuple(fields))


def list_type(item: SchemaField, *, is_large: bool = False) -> DataType:
    """Return a list of an item, whose name is ``item`` whatever it was before."""
    return DataType(Kind.LIST, is_large=is_large, fields=(item.renamed("item"),))


def map_type(key: DataType, value: SchemaField, path: str) -> DataType:
    """Return a map.

    Raises
    ------
    ConfigurationError
        Its keys are not strings.
    """
    if key.kind is not Kind.STRING:
        raise refusal(path, f"keys of a map are strings, not {key}", 'write "map<string, ...>"')
    key_field = SchemaField("key", key, is_nullable=False)
    return DataType(Kind.MAP, fields=(key_field, value.renamed("value")))


def decimal_type(kind: Kind, precision: int, scale: int, path: str) -> DataType:
    """Return a decimal.

    Raises
    ------
    ConfigurationError
        The precision is not one of the kind, or the scale is not between 0 and it.
    """
    most = MAX_PRECISION[kind]
    if not 1 <= precision <= most:
        wider = kind is Kind.DECIMAL128 and precision <= MAX_PRECISION[Kind.DECIMAL256]
        raise refusal(
            path,
            f"the precision of {kind.name.lower()} is 1 to {most}, not {precision}",
            f'write "decimal256({precision}, {scale})"' if wider else None,
        )
    if not 0 <= scale <= precision:
        raise refusal(path, f"the scale is 0 to the precision {precision}, not {scale}")
    return DataType(kind, precision=precision, scale=scale)


def zone_refusal(path: str, zone: str) -> Exception:
    """Return the error for a timestamp in a time zone."""
    return refusal(
        path,
        f'a timestamp is in UTC or has no zone: "{zone}" is neither',
        'write "timestamp[us, UTC]", and convert to the zone where it is shown',
    )


def _tokens(text: str, path: str) -> list[Token]:
    tokens = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKENS.match(text, at)
        if match is None:
            raise refusal(path, f'a "`" without its end in "{text}"')
        quoted, word, mark = match.groups()
        if quoted is not None:
            tokens.append(Token(quoted.replace("``", "`"), "quoted"))
        else:
            tokens.append(Token(word, "word") if word is not None else Token(mark, "mark"))
        at = match.end()
    return tokens
