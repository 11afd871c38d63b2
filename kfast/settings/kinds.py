"""The kinds of value a setting can have.

Owns ``Setting``, the descriptor behind every attribute of ``ConsumerConfig``, and one function per
kind that makes one: accepted values, the parsed value, and its description. A parser raises
``ValueError`` with the reason; ``kfast.config`` adds key, value and range. Strings are accepted
wherever they are unambiguous, because configuration files contain nothing else. They are never
taken for the name of a class to load, a file to read or an address to fetch.
"""

from __future__ import annotations

import math
import operator
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Self, TypeVar, overload

from kfast._base.spelling import did_you_mean
from kfast.settings.secret import Secret

T = TypeVar("T")

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
MINUS_INT32: Final = -(2**31)
MINUS_INT64: Final = -(2**63)
LONGEST_LINE: Final = 32_767
"""Bytes of a text that every version of the protocol can carry."""

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Names of topics and static members that brokers accept."""

TEXTS: Final = "str | Sequence[str]"
"""Annotation of a list of texts, which may be one text with commas."""


class Setting(Generic[T]):
    """One row of the table of settings, and the attribute that reads its value.

    ``parse`` converts what the user gave, or raises ``ValueError``. ``type_name``, ``valid`` (the
    accepted values, may be empty) and ``doc`` are for messages and documentation, ``annotation`` is
    for type checkers. A value that ``is_secret`` is never shown; a setting that ``is_required`` has
    no default.
    """

    __slots__ = (
        "annotation",
        "default",
        "doc",
        "is_required",
        "is_secret",
        "name",
        "parse",
        "type_name",
        "valid",
    )

    def __init__(
        self,
        default: T,
        parse: Callable[[object], T],
        type_name: str,
        valid: str,
        doc: str,
        *,
        annotation: str = "",
        is_secret: bool = False,
        is_required: bool = False,
    ) -> None:
        self.name = ""
        self.annotation = annotation or type_name
        self.default = default
        self.parse = parse
        self.type_name = type_name
        self.valid = valid
        self.doc = doc
        self.is_secret = is_secret
        self.is_required = is_required

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: Any, owner: type) -> Self | T:
        if instance is None:
            return self
        value: T = instance._values[self.name]
        return value

    def __set__(self, instance: object, value: object) -> None:
        raise AttributeError(f"{self.name}: a configuration cannot be changed")

    @property
    def summary(self) -> str:
        """Type and default in one phrase: ``int, default 1``."""
        if self.is_required:
            return f"{self.type_name}, required"
        return f"{self.type_name}, default {default_text(self.default)}"

    def __repr__(self) -> str:
        return f"<Setting {self.name}: {self.summary}>"


def default_text(default: object) -> str:
    """Return a default as Kafka's documentation writes it."""
    if default is None:
        return "null"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return "[" + ", ".join(str(item) for item in default) + "]"
    return '""' if default == "" else str(default)


def is_text(value: object) -> bool:
    """Return whether a value is text rather than a list or an object."""
    return isinstance(value, str | bytes | bytearray)


# --- numbers and booleans -------------------------------------------------------------------------


def parse_integer(value: object, low: int, high: int) -> int:
    """Return an int from an int, a NumPy integer or a decimal string."""
    if isinstance(value, str):
        if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", value):
            raise ValueError("not a whole number")
        number = int(value)
    elif isinstance(value, bool):
        raise ValueError("of type bool, not int")
    else:
        try:
            number = operator.index(value)  # type: ignore[arg-type]  # that is the check
        except TypeError:
            raise ValueError(f"of type {type(value).__name__}, not int") from None
    if number < low:
        raise ValueError(f"less than {low}")
    if number > high:
        raise ValueError(f"more than {high}")
    return number


def _range_text(low: float, high: float) -> str:
    if low in (MINUS_INT32, MINUS_INT64) and high in (INT32_MAX, INT64_MAX):
        return ""
    return f"{low} to {high}"


def integer(
    default: int,
    doc: str,
    *,
    low: int = MINUS_INT32,
    high: int = INT32_MAX,
    null: int | None = None,
) -> Setting[int]:
    """Make a setting for an integer; None means ``null``, where that is given."""

    def parse(value: object) -> int:
        if value is None and null is not None:
            return null
        return parse_integer(value, low, high)

    annotation = "int" if null is None else "int | None"
    return Setting(default, parse, "int", _range_text(low, high), doc, annotation=annotation)


def optional_integer(doc: str, *, low: int = 0, high: int = INT32_MAX) -> Setting[int | None]:
    """Make a setting for an integer or None."""

    def parse(value: object) -> int | None:
        return None if value is None else parse_integer(value, low, high)

    valid = f"{_range_text(low, high)} or null"
    return Setting(None, parse, "int", valid, doc, annotation="int | None")


