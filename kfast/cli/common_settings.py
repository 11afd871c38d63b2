"""The settings of a command: from its options, and from wherever else settings come.

Apart from ``options``, because the help of a command needs none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import click

from kfast._base.logs import get_logger
from kfast._base.program import pairs
from kfast.settings.files import Entry
from kfast.settings.secret import Secret
from kfast.settings.sources import DEFAULT_ORIGIN, DEFAULT_SERVERS, Loaded, load

if TYPE_CHECKING:
    from kfast.errors import KafkaConnectionError

logger = get_logger(__name__)

DEFAULT_TIMEOUT_MS: Final = 10_000
_TIMEOUTS: Final = ("request_timeout_ms", "default_api_timeout_ms")
_LEAST_REQUEST_TIMEOUT_MS: Final = 1_000
"""A Fetch without records is answered after half of it."""
_OF_MEMBERS: Final = ("group_id", "group_instance_id", "enable_auto_commit", "auto_offset_reset")
"""Settings that commands for members of a group use, and others only where an option names them: a
file that is shared with an application must not make a command commit or pass over records."""


class GivenOptions(Protocol):
    """What settings are made of in ``options.Common``."""

    servers: str | None
    file: str | None
    profile: str | None
    settings: list[str]
    timeout_ms: int | None
    verbosity: int
    is_quiet: bool


def load_common(common: GivenOptions) -> Loaded:
    """Return all settings with their origins, and write what a person should know of them."""
    settings = load(common.file, common.profile, options=_options(common))
    if not any(name in settings.entries for name in _TIMEOUTS):
        more = _timeouts(DEFAULT_TIMEOUT_MS, DEFAULT_ORIGIN)
        settings = replace(
            settings, entries={**settings.entries, **dict(zip(_TIMEOUTS, more, strict=True))}
        )
    if not common.is_quiet and (common.verbosity or sys.stderr.isatty()):
        for note in settings.notes:
            click.echo(f"note: {note}", err=True)
    for entry in settings.entries.values():
        logger.info("%s=%s (%s)", entry.key, shown(entry), entry.origin)
    return settings


def _options(common: GivenOptions) -> Sequence[Entry]:
    texts = pairs(common.settings, "-X")
    names = {key.replace(".", "_") for key in texts}
    options = [Entry.of(key, value, "-X") for key, value in texts.items()]
    if common.servers is not None and "bootstrap_servers" not in names:
        options.append(Entry.of("bootstrap.servers", common.servers, "-b"))
    if common.timeout_ms is not None and names.isdisjoint(_TIMEOUTS):
        options += _timeouts(common.timeout_ms, "--timeout")
    return options


def _timeouts(timeout_ms: int, origin: str) -> Sequence[Entry]:
    value = max(timeout_ms, _LEAST_REQUEST_TIMEOUT_MS)
    return [Entry(name.replace("_", "."), value, origin) for name in _TIMEOUTS]


def consumer_configs(settings: Loaded, *, is_member: bool) -> dict[str, object]:
    """Return the settings of a consumer."""
    used = {
        name: entry
        for name, entry in settings.entries.items()
        if is_member or name not in _OF_MEMBERS or entry.origin == "-X"
    }
    # Reading a topic never creates it.
    used["allow_auto_create_topics"] = Entry("allow.auto.create.topics", False, DEFAULT_ORIGIN)
    return {entry.key: entry.value for entry in used.values()}


def shown(entry: Entry) -> object:
    """Return a value as people may see it."""
    return "***" if isinstance(entry.value, Secret) else entry.value


def explain(settings: Loaded, error: KafkaConnectionError) -> None:
    """Name option or file of the address in the text of a failed connection."""
    servers = settings.entries["bootstrap_servers"]
    if servers.origin == DEFAULT_ORIGIN:
        note = "(the default; name your cluster with -b)"
        before, address, after = error.message.partition(DEFAULT_SERVERS)
        error.message = f"{before}{address} {note}{after}"
        error.hint = "-b HOST:PORT"
    else:
        name = "-b" if servers.origin == "-b" else f"{servers.key} ({servers.origin})"
        from_there = f"(from {name.replace(' (', ', ').rstrip(')')})"
        error.message = error.message.replace("(from bootstrap_servers)", from_there)
        error.hint = error.hint and error.hint.replace("bootstrap_servers", name)
