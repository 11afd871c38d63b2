"""The options that every command has, before or after its name, and kinds of values of options."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from kfast._base.spelling import did_you_mean
from kfast.cli.durations import duration_ms
from kfast.errors import ConfigurationError

if TYPE_CHECKING:
    from kfast.errors import KafkaConnectionError
    from kfast.settings.sources import Loaded

DEFAULT_SERVERS: Final = "localhost:9092"
_SIZE: Final = re.compile(r"(\d+(?:_\d+)*)([kKmMgG])?(?:i?[bB])?", re.ASCII)


@dataclass(slots=True)
class Common:
    """What the options of every command say; the last one given counts."""

    servers: str | None = None
    file: str | None = None
    profile: str | None = None
    settings: list[str] = field(default_factory=list)
    """``KEY=VALUE`` each."""
    timeout_ms: int | None = None
    """How long the cluster may stay silent; None: as a file says, or 10 s."""
    color: str = "auto"
    """Whether tables have bold headings: ``auto`` (on a terminal), ``always`` or ``never``."""
    verbosity: int = 0
    is_quiet: bool = False
    has_json_errors: bool = False
    """Whether errors are JSON: that of an administrative command with JSON as its format."""
    ends_by_interrupt: bool = False
    """Whether Ctrl-C is the way to end the command."""
    _loaded: Loaded | None = field(default=None, init=False, repr=False)

    def loaded(self) -> Loaded:
        """Return all settings with their origins: options, files, environment, defaults."""
        if self._loaded is None:
            from kfast.cli.common_settings import load_common  # noqa: PLC0415 - not for help

            self._loaded = load_common(self)
        return self._loaded

    def configs(self, *, is_member: bool = False) -> dict[str, object]:
        """Return the settings of a consumer; of those of groups all only for a member of one."""
        from kfast.cli.common_settings import consumer_configs  # noqa: PLC0415 - not for help

        return consumer_configs(self.loaded(), is_member=is_member)

    def explain(self, error: KafkaConnectionError) -> None:
        """Name option or file of the address in the text of a failed connection."""
        if self._loaded is not None:
            from kfast.cli.common_settings import explain  # noqa: PLC0415 - not for help

            explain(self._loaded, error)

    def start_logging(self) -> None:
        """Log to standard error as far as ``-v`` asks for it."""
        if self.verbosity:
            from kfast.cli.progress import start_logging  # noqa: PLC0415 - where it is asked for

            start_logging(self.verbosity)

    def logged_warnings(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Log warnings of a logger to standard error, unless ``-v`` shows more anyway."""
        if self.verbosity:
            return contextlib.nullcontext()
        from kfast.cli.progress import logged_warnings  # noqa: PLC0415 - for few commands

        return logged_warnings(name)


# --- kinds of values ------------------------------------------------------------------------------


