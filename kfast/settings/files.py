"""Files of settings: Java ``.properties`` and kcat files, TOML with profiles, JSON.

Owns reading one file into entries, each with the line it is on. A TOML file may have profiles:
tables of settings below ``profiles``, and the name of one of them as ``current``. Nested tables are
joined with dots. No message has anything of a value.

A line of a Java ``.properties`` file, which files of librdkafka and kcat are too, is ``key=value``,
``key: value`` or ``key value``; ``#`` and ``!`` begin a comment; a backslash at the end continues a
line, without the blanks that begin the next one.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kfast.errors import ConfigNotFoundError, ConfigurationError
from kfast.settings.names import may_be_secret, setting_of
from kfast.settings.secret import Secret

_LINE_ENDS: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_KEY: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield key, value and line number (from 1) of every entry.

    Raises ``ValueError`` with the line number for an escape that is none; it shows no value.
    """
    for line, number in _logical_lines(text):
        match = _KEY.fullmatch(line)
        assert match is not None  # the pattern takes any line
        yield _unescaped(match[1], number), _unescaped(_trimmed(match[2]), number), number


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    begun: str | None = None
    first = 0
    for number, natural in enumerate(_LINE_ENDS.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if begun is None:
            if not line or line[0] in "#!":
                continue
            begun, first = "", number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            begun += line[:-1]
        else:
            yield begun + line, first
            begun = None
    if begun:
        yield begun, first


def _trimmed(value: str) -> str:
    """Return a value without the blanks at its end, but for one behind a backslash."""
    rest = value.rstrip(_BLANKS)
    is_escaped = (len(rest) - len(rest.rstrip("\\"))) % 2
    return value[: len(rest) + is_escaped]


def _unescaped(text: str, number: int) -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] == "u":
            if len(escape) == 1:
                raise ValueError(number, "\\u without four hexadecimal digits")
            return chr(int(escape[1:], 16))
        return _CONTROLS.get(escape, escape)

    decoded = _ESCAPE.sub(character, text)
    try:  # what is beyond U+FFFF is written as two halves
        return decoded.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError(number, "half of a character beyond U+FFFF") from None


MAX_BYTES: Final = 1 << 20
"""Most bytes of a file of settings, or of one that a setting is read from."""

_PART: Final = r"(?:[\w-]+|\"[^\"]*\"|'[^']*')"
_PATH: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_TOML_HEADER: Final = re.compile(rf"\s*\[\s*({_PATH})\s*\]\s*(?:#.*)?", re.ASCII)
_TOML_KEY: Final = re.compile(rf"\s*({_PATH})\s*=", re.ASCII)
_JSON_KEY: Final = re.compile(r'"([^"\\]+)"\s*:')
_WHERE: Final = re.compile(r" \((?:at line (\d+), column \d+|at end of document)\)$")


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting as it was written somewhere; a value that may be secret is a `Secret`."""

    key: str
    value: object
    origin: str
    """Such as ``./client.properties:4``, ``env KFAST_GROUP_ID`` or ``-X``."""
    folder: Path = field(default=Path(), compare=False)
    """Where a relative ``@FILE`` is looked for."""

    @classmethod
    def of(cls, key: str, value: object, origin: str, folder: Path = Path()) -> Entry:
        """Return the entry, its value sealed."""
        return cls(key, Secret(value) if may_be_secret(key, value) else value, origin, folder)  # type: ignore[type-var]  # a setting's own check refuses other types


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What one file says."""

    name: str
    """Its path as messages show it."""
    entries: tuple[Entry, ...] = ()
    """Those outside of profiles."""
    profiles: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    current: str | None = None
    """The profile that is used where none is named."""
    is_readable_by_others: bool = False


def read_settings_file(path: str | os.PathLike[str]) -> SettingsFile:
    """Read the settings in a file; its ending decides the format.

    Raises `ConfigNotFoundError` without such a file, `ConfigurationError` for what is wrong in it.
    """
    name = shown_path(path)
    try:
        text, mode = read_text(path)
    except FileNotFoundError:
        raise ConfigNotFoundError(f"there is no file {name}", hint=f"ls {name}") from None
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {name}: {error.strerror}", hint=f"ls -l {name}"
        ) from None
    except ValueError as error:
        raise ConfigurationError(f"{name} is not a file of settings: {error}") from None
    # What a parser raises has the text of the file: the error is made outside of its handler.
    contents = _parsed(Path(path), text, name)
    del text
    if isinstance(contents, _Mistake):
        where = name if contents.line is None else f"{name}:{contents.line}"
        raise ConfigurationError(f"{where}: {contents.reason}", hint=f"correct {where}")
    others = bool(mode & (stat.S_IRGRP | stat.S_IROTH)) and stat.S_ISREG(mode)
    return SettingsFile(name, *contents, is_readable_by_others=others)


