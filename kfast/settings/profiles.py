"""Profiles in the user's file of settings: the text of the file with another one in it.

Pure. Comments and everything else stay as they are. The new text is read back before it is
returned: a file that is written in another way than these functions know is refused, not damaged.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from kfast.errors import ConfigurationError

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_HEADER: Final = re.compile(r"\s*\[")
_CURRENT: Final = re.compile(r"\s*current\s*=")


def with_current(text: str, name: str) -> str:
    """Return the text with ``current`` naming a profile."""
    lines = text.splitlines(keepends=True)
    line = f"current = {toml_value(name)}\n"
    for number, each in enumerate(lines):
        if _HEADER.match(each):
            break
        if _CURRENT.match(each):
            lines[number] = line
            return _checked(text, "".join(lines), lambda document: document.update(current=name))
    return _checked(text, line + text, lambda document: document.update(current=name))


def with_profile(text: str, name: str, settings: Mapping[str, object]) -> str:
    """Return the text with a profile at its end, in the place of one with that name."""
    lines = text.splitlines(keepends=True)
    header = f"[profiles.{toml_key(name)}]"
    kept, is_old = [], False
    for line in lines:
        if _HEADER.match(line):
            is_old = line.partition("#")[0].strip().replace(" ", "") == header
        if not is_old:
            kept.append(line)
    before = "".join(kept)
    if before and not before.endswith("\n"):
        before += "\n"
    new = "".join(f"{toml_key(key)} = {toml_value(value)}\n" for key, value in settings.items())

    def change(document: dict[str, Any]) -> None:
        document.setdefault("profiles", {})[name] = tomllib.loads(new)

    return _checked(text, f"{before}{chr(10) if before else ''}{header}\n{new}", change)


def toml_key(key: str) -> str:
    """Return a dotted key of a setting, or the name of a profile in quotes where it needs them."""
    if all(_BARE.fullmatch(part) for part in key.split(".")):
        return key
    return toml_value(key)


def toml_value(value: object) -> str:
    """Return text, a number or a bool in TOML."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return str(value)


def _checked(old: str, new: str, change: Any) -> str:
    expected = tomllib.loads(old)
    change(expected)
    try:
        is_same = tomllib.loads(new) == expected
    except tomllib.TOMLDecodeError:
        is_same = False
    if not is_same:
        raise ConfigurationError(
            "the file has profiles in a form that is not changed by a program",
            cause="profiles are changed only where they are tables of their own: [profiles.NAME]",
            hint="edit the file by hand",
        )
    return new
