"""The options that every command has, before or after its name, and kinds of values of options."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click

from kfast._program import pairs
from kfast._spelling import did_you_mean
from kfast.cli.durations import duration_ms
from kfast.errors import ConfigurationError

DEFAULT_SERVERS: Final = "localhost:9092"
_TIMEOUTS: Final = ("request.timeout.ms", "default.api.timeout.ms")
_LEAST_REQUEST_TIMEOUT_MS: Final = 1_000
"""A Fetch without records is answered after half of it."""


@dataclass(slots=True)
class Common:
    """What the options of every command say; the last one given counts."""

    servers: str | None = None
    settings: list[str] = field(default_factory=list)
    """``KEY=VALUE`` each."""
    timeout_ms: int = 10_000
    verbosity: int = 0
    is_quiet: bool = False

    def configs(self) -> dict[str, object]:
        """Return the settings of a consumer."""
        given = pairs(self.settings, "-X")
        names = {key.replace("_", ".") for key in given}
        configs: dict[str, object] = {"bootstrap.servers": self.servers or DEFAULT_SERVERS}
        if names.isdisjoint(_TIMEOUTS):
            configs |= dict.fromkeys(_TIMEOUTS, max(self.timeout_ms, _LEAST_REQUEST_TIMEOUT_MS))
        return {key: value for key, value in configs.items() if key not in names} | given

    def connection_hint(self, hint: str | None) -> str | None:
        """Return what to try after a connection failed, with the names of options."""
        if self.servers is None:
            return f"name your cluster with -b HOST:PORT ({DEFAULT_SERVERS} is the default)"
        return hint and hint.replace("bootstrap_servers", "-b")

    def start_logging(self) -> None:
        """Log to standard error as far as ``-v`` asks for it."""
        if self.verbosity:
            level = logging.INFO if self.verbosity == 1 else logging.DEBUG
            logging.basicConfig(
                level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
            )


# --- kinds of values ------------------------------------------------------------------------------


class Words(click.ParamType):  # type: ignore[type-arg]  # generic since 8.5
    """One of some words; the nearest one is proposed for any other."""

    name = "word"

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return what the help shows for a value."""
        return "|".join(self.words)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word."""
        if value in self.words:
            return str(value)
        near = did_you_mean(value, self.words)
        option = param.opts[0] if param is not None else ""
        raise ConfigurationError(
            f'{option}: there is no "{value}"',
            hint=f"did you mean {near}?" if near else f"one of {', '.join(self.words)}",
        )


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic since 8.5
    """A length of time such as ``10s`` or ``1h30m``, in ms."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return ms."""
        if isinstance(value, int):
            return value
        found = duration_ms(value)
        if found is None:
            self.fail(f'"{value}" is not a length of time such as 250ms, 10s or 1h30m', param, ctx)
        return found


class Count(click.ParamType):  # type: ignore[type-arg]  # generic since 8.5
    """A whole number of 1 or more; it may contain ``_``."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if isinstance(value, int):
            return value
        digits = value.replace("_", "")
        if not (digits.isascii() and digits.isdecimal() and int(digits) > 0):
            self.fail(f'"{value}" is not a whole number of 1 or more', param, ctx)
        return int(digits)


# --- the common options ---------------------------------------------------------------------------


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    common = ctx.find_object(Common)
    if common is None or not value:
        return
    if param.name in {"settings", "config"}:
        common.settings.extend(value)
    elif param.name == "verbosity":
        common.verbosity += value
    else:
        setattr(common, str(param.name), value)


def _option(*names: str, help: str, **more: Any) -> click.Option:
    return click.Option(names, expose_value=False, callback=_keep, help=help, **more)


def common_options() -> list[click.Option]:
    """Make the options that every command has."""
    return [
        _option(
            *("servers", "-b", "--bootstrap", "--bootstrap-servers"),
            metavar="HOST[:PORT],...",
            help=f"addresses of brokers (default {DEFAULT_SERVERS})",
        ),
        _option(
            *("settings", "-X", "--set"),
            metavar="KEY=VALUE",
            multiple=True,
            help="any setting by Kafka's, librdkafka's or kafka-python's name; may be repeated",
        ),
        _option("--config", multiple=True, hidden=True, help="-X by its older name"),
        _option(
            *("timeout_ms", "--timeout"),
            type=Duration(),
            help="how long the cluster may stay silent (default 10s)",
        ),
        _option("is_quiet", "-q", "--quiet", is_flag=True, help="no notes and no progress"),
        _option("verbosity", "-v", "--verbose", count=True, help="log; -vv: all, and tracebacks"),
    ]


class Command(click.Command):
    """A command with the common options behind its own."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self.params += common_options()
        self.epilog = "\b\nExamples:\n" + "\n".join(f"  {each}" for each in examples)
        self.context_settings = SETTINGS

    def invoke(self, ctx: click.Context) -> Any:
        """Start logging, when all options are known, and run the command."""
        common = ctx.find_object(Common)
        if common is not None:
            common.start_logging()
        return super().invoke(ctx)


SETTINGS: Final[dict[str, Any]] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
}
"""How click parses and shows commands."""
