"""ConsumerConfig: a consumer's configuration, validated once, then immutable.

Owns the way from keywords and mappings to values: the setting each name stands for, and the error
for a bad name or value. The settings are rows of ``settings.table``; the rules between them are in
``settings.rules``. Nothing is read from files or the environment, and no class is loaded by name. A
value marked secret appears in no message and no ``repr``.
"""

from __future__ import annotations

import difflib
import logging
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kfast.errors import ConfigurationError, did_you_mean
from kfast.settings.aliases import ALIASES, REFUSED
from kfast.settings.kinds import PEM_START, Setting, default_text
from kfast.settings.rules import apply_rules
from kfast.settings.secret import Secret
from kfast.settings.table import DEPRECATED_RESETS, SettingsTable

logger = logging.getLogger(__name__)

SETTINGS: Final[Mapping[str, Setting[Any]]] = {
    name: row for name, row in vars(SettingsTable).items() if isinstance(row, Setting)
}
"""Every setting by its keyword."""

_short: Final = reprlib.Repr()
_short.maxstring = _short.maxother = 80


@dataclass(slots=True, frozen=True)
class SettingInfo:
    """Description of one setting.

    Attributes
    ----------
    name : str
        The keyword.
    key : str
        Kafka's dotted name.
    type : str
        Kind of value.
    default : str
        Default as text; ``required`` if there is none.
    valid : str
        Accepted values; empty if every value of the type is accepted.
    doc : str
        What it does.
    aliases : tuple of str
        Other clients' keywords for it.
    """

    name: str
    key: str
    type: str
    default: str
    valid: str
    doc: str
    aliases: tuple[str, ...]


def sealed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with what may be secret as `Secret`: no local variable shows it from then on.

    That is the value of each setting that is secret, and the text of one that is not known: it may
    be a password with a misspelled name. ``config`` may be a mapping of settings itself.
    """
    return {
        name: sealed(value)
        if name == "config" and isinstance(value, Mapping)
        else Secret(value)
        if _may_be_secret(name, value)
        else value
        for name, value in settings.items()
    }


def _may_be_secret(name: object, value: object) -> bool:
    if value is None or isinstance(value, Secret) or not isinstance(name, str):
        return False
    known = _keyword(name)
    known = ALIASES[known].name if known in ALIASES else known
    return SETTINGS[known].is_secret if known in SETTINGS else isinstance(value, str)


class ConsumerConfig(SettingsTable):
    """All settings of one consumer, as attributes with the keyword's name.

    Parameters
    ----------
    config : Mapping or None
        Settings by Kafka's dotted names; keywords are understood as well.
    **configs : object
        Settings by keyword.

    Raises
    ------
    ConfigurationError
        A name is unknown, a value not allowed, a setting given twice with different values, or
        two settings do not go together.

    Notes
    -----
    Some values depend on others: an empty ``client_id`` is generated, ``enable_auto_commit`` is off
    without a group, a maximum back-off is at least its base, ``default_api_timeout_ms`` is at least
    ``request_timeout_ms`` unless it was given, ``receive_message_max_bytes`` is large enough for
    the fetch limits, and ``decode_threads`` is never negative.
    """

    __slots__ = ("_given", "_values")

    def __init__(self, config: Mapping[str, object] | None = None, **configs: object) -> None:
        items = [*sealed(config or {}).items(), *sealed(configs).items()]
        del config, configs
        given = _resolve(items)
        values = {name: row.default for name, row in SETTINGS.items()}
        values.update((name, value) for name, (_, value) in given.items())
        self._given: dict[str, str] = {name: spelling for name, (spelling, _) in given.items()}
        self._values: dict[str, Any] = values
        apply_rules(values, self._given)

    def was_given(self, name: str) -> bool:
        """Return whether a setting was given, by any of its names, rather than defaulted."""
        return name in self._given

    def spelling(self, name: str) -> str:
        """Return the name by which a setting was given; the keyword if it was not."""
        return self._given.get(name, name)

    @staticmethod
    def describe() -> tuple[SettingInfo, ...]:
        """Return the descriptions of all settings, in the table's order."""
        return tuple(
            SettingInfo(
                name,
                name.replace("_", "."),
                row.type_name,
                "required" if row.is_required else default_text(row.default),
                row.valid,
                row.doc,
                tuple(other for other, alias in ALIASES.items() if alias.name == name),
            )
            for name, row in SETTINGS.items()
        )

    def __getstate__(self) -> tuple[dict[str, str], dict[str, Any]]:
        """Return what a process needs that is sent this configuration: the secrets, too."""
        return self._given, {
            name: value.source if isinstance(value, Secret) else value
            for name, value in self._values.items()
        }

    def __setstate__(self, state: tuple[dict[str, str], dict[str, Any]]) -> None:
        self._given, values = state
        self._values = {
            name: SETTINGS[name].parse(value) if SETTINGS[name].is_secret else value
            for name, value in values.items()
        }

    def __repr__(self) -> str:
        shown = (
            f"{name}={'<set>' if SETTINGS[name].is_secret else repr(self._values[name])}"
            for name in getattr(self, "_given", ())  # none, if the constructor has raised
        )
        return f"ConsumerConfig({', '.join(shown)})"