class Words(click.ParamType):  # type: ignore[type-arg]  # generic since 8.5
    """One of some words; the nearest one is proposed for any other."""

    name = "word"

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the words, as the help shows them."""
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
        duration = duration_ms(value)
        if duration is None:
            self.fail(f'"{value}" is not a length of time such as 250ms, 10s or 1h30m', param, ctx)
        return duration


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


class Size(click.ParamType):  # type: ignore[type-arg]  # generic since 8.5
    """A number of 1 or more that may end in ``k``, ``M`` or ``G``, the powers of ``base``."""

    name = "size"

    def __init__(self, base: int = 1024) -> None:
        self._base = base

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value)
        number = 0
        if match:
            exponent = "kmg".find(match[2].lower()) + 1 if match[2] else 0
            number = int(match[1]) * self._base**exponent
        if number < 1:
            self.fail(f'"{value}" is not a size such as 512, 64k, 8M or 1G', param, ctx)
        return number


# --- the common options ---------------------------------------------------------------------------


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    common = ctx.find_object(Common)
    if common is None or (not value and value != ""):  # an empty variable of a shell is a mistake
        return
    if param.name in {"settings", "config"}:
        common.settings.extend(value)
    elif param.name == "verbosity":
        common.verbosity += value
    else:
        setattr(common, str(param.name), value)


def _option(*names: str, help: str, **more: Any) -> click.Option:
    return click.Option(names, expose_value=False, callback=_keep, help=help, **more)


_BESIDE: Final = ("click", "crc32c", "cramjam", "isal", "lz4", "zstandard", "numpy", "pyarrow")
"""Packages whose versions -v shows, as far as they are installed."""


def _show_version(ctx: click.Context, _param: click.Parameter, is_asked: bool) -> None:
    if not is_asked or ctx.resilient_parsing:
        return
    from kfast import __version__  # noqa: PLC0415 - the package imports what it has when asked

    click.echo(f"kfast {__version__}")
    common = ctx.find_object(Common)
    if common is not None and common.verbosity:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - as above

        click.echo(f"Python {sys.version.split()[0]}")
        for name in _BESIDE:
            with contextlib.suppress(PackageNotFoundError):
                click.echo(f"{name} {version(name)}")
    ctx.exit()


def common_options() -> list[click.Option]:
    """Make the options that every command has."""
    return [
        _option(
            *("servers", "-b", "--bootstrap", "--bootstrap-servers"),
            metavar="HOST[:PORT],...",
            help=f"addresses of brokers (default {DEFAULT_SERVERS})",
        ),
        _option(
            *("file", "-F", "--config-file"),
            metavar="FILE",
            help="settings: Java .properties, kcat's file, .toml or .json",
        ),
        _option(
            *("profile", "--profile"),
            metavar="NAME",
            help="a profile of ~/.config/kfast/config.toml, or of FILE",
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
        _option(
            "--color", type=Words(("auto", "always", "never")), help="bold headings (default auto)"
        ),
        _option("is_quiet", "-q", "--quiet", is_flag=True, help="no notes and no progress"),
        _option(
            *("verbosity", "-v", "--verbose"),
            count=True,
            is_eager=True,  # --version asks for it
            help="log; -vv: all, and tracebacks",
        ),
        # Not eager, but before the complaint that an argument is missing: that has no place.
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            callback=_show_version,
            help="print the version; with -v also those of packages",
        ),
    ]


_BYTES: Final = frozenset(
    {
        *("output", "errors", "to", "source", "parquet", "log_dir", "value_imports", "key_imports"),
        *("format", "delimiter", "null_as"),
    }
)
"""Parameters that are paths, or what is written between values."""


def _check_text(param: click.Parameter, value: object) -> None:
    try:
        if isinstance(value, str):
            value.encode()
    except UnicodeEncodeError:
        name = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
        raise ConfigurationError(f"{name}: not UTF-8: {value!a}", hint="a text in UTF-8") from None


class ResultFormat(click.Option):
    """The option of a result's format; where that is JSON, errors are JSON too."""

    json_formats: frozenset[str] = frozenset()

    def note(self, words: Sequence[str], common: Common) -> None:
        """Look for it in the words of a command, which may have mistakes."""
        names = {*self.opts}
        before = ""
        for word in words:
            name, _, value = word.partition("=")
            if before in names:
                format_name = word
            elif name in names and value:
                format_name = value
            else:
                format_name = word[2:] if word[:2] in names else ""
            common.has_json_errors = common.has_json_errors or format_name in self.json_formats
            before = word


class Command(click.Command):
    """A command with the common options behind its own, and perhaps commands below it.

    A subcommand is the first word behind the command's name; ``--`` before it makes it an argument.
    """

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        subcommands: Mapping[str, click.Command] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.subcommands = dict(subcommands or {})
        self.params += common_options()
        self.epilog = "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)
        self.context_settings = SETTINGS

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments: of a subcommand, if the first word names one."""
        at = self._first_word(args)
        sub = None if at is None else self.subcommands.get(args[at])
        if at is not None and sub is None and self._has_subcommands_only():
            near = did_you_mean(args[at], self.subcommands)
            raise ConfigurationError(
                f'no command "{args[at]}"',
                hint=f"did you mean {near}?" if near else f"kfast {info_name} --help",
            )
        if at is None or sub is None:
            common = None if parent is None else parent.find_object(Common)
            for param in self.params:
                if common is not None and isinstance(param, ResultFormat):
                    param.note(args, common)
            return super().make_context(info_name, args, parent, **extra)
        rest = [*args[:at], *args[at + 1 :]]
        return sub.make_context(f"{info_name} {args[at]}", rest, parent, **extra)

    def _has_subcommands_only(self) -> bool:
        has_arguments = any(isinstance(param, click.Argument) for param in self.params)
        return bool(self.subcommands) and not has_arguments

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Of those that are bytes or paths alone any byte is taken."""
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # which the parser of click leaves out
            raise
        for param in self.params:
            value = ctx.params.get(str(param.name))
            if param.name not in _BYTES:
                for text in value if isinstance(value, tuple) else (value,):
                    _check_text(param, text)
        return rest

    def _options(self) -> Iterator[click.Option]:
        return (param for param in self.params if isinstance(param, click.Option))

    def _first_word(self, args: Sequence[str]) -> int | None:
        """Return where the first argument is that is no option, nor the value of one."""
        valued = {name for option in self._options() if _has_value(option) for name in option.opts}
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            at += 2 if args[at] in valued else 1
        return at if at < len(args) and args[at] != "--" else None

    def invoke(self, ctx: click.Context) -> Any:
        """Start logging, when all options are known, and run the command."""
        common = ctx.find_object(Common)
        if common is not None:
            common.start_logging()
        return super().invoke(ctx)


def _has_value(option: click.Option) -> bool:
    return not (option.is_flag or option.count)


SETTINGS: Final[dict[str, Any]] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
}
"""How click parses and shows commands."""
