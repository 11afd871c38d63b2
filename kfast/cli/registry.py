"""The schema registry of a command: its option, and the settings of it that files have.

Secrets come from files and from the environment, by the names that Confluent's clients have.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Final

import click

from kfast.errors import ConfigurationError
from kfast.settings.names import REGISTRY_ARGUMENTS
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kfast import SchemaRegistry
    from kfast.cli.options import Common

_URL: Final = "schema_registry_url"
_PREFIX: Final = "schema_registry_"
"""May stand before the name of each setting."""


def registry_option() -> click.Option:
    """Make the option that names a schema registry."""
    return click.Option(
        ["--schema-registry"],
        metavar="URL",
        help="schema registry (default schema.registry.url of a file, SCHEMA_REGISTRY_URL)",
    )


def registry_of(common: Common, url: str | None) -> SchemaRegistry:
    """Return the registry that the option or a setting names; ConfigurationError for none."""
    registry = find_registry(common, url)
    if registry is None:
        raise ConfigurationError(
            "no schema registry is named", hint="--schema-registry http://HOST:8081"
        )
    return registry


def find_registry(common: Common, url: str | None) -> SchemaRegistry | None:
    """Return the registry that the option or a setting names, None if none does."""
    from kfast import SchemaRegistry  # noqa: PLC0415 - not for help, nor where none is named

    settings = registry_settings(common, url)
    if not settings:
        return None
    arguments: dict[str, Any] = {
        REGISTRY_ARGUMENTS.get(name, name): value for name, value in settings.items()
    }
    return SchemaRegistry(arguments.pop("url"), **arguments)


def registry_settings(common: Common, url: str | None) -> dict[str, object]:
    """Return the settings of the registry by Confluent's names, with ``_``; {} if none is named."""
    settings = common.loaded().registry
    if url is None and _URL in settings:
        url = str(_plain(settings[_URL].value))
    if url is None:
        return {}
    named: dict[str, object] = {"url": url}
    for name in REGISTRY_ARGUMENTS:
        for key in (_PREFIX + name, name):
            if key in settings and name not in named:
                named[name] = _plain(settings[key].value)
    if common.timeout_ms is not None:
        named["deadline_ms"] = common.timeout_ms
    return named


@contextlib.contextmanager
def registry_if_needed(
    common: Common, url: str | None
) -> Iterator[Callable[[], SchemaRegistry | None]]:
    """Give a function that returns what `find_registry` does: one for all calls, closed at the end.

    A schema may need no registry, and a setting that cannot be used is then no error.
    """
    with contextlib.ExitStack() as kept:

        @functools.cache
        def registry() -> SchemaRegistry | None:
            client = find_registry(common, url)
            return None if client is None else kept.enter_context(client)

        yield registry


def _plain(value: object) -> object:
    return value.reveal() if isinstance(value, Secret) else value
