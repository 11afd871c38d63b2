"""ConsumerConfig: a consumer's configuration, validated once, then immutable.

Owns the way from keywords and mappings to values: the setting each name stands for, and the error
for a bad name or value. The settings are rows of ``settings.table``; the rules between them are in
``settings.rules``. Nothing is read from files or the environment unless `from_file` is called, and
no class is loaded by name. A value marked secret appears in no message and no ``repr``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfast._base.logs import get_logger
from kfast.errors import ConfigurationError
from kfast.settings.kinds import default_text
from kfast.settings.names import ALIASES, SETTINGS, find, in_style, may_be_secret, parse, show
from kfast.settings.rules import apply_rules
from kfast.settings.secret import Secret
from kfast.settings.table import DEPRECATED_RESETS, SettingsTable

logger = get_logger(__name__)


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
        if may_be_secret(name, value)
        else value
        for name, value in settings.items()
    }


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

    Examples
    --------
    >>> kfast.ConsumerConfig({"fetch.min.bytes": 5}, bootstrap_servers="b1").fetch_min_bytes
    5
    """

    __slots__ = ("_given", "_values")

    def __init__(self, config: Mapping[str, object] | None = None, **configs: object) -> None:
        items = [*sealed(config or {}).items(), *sealed(configs).items()]
        del config, configs
        settings = _resolve(items)
        values = {name: row.default for name, row in SETTINGS.items()}
        values.update((name, value) for name, (_, value) in settings.items())
        self._given: dict[str, str] = {name: spelling for name, (spelling, _) in settings.items()}
        self._values: dict[str, Any] = values
        apply_rules(values, self._given)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], profile: str | None = None) -> ConsumerConfig:
        """Return the configuration in a file: ``.properties``, of kcat, ``.toml`` or ``.json``.

        Keys for other clients, such as producers, are ignored. Of the environment only what values
        refer to (``env:NAME``) is read; `kfast.load_config` reads the rest, too.
        """
        from kfast.settings.sources import load_config  # noqa: PLC0415 - seldom used

        return cls(load_config(path, profile, environment=False))

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
        """Return the settings with their secrets, for a process that is sent this configuration."""
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


def _resolve(items: list[tuple[str, object]]) -> dict[str, tuple[str, Any]]:
    """Return ``{keyword: (spelling, value)}`` for everything given."""
    settings: dict[str, tuple[str, Any]] = {}
    for spelling, raw in items:
        row, raw = find(spelling, raw)
        value = parse(row, spelling, raw)
        if row.name == "auto_offset_reset" and raw in DEPRECATED_RESETS:
            logger.warning("%s=%s is deprecated: %s is used", spelling, raw, value)
        other, earlier = settings.get(row.name, (spelling, value))
        if earlier is not value and earlier != value:
            detail = "" if row.is_secret else f": {show(earlier)} and {show(value)}"
            raise ConfigurationError(
                f"{other} and {spelling} are the same setting, given two values{detail}"
                if other != spelling
                else f"{spelling} is given twice{detail}",
                hint=f"give {in_style(row.name, spelling)} once",
            )
        settings[row.name] = (spelling, value)
    return settings