def number(default: float, doc: str, *, low: float, high: float) -> Setting[float]:
    """Make a setting for a floating-point number."""

    def parse(value: object) -> float:
        if isinstance(value, bool):
            raise ValueError("of type bool, not a number")
        try:
            result = float(value)  # type: ignore[arg-type]  # that is the check
        except (TypeError, ValueError):
            raise ValueError("not a number") from None
        if math.isnan(result) or not low <= result <= high:
            raise ValueError(f"not between {low} and {high}")
        return result

    return Setting(default, parse, "float", f"{low} to {high}", doc)


def boolean(default: bool, doc: str) -> Setting[bool]:
    """Make a setting for a bool, or the strings true and false in any case."""

    def parse(value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
            return value.strip().lower() == "true"
        if getattr(getattr(value, "dtype", None), "kind", "") == "b":  # a NumPy bool
            return bool(value)
        raise ValueError("neither true nor false")

    return Setting(default, parse, "bool", "true, false", doc)


# --- text -----------------------------------------------------------------------------------------


def _parse_str(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"of type {type(value).__name__}, not str")
    return value


def parse_text(value: object) -> str:
    text = _parse_str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        pass  # its text would quote what may be a secret
    else:
        return text
    raise ValueError("not UTF-8: it has half a character")


def _parse_name(value: object) -> str:
    """Return text that goes into requests: not too long."""
    name = parse_text(value)
    if len(name.encode()) > LONGEST_LINE:
        raise ValueError(f"{len(name.encode())} bytes of UTF-8")
    return name


def _parse_line(value: object) -> str:
    """Return text that goes into names of threads, too: one line."""
    line = _parse_name(value)
    if any(unicodedata.category(character) == "Cc" for character in line):
        raise ValueError("it has a control character, such as a line end")
    return line


def text(default: str, doc: str) -> Setting[str]:
    """Make a setting for one line of text."""
    return Setting(default, _parse_line, "str", "", doc)


def optional_text(doc: str) -> Setting[str | None]:
    """Make a setting for text or None."""

    def parse(value: object) -> str | None:
        return None if value is None else parse_text(value)

    return Setting(None, parse, "str", "", doc, annotation="str | None")


def any_name(doc: str) -> Setting[str | None]:
    """Make a setting for a name of the group coordinator, which takes any, or None."""

    def parse(value: object) -> str | None:
        if value is None:
            return None
        if not (name := _parse_name(value)):
            raise ValueError("empty")
        return name

    valid = f"not empty, at most {LONGEST_LINE} bytes"
    return Setting(None, parse, "str", valid, doc, annotation="str | None")


def secret(doc: str, *, may_be_callable: bool = False) -> Setting[Secret[str] | None]:
    """Make a setting for text that is never shown, or None; where allowed, a callable () -> str."""

    def parse(value: object) -> Secret[str] | None:
        if value is None:
            return None
        source = value.source if isinstance(value, Secret) else value
        if callable(source):
            if not may_be_callable:
                raise ValueError("a callable, not str")
            return Secret(source)
        return Secret(parse_text(source))

    type_name = "str or callable" if may_be_callable else "str"
    annotation = "str | Callable[[], str] | None" if may_be_callable else "str | None"
    return Setting(None, parse, type_name, "", doc, annotation=annotation, is_secret=True)


def secret_object(type_name: str, doc: str) -> Setting[Secret[Any] | None]:
    """Make a setting for an object whose ``repr`` may show a secret: its ``source``."""

    def parse(value: object) -> Secret[Any] | None:
        source: Any = value.source if isinstance(value, Secret) else value
        return None if source is None else Secret(_parse_object(source))

    return Setting(None, parse, type_name, "", doc, annotation="object", is_secret=True)


PEM_START: Final = "-----BEGIN "


def path(doc: str, *, text: str | None = None) -> Setting[str | None]:
    """Make a setting for the path of a file; ``text`` is the setting for what is in it."""

    def parse(value: object) -> str | None:
        if value is None:
            return None
        result = _parse_str(value.__fspath__() if hasattr(value, "__fspath__") else value)
        if not result:
            raise ValueError("empty")
        try:
            os.fsencode(result)
        except UnicodeEncodeError:
            raise ValueError("not a path: it has half a character") from None
        if PEM_START in result:
            raise ValueError("PEM text, not a path" + (f"; it is given as {text}" if text else ""))
        return result

    annotation = "str | PathLike[str] | None"
    return Setting(None, parse, "str", "path of a file", doc, annotation=annotation)


def pem_text(doc: str, *, path: str) -> Setting[Secret[str] | None]:
    """Make a setting for PEM text; ``path`` is the setting for a file of it.

    Line ends may be written as a backslash and an n, as in ``.properties`` files.
    """

    def parse(value: object) -> Secret[str] | None:
        if value is None:
            return None
        pem = Secret(parse_text(value.source if isinstance(value, Secret) else value))
        if PEM_START not in pem.reveal():
            raise ValueError(f"no PEM text; a file is given as {path}")
        return Secret(pem.reveal().replace("\\n", "\n"))

    return Setting(None, parse, "str", "PEM", doc, annotation="str | None", is_secret=True)


def tls_versions(default: tuple[str, ...], doc: str) -> Setting[tuple[str, ...]]:
    """Make a setting for a list of TLS versions out of ``default``, which has them all."""

    def parse(value: object) -> tuple[str, ...]:
        versions = [_tls_version(parse_text(item), default) for item in items_of(value)]
        if not versions:
            raise ValueError("empty")
        return tuple(dict.fromkeys(versions))

    return Setting(default, parse, "list", ", ".join(default), doc, annotation=TEXTS)


def tls_version(default: str, choices: tuple[str, ...], doc: str) -> Setting[str]:
    """Make a setting for one TLS version; ``TLS`` is the newest, as in Java."""

    def parse(value: object) -> str:
        version = parse_text(value)
        return choices[-1] if version == "TLS" else _tls_version(version, choices)

    annotation = literal((*choices, "TLS"))
    return Setting(default, parse, "str", ", ".join(choices), doc, annotation=annotation)


def _tls_version(value: str, choices: Sequence[str]) -> str:
    if value.casefold() in {"sslv2", "sslv3", "ssl", "tlsv1", "tlsv1.0", "tlsv1.1"}:
        raise ValueError(f"{value} is not secure")
    return choose(value, choices, any_case=True)


def optional_name(doc: str) -> Setting[str | None]:
    """Make a setting for None or a name of the characters that topic names may have."""

    def parse(value: object) -> str | None:
        if value is None:
            return None
        result = parse_text(value)
        if not result:
            raise ValueError("empty")
        if result in {".", ".."} or not _LEGAL_NAME.fullmatch(result):
            raise ValueError("not a legal name")
        return result

    valid = "1 to 249 of a-z A-Z 0-9 . _ -"
    return Setting(None, parse, "str", valid, doc, annotation="str | None")


def literal(values: Iterable[object]) -> str:
    """Return the annotation of a setting with these values only."""
    return f"Literal[{', '.join(map(_quoted, dict.fromkeys(values)))}]"


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def choose(value: str, choices: Sequence[str], *, any_case: bool = False) -> str:
    """Return the element of ``choices`` that ``value`` is, or raise with the nearest one."""
    for choice in choices:
        if value == choice or (any_case and value.casefold() == choice.casefold()):
            return choice
    near = did_you_mean(value, choices)
    raise ValueError("unknown value" + (f'; did you mean "{near}"?' if near else ""))


def choice(
    default: str,
    choices: Sequence[str],
    doc: str,
    *,
    any_case: bool = False,
    synonyms: Mapping[object, str] | None = None,
) -> Setting[str]:
    """Make a setting for one of ``choices``; its value is written as there."""

    def parse(value: object) -> str:
        if synonyms and (value is None or isinstance(value, str | bool)) and value in synonyms:
            return synonyms[value]
        return choose(parse_text(value), choices, any_case=any_case)

    valid = ", ".join(item or '""' for item in choices)
    valid += " (any case)" if any_case else ""
    return Setting(
        default, parse, "str", valid, doc, annotation=literal((*choices, *(synonyms or ())))
    )


def optional_choice(choices: Sequence[str], doc: str) -> Setting[str | None]:
    """Make a setting for one of ``choices``, in any case, or None."""

    def parse(value: object) -> str | None:
        return None if value is None else choose(parse_text(value), choices, any_case=True)

    annotation = literal((*choices, None))
    return Setting(None, parse, "str", ", ".join(choices), doc, annotation=annotation)


def items_of(value: object) -> list[object]:
    """Return the items of a list, or of one text with commas, of which one may end it."""
    if isinstance(value, str):
        value = value.strip().removesuffix(",")
        return [item.strip() for item in value.split(",")] if value.strip() else []
    if is_text(value) or not isinstance(value, Sequence | set | frozenset):
        raise ValueError(f"of type {type(value).__name__}, not a list")
    return list(value)


def names(default: tuple[str, ...], doc: str) -> Setting[tuple[str, ...]]:
    """Make a setting for a list of strings: a list, or one string with commas."""

    def parse(value: object) -> tuple[str, ...]:
        return tuple(parse_text(item) for item in items_of(value))

    return Setting(default, parse, "list", "", doc, annotation=TEXTS)


# --- objects --------------------------------------------------------------------------------------


def _parse_object(value: object) -> object:
    if is_text(value):
        raise ValueError("text, where an object is needed (kfast does not load classes by name)")
    if isinstance(value, int | float):
        raise ValueError(f"of type {type(value).__name__}, where an object is needed")
    return value


def anything(type_name: str, doc: str, *, is_secret: bool = False) -> Setting[Any]:
    """Make a setting for an object that a higher layer checks and uses."""
    return Setting(None, _parse_object, type_name, "", doc, annotation="Any", is_secret=is_secret)


def function(doc: str) -> Setting[Any]:
    """Make a setting for a callable."""

    def parse(value: object) -> object:
        if value is not None and not callable(value):
            raise ValueError(f"of type {type(value).__name__}, which cannot be called")
        return value

    return Setting(None, parse, "callable", "", doc, annotation="Callable[..., object] | None")


def objects(doc: str) -> Setting[tuple[Any, ...]]:
    """Make a setting for a list of objects."""

    def parse(value: object) -> tuple[Any, ...]:
        return tuple(_parse_object(item) for item in items_of(value))

    valid = "objects, not class names"
    return Setting((), parse, "list", valid, doc, annotation="Sequence[object]")


def names_or_objects(
    default: tuple[str, ...], choices: Sequence[str], synonyms: Mapping[str, str], doc: str
) -> Setting[tuple[Any, ...]]:
    """Make a setting for a list whose items are in ``choices`` or objects."""

    def parse(value: object) -> tuple[Any, ...]:
        items = items_of(value) if isinstance(value, Sequence | set | frozenset) else [value]
        if not items:
            raise ValueError("empty")
        return tuple(
            choose(synonyms.get(item, item), choices)
            if isinstance(item, str)
            else _parse_object(item)
            for item in items
        )

    valid = f"{', '.join(choices)}, or objects"
    return Setting(default, parse, "list", valid, doc, annotation="str | Sequence[object]")


def pairs(doc: str) -> Setting[Mapping[str, str]]:
    """Make a setting for texts by name: a mapping, or one string ``name=value,name=value``."""

    def parse(value: object) -> Mapping[str, str]:
        if value is None:
            return {}
        if isinstance(value, Mapping):
            return {parse_text(name): parse_text(text) for name, text in value.items()}
        texts = {}
        for item in items_of(parse_text(value)):
            name, sign, text = parse_text(item).partition("=")
            if not name or not sign:
                raise ValueError("an entry is not name=value")
            texts[name] = text
        return texts

    valid = '"name=value,name=value" or a mapping'
    return Setting({}, parse, "mapping", valid, doc, annotation="str | Mapping[str, str]")


# --- one setting each -----------------------------------------------------------------------------


def version_ceiling(doc: str) -> Setting[tuple[int, ...] | None]:
    """Make the setting for a Kafka release such as ``(2, 8)`` or ``"2.8.1"``."""

    def parse(value: object) -> tuple[int, ...] | None:
        if value is None:
            return None
        parts = value.split(".") if isinstance(value, str) else items_of(value)
        if not 1 <= len(parts) <= 4:
            raise ValueError("not a release number")
        return tuple(parse_integer(number, 0, 999) for number in parts)

    annotation = "str | tuple[int, ...] | None"
    return Setting(None, parse, "tuple", '(2, 8) or "2.8"', doc, annotation=annotation)


def socket_options(default: tuple[tuple[int, ...], ...], doc: str) -> Setting[tuple[Any, ...]]:
    """Make the setting for arguments of ``socket.setsockopt``."""

    def parse(value: object) -> tuple[Any, ...]:
        if value is None:
            return ()
        if is_text(value) or not isinstance(value, Sequence):
            raise ValueError(f"of type {type(value).__name__}, not a list")
        for option in value:
            if is_text(option) or not isinstance(option, Sequence) or len(option) != 3:
                raise ValueError("not a list of (level, option, value)")
            for item in option:
                if not isinstance(item, bytes) or item is not option[2]:
                    parse_integer(item, MINUS_INT32, INT32_MAX)
        return tuple(tuple(option) for option in value)

    return Setting(
        default,
        parse,
        "list",
        "tuples (level, option, value)",
        doc,
        annotation="Sequence[tuple[Any, ...]] | None",
    )
