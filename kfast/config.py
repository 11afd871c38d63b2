"""A consumer's configuration: given by anyone's names, validated once, then immutable.

Owns the way from keywords and mappings to values: which name means which setting, what a bad one
is told, and the rules between settings. The settings themselves are rows of ``settings.table``, and
a new one is a row there and nothing here. Nothing is read from files or the environment, and no
class is loaded by name. A value marked secret appears in no message and no ``repr``.
"""

from __future__ import annotations

import difflib
import itertools
import logging
import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kfast.errors import ConfigurationError, did_you_mean
from kfast.settings.aliases import ALIASES, REFUSED
from kfast.settings.kinds import INT32_MAX, Setting, default_text
from kfast.settings.table import DEPRECATED_RESETS, SettingsTable

_log: Final = logging.getLogger(__name__)

SETTINGS: Final[Mapping[str, Setting[Any]]] = {
    name: row for name, row in vars(SettingsTable).items() if isinstance(row, Setting)
}
"""Every setting by its keyword."""

_MIB: Final = 1 << 20
_MAX_DEFAULT_DECODE_THREADS: Final = 4
_client_numbers: Final = itertools.count(1)
_short: Final = reprlib.Repr()
_short.maxstring = _short.maxother = 80


@dataclass(slots=True, frozen=True)
class SettingInfo:
    """What there is to say about one setting.

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
        Accepted values; empty if any of the type will do.
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
    Some values are settled here: ``client_id`` is made up if empty, ``enable_auto_commit`` is off
    without a group, a maximum backoff is at least its base, ``default_api_timeout_ms`` is at least
    ``request_timeout_ms`` unless both were given, ``receive_message_max_bytes`` has room for what
    the fetch limits allow, and ``decode_threads`` is a number.
    """

    __slots__ = ("_given", "_values")

    def __init__(self, config: Mapping[str, object] | None = None, **configs: object) -> None:
        given = _resolve([*dict(config or {}).items(), *configs.items()])
        values = {name: row.default for name, row in SETTINGS.items()}
        values.update((name, value) for name, (_, value) in given.items())
        self._given: dict[str, str] = {name: spelling for name, (spelling, _) in given.items()}
        self._values: dict[str, Any] = values
        _settle(values, self._given)

    def was_given(self, name: str) -> bool:
        """Return whether a setting was given, by any of its names, rather than left out."""
        return name in self._given

    @staticmethod
    def describe() -> tuple[SettingInfo, ...]:
        """Return all settings with type, default, limits and purpose, in the table's order."""
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

    def __repr__(self) -> str:
        shown = (
            f"{name}={'***' if SETTINGS[name].is_secret else repr(self._values[name])}"
            for name in self._given
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
            _log.warning("%s=%s is deprecated: %s is used", spelling, raw, value)
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
    """Return the row a name stands for, and the value in our terms."""
    if not isinstance(spelling, str):
        raise ConfigurationError(
            f"the name of a setting is a str, not {_show(spelling)}",
            hint='pass settings as keywords or as a mapping such as {"group.id": ...}',
        )
    name = spelling if "." in spelling and "_" in spelling else spelling.replace(".", "_")
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
        reason = str(error)  # quotes no more of the value than may be seen
    # Raised outside the handler: a chained exception would carry the value of a secret along. Nor
    # are addresses shown, people write passwords into them.
    shown = "" if row.is_secret or row.is_required else f": {_show(raw)}"
    expected = ", ".join(filter(None, (row.type_name, row.valid)))
    default = "" if row.is_required else f" (default {default_text(row.default)})"
    raise ConfigurationError(
        f"bad value for {spelling}{shown}", cause=reason, hint=f"{expected}{default}"
    )


_SHOWN_OF_GROUP_ID: Final = 200
"""How much of it goes into a ``client_id`` that is made up: there is a limit to both."""


def _show(value: object) -> str:
    """Return a value for a message: as written in Python, but not at any length."""
    return _short.repr(value)


# --- rules between settings -----------------------------------------------------------------------


def _settle(values: dict[str, Any], given: Mapping[str, str]) -> None:
    """Check the rules between settings and fill in what depends on others."""
    if not values["bootstrap_servers"]:
        raise ConfigurationError(
            "bootstrap_servers is not set", hint='pass bootstrap_servers="host:9092"'
        )
    _refuse_secure_protocols(values, given)
    _refuse_reporting(values, given)
    _refuse_proxies(values)
    _check_order(values, given)
    _check_group_rules(values, given)
    if not values["client_id"]:
        group = f"{values['group_id'][:_SHOWN_OF_GROUP_ID]}-" if values["group_id"] else ""
        values["client_id"] = f"kfast-{group}{next(_client_numbers)}"
    for base in ("reconnect_backoff", "retry_backoff"):
        low, high = values[f"{base}_ms"], values[f"{base}_max_ms"]
        values[f"{base}_max_ms"] = max(low, high)
    values["receive_message_max_bytes"] = min(
        INT32_MAX,
        max(
            values["receive_message_max_bytes"],
            values["fetch_max_bytes"] + values["max_partition_fetch_bytes"] + _MIB,
        ),
    )
    if values["decode_threads"] < 0:
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        # The calling thread decodes too, and the other half of the machine is not idle.
        values["decode_threads"] = max(1, min(_MAX_DEFAULT_DECODE_THREADS, (cpus or 1) // 2))


def _refuse_secure_protocols(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Refuse what needs TLS or SASL, which this version does not have.

    Their settings alone are harmless and common in shared configurations, but who gives them may
    believe to be protected.
    """
    if values["security_protocol"] != "PLAINTEXT":
        raise ConfigurationError(
            f'security_protocol="{values["security_protocol"]}" is not supported',
            cause="this version of kfast speaks PLAINTEXT only",
            hint="connect to a PLAINTEXT listener",
        )
    idle = sorted(word for name, word in given.items() if name.startswith(("ssl_", "sasl_")))
    if idle:
        _log.warning("%s: no effect with security_protocol=PLAINTEXT", ", ".join(idle))


def _refuse_reporting(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Refuse to send metrics anywhere, which this version does not do."""
    if values["metric_reporters"]:
        raise ConfigurationError(
            f"{given['metric_reporters']} is not supported",
            cause="kfast calls nobody with its metrics",
            hint=f"leave {given['metric_reporters']} out, and call metrics()",
        )
    if values["enable_metrics_push"]:
        raise ConfigurationError(
            f"{given['enable_metrics_push']}=True is not supported",
            cause="this version of kfast sends no metrics to brokers (KIP-714)",
            hint=f"leave {given['enable_metrics_push']} out, and call metrics()",
        )


def _refuse_proxies(values: Mapping[str, Any]) -> None:
    """Refuse proxies, which this version does not have."""
    if values["proxy_url"] is not None:
        raise ConfigurationError(
            "proxy_url is not supported",
            cause="this version of kfast connects to brokers directly",
            hint="leave proxy_url out, or forward the brokers' ports",
        )


def _check_order(values: dict[str, Any], given: Mapping[str, str]) -> None:
    """Check which times must be shorter than which."""
    if "default_api_timeout_ms" not in given:
        floor = values["request_timeout_ms"]
        values["default_api_timeout_ms"] = max(values["default_api_timeout_ms"], floor)
    rules = [
        ("fetch_max_wait_ms", "<", "request_timeout_ms"),
        ("request_timeout_ms", "<=", "default_api_timeout_ms"),
    ]
    if values["connections_max_idle_ms"] >= 0:  # negative: connections are never idle
        rules.append(("request_timeout_ms", "<", "connections_max_idle_ms"))
    if values["group_protocol"] == "classic":
        rules.append(("heartbeat_interval_ms", "<", "session_timeout_ms"))
    for left, relation, right in rules:
        low, high = values[left], values[right]
        if low > high or (low == high and relation == "<"):
            names = [given.get(name, name) for name in (left, right)]
            must = "less than" if relation == "<" else "at most"
            raise ConfigurationError(
                f"{names[0]} ({low}) must be {must} {names[1]} ({high})",
                hint=f"lower {names[0]} or raise {names[1]}",
            )


def _check_group_rules(values: dict[str, Any], given: Mapping[str, str]) -> None:
    """Check which settings of groups go together."""
    if values["group_id"] is None:
        if "enable_auto_commit" in given and values["enable_auto_commit"]:
            raise ConfigurationError(
                f"{given['enable_auto_commit']}=True needs a group to commit for",
                cause="group_id is not set",
                hint=f"set group_id, or leave {given['enable_auto_commit']} out",
            )
        values["enable_auto_commit"] = False
        if values["group_instance_id"] is not None:
            raise ConfigurationError(
                f"{given['group_instance_id']} needs a group to be a member of",
                cause="group_id is not set",
                hint=f"set group_id, or leave {given['group_instance_id']} out",
            )
    if values["group_protocol"] == "consumer":
        for name in (
            "session_timeout_ms",
            "heartbeat_interval_ms",
            "partition_assignment_strategy",
        ):
            if name in given:
                raise ConfigurationError(
                    f"{given[name]} cannot be set with group_protocol=consumer",
                    cause="the broker decides this in the KIP-848 protocol",
                    hint=f"leave {given[name]} out, or use group_protocol=classic",
                )
    elif values["group_remote_assignor"] is not None:
        raise ConfigurationError(
            f"{given['group_remote_assignor']} needs group_protocol=consumer",
            cause="with the classic protocol a member of the group assigns",
            hint="set group_protocol=consumer, or use partition_assignment_strategy",
        )