# --- names ----------------------------------------------------------------------------------------


def _resolve(items: list[tuple[str, object]]) -> dict[str, tuple[str, Any]]:
    """Return ``{keyword: (spelling, value)}`` for everything given."""
    given: dict[str, tuple[str, Any]] = {}
    for spelling, raw in items:
        row, raw = _find(spelling, raw)
        value = _parse(row, spelling, raw)
        if row is SETTINGS["auto_offset_reset"] and raw in DEPRECATED_RESETS:
            logger.warning("%s=%s is deprecated: %s is used", spelling, raw, value)
        other, earlier = given.get(row.name, (spelling, value))
        if earlier is not value and earlier != value:
            detail = "" if row.is_secret else f": {_show(earlier)} and {_show(value)}"
            raise ConfigurationError(
                f"{other} and {spelling} are the same setting, given two values{detail}"
                if other != spelling
                else f"{spelling} is given twice{detail}",
                hint=f"give {_in_style(row.name, spelling)} once",
            )
        given[row.name] = (spelling, value)
    return given


def _find(spelling: object, raw: object) -> tuple[Setting[Any], object]:
    """Return the setting a name stands for, and the value as kfast writes it."""
    if not isinstance(spelling, str):
        raise ConfigurationError(
            f"the name of a setting is a str, not {_show(spelling)}",
            hint='pass settings as keywords or as a mapping such as {"group.id": ...}',
        )
    name = _keyword(spelling)
    if name in ALIASES:
        alias = ALIASES[name]
        key = raw.strip().lower() if isinstance(raw, str) else raw
        if isinstance(key, str | int) and key in alias.values:
            raw = alias.values[key]
        return SETTINGS[alias.name], raw
    if name in SETTINGS:
        return SETTINGS[name], raw
    if name in REFUSED:
        raise ConfigurationError(f'config "{spelling}" is not supported', hint=REFUSED[name])
    raise _unknown(spelling)


def _keyword(spelling: str) -> str:
    """Return a name with ``_`` for ``.``; no name has both."""
    return spelling if "." in spelling and "_" in spelling else spelling.replace(".", "_")


def _unknown(spelling: str) -> ConfigurationError:
    known = {_in_style(name, spelling): name for name in (*SETTINGS, *ALIASES)}
    near = did_you_mean(spelling, known)
    if near is not None:
        row = SETTINGS[ALIASES[known[near]].name if known[near] in ALIASES else known[near]]
        advice = f"{near} ({row.summary})"
        return ConfigurationError(
            f'unknown config "{spelling}"; did you mean {advice}?', hint=f"use {near}"
        )
    ours = [_in_style(name, spelling) for name in SETTINGS]
    similar = difflib.get_close_matches(spelling, ours, n=3, cutoff=0.6)
    return ConfigurationError(
        f'unknown config "{spelling}"' + (f"; similar: {', '.join(similar)}" if similar else ""),
        hint="see ConsumerConfig.describe() for all settings",
    )


def _in_style(name: str, spelling: str) -> str:
    """Return a keyword written with dots if the user writes dots."""
    return name.replace("_", ".") if "." in spelling else name


# --- values ---------------------------------------------------------------------------------------


def _parse(row: Setting[Any], spelling: str, raw: object) -> Any:
    try:
        return row.parse(raw)
    except ValueError as error:
        reason = str(error)  # never quotes a secret
    # Raised outside the handler: a chained exception would carry the value of a secret along. Nor
    # are addresses shown: they may contain passwords.
    shown = "" if row.is_secret or row.is_required else f": {_show(raw)}"
    expected = ", ".join(filter(None, (row.type_name, row.valid)))
    default = "" if row.is_required else f" (default {default_text(row.default)})"
    raise ConfigurationError(
        f"bad value for {spelling}{shown}", cause=reason, hint=f"{expected}{default}"
    )


def _show(value: object) -> str:
    """Return the ``repr`` of a value for a message, shortened; PEM may be a private key."""
    return "PEM text" if isinstance(value, str) and PEM_START in value else _short.repr(value)