def read_text(path: str | os.PathLike[str]) -> tuple[str, int]:
    """Return text and mode of a file; ``ValueError`` if it is too large, or no text."""
    with open(path, "rb") as file:
        content = file.read(MAX_BYTES + 1)
        mode = os.fstat(file.fileno()).st_mode
    if len(content) > MAX_BYTES:
        raise ValueError("it has more than 1 MiB")
    try:
        return content.decode("utf-8-sig"), mode
    except UnicodeDecodeError:
        pass
    raise ValueError("it is not UTF-8 text")


def shown_path(path: str | os.PathLike[str]) -> str:
    """Return a path as messages show it: ``~/x``, ``./x`` or ``/x``."""
    text = os.fspath(path)
    home = os.path.expanduser("~").rstrip("/")
    if home and text.startswith(f"{home}/"):
        return "~" + text[len(home) :]
    return text if text.startswith(("/", "./", "../", "~")) else f"./{text}"


# --- contents -------------------------------------------------------------------------------------

_Contents = tuple[tuple[Entry, ...], Mapping[str, tuple[Entry, ...]], str | None]


@dataclass(frozen=True, slots=True)
class _Mistake:
    reason: str
    line: int | None = None


def _parsed(path: Path, text: str, name: str) -> _Contents | _Mistake:
    ending = path.suffix.lower()
    if ending == ".toml":
        return _toml(text, name, path.parent)
    if ending == ".json":
        return _json(text, name, path.parent)
    last: dict[str, Entry] = {}
    try:
        for key, value, line in read_properties(text):
            last[key] = Entry.of(key, value, f"{name}:{line}", path.parent)
    except ValueError as error:
        line, reason = error.args
        return _Mistake(reason, line)
    return tuple(last.values()), {}, None


def _toml(text: str, name: str, folder: Path) -> _Contents | _Mistake:
    import tomllib  # noqa: PLC0415 - of this form only

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _WHERE.search(str(error))
        return _Mistake(_WHERE.sub("", str(error)), int(where[1]) if where and where[1] else None)
    lines = _toml_lines(text)
    current, tables = document.pop("current", None), document.pop("profiles", {})
    if not isinstance(current, str | None):
        return _Mistake("current is the name of a profile in quotes", lines.get("current"))
    if not isinstance(tables, dict) or not all(
        isinstance(table, dict) for table in tables.values()
    ):
        return _Mistake("profiles are tables: [profiles.NAME]", lines.get("profiles"))

    def entries(table: dict[str, Any], prefix: str) -> tuple[Entry, ...]:
        return tuple(
            Entry.of(key, value, _origin(name, lines.get(prefix + key)), folder)
            for key, value in _flat(table)
        )

    profiles = {
        profile: entries(table, f"profiles.{profile}.") for profile, table in tables.items()
    }
    return entries(document, ""), profiles, current


def _json(text: str, name: str, folder: Path) -> _Contents | _Mistake:
    import json  # noqa: PLC0415 - of this form only

    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        return _Mistake(error.msg, error.lineno)
    except RecursionError:
        return _Mistake("too deeply nested")
    if not isinstance(document, dict):
        return _Mistake('a JSON object of settings was expected: {"bootstrap.servers": ...}')
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for match in _JSON_KEY.finditer(line):
            lines.setdefault(match[1], number)
    return (
        tuple(
            Entry.of(key, value, _origin(name, lines.get(key)), folder)
            for key, value in _flat(document)
        ),
        {},
        None,
    )


def _origin(name: str, line: int | None) -> str:
    return name if line is None else f"{name}:{line}"


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the settings of nested tables; a setting that is a mapping stays one."""
    for key, value in table.items():
        row = setting_of(prefix + key)
        if isinstance(value, dict) and (row is None or row.type_name != "mapping"):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _toml_lines(text: str) -> dict[str, int]:
    """Return the line of each dotted key, as far as it stands at the start of a line."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        header = _TOML_HEADER.fullmatch(line)
        if header is not None:
            table = _unquoted(header[1]) + "."
            lines.setdefault(table[:-1], number)
            continue
        key = _TOML_KEY.match(line)
        if key is not None:
            lines.setdefault(table + _unquoted(key[1]), number)
    return lines


def _unquoted(path: str) -> str:
    return ".".join(key.strip("\"'") for key in re.findall(_PART, path, re.ASCII))
