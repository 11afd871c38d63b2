"""Settings by name: which one a name stands for, its parsed value, and the errors for bad ones.

Owns ``SETTINGS``, every setting by its keyword, and the texts of mistakes in names and values. An
``origin`` is where a name was written, such as ``./client.properties:4``; it stands in the message.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any, Final

from kfast.errors import ConfigurationError, did_you_mean
from kfast.settings.aliases import ALIASES, REFUSED
from kfast.settings.kinds import PEM_START, Setting, default_text
from kfast.settings.secret import Secret
from kfast.settings.table import SettingsTable

SETTINGS: Final[Mapping[str, Setting[Any]]] = {
    name: row for name, row in vars(SettingsTable).items() if isinstance(row, Setting)
}
"""Every setting by its keyword."""

_short: Final = reprlib.Repr()
_short.maxstring = _short.maxother = 80


def keyword(spelling: str) -> str:
    """Return a name with ``_`` for ``.``; no name has both."""
    return spelling if "." in spelling and "_" in spelling else spelling.replace(".", "_")


def setting_of(spelling: object) -> Setting[Any] | None:
    """Return the setting that a name stands for, None if there is none."""
    if not isinstance(spelling, str):
        return None
    name = keyword(spelling)
    return SETTINGS.get(ALIASES[name].name if name in ALIASES else name)


def may_be_secret(name: object, value: object) -> bool:
    """Return whether a value must not be shown: of a secret, or text under an unknown name."""
    if value is None or isinstance(value, Secret) or not isinstance(name, str):
        return False
    row = setting_of(name)
    return isinstance(value, str) if row is None else row.is_secret


def find(spelling: object, raw: object, origin: str | None = None) -> tuple[Setting[Any], object]:
    """Return the setting a name stands for, and the value as kfast writes it."""
    if not isinstance(spelling, str):
        raise ConfigurationError(
            f"the name of a setting is a str, not {show(spelling)}",
            hint='pass settings as keywords or as a mapping such as {"group.id": ...}',
        )
    name = keyword(spelling)
    row = setting_of(name)
    if row is None:
        if name in REFUSED:
            raise ConfigurationError(
                f'config "{spelling}" is not supported{at(origin)}', hint=REFUSED[name]
            )
        raise _unknown(spelling, origin)
    if name in ALIASES:
        alias = ALIASES[name]
        key = raw.strip().lower() if isinstance(raw, str) else raw
        if isinstance(key, str | int) and key in alias.values:
            raw = alias.values[key]
    return row, raw


def parse(row: Setting[Any], spelling: str, raw: object, origin: str | None = None) -> Any:
    """Return the value of a setting, or raise what is wrong with it."""
    try:
        return row.parse(raw)
    except ValueError as error:
        reason = str(error)  # never quotes a secret
    # Raised outside the handler: a chained exception would carry the value of a secret along. Nor
    # are addresses shown: they may contain passwords.
    shown = "" if row.is_secret or row.is_required else f": {show(raw)}"
    expected = ", ".join(filter(None, (row.type_name, row.valid)))
    default = "" if row.is_required else f" (default {default_text(row.default)})"
    raise ConfigurationError(
        f"bad value for {spelling}{shown}{at(origin)}", cause=reason, hint=f"{expected}{default}"
    )


def in_style(name: str, spelling: str) -> str:
    """Return a keyword written with dots if the user writes dots."""
    return name.replace("_", ".") if "." in spelling else name


def show(value: object) -> str:
    """Return the ``repr`` of a value for a message, shortened; PEM may be a private key."""
    return "PEM text" if isinstance(value, str) and PEM_START in value else _short.repr(value)


def at(origin: str | None) -> str:
    """Return what a message has behind a name that was written somewhere."""
    return "" if origin is None else f" ({origin})"


def _unknown(spelling: str, origin: str | None) -> ConfigurationError:
    known = {in_style(name, spelling): name for name in (*SETTINGS, *ALIASES)}
    message = f'unknown config "{spelling}"{at(origin)}'
    near = did_you_mean(spelling, known)
    if near is not None:
        row = setting_of(near)
        assert row is not None
        advice = f"did you mean {near} ({row.summary})?"
        if origin is not None:
            return ConfigurationError(message, hint=advice)
        return ConfigurationError(f"{message}; {advice}", hint=f"use {near}")
    ours = [in_style(name, spelling) for name in SETTINGS]
    import difflib  # noqa: PLC0415 - for mistakes only

    similar = difflib.get_close_matches(spelling, ours, n=3, cutoff=0.6)
    return ConfigurationError(
        message + (f"; similar: {', '.join(similar)}" if similar else ""),
        hint="see ConsumerConfig.describe() for all settings",
        command_hint="kfast config list",
    )
