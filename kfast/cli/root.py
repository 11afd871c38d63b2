"""The command line, ``kfast`` or ``python -m kfast``: its commands, and how each of them ends.

Owns the texts of mistakes in arguments; ``commands`` has the table of commands. Only data goes to
standard output. A reader that goes away (``kfast read ... | head``) ends a command with status 0;
the other statuses are those of ``exits``.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from kfast._base.program import run_program
from kfast._base.spelling import did_you_mean
from kfast.cli.commands import ALIASES, COMMANDS, command_of
from kfast.cli.exits import FAILED, INTERRUPTED, error_text, exit_code, shown_lines
from kfast.cli.options import SETTINGS, Command, Common, ResultFormat, common_options
from kfast.cli.output import OutputError, open_closed_streams, open_messages
from kfast.errors import ConfigurationError, KafkaConnectionError, KafkaError

_COMPLETE: Final = "_complete"
"""For the scripts of ``completion`` only."""
_OF_OUTPUT: Final = frozenset({errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC})
"""What writing to standard output fails with; errors of sockets are KafkaErrors."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command_of(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = ALIASES.get(args[0], args[0])
        if name not in COMMANDS:
            near = did_you_mean(name, [*COMMANDS, *ALIASES])
            raise ConfigurationError(
                f'no command "{name}"', hint=f"did you mean {near}?" if near else "kfast --help"
            )
        return name, self.get_command(ctx, name), args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])


def _begin(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


_ROOT: Final = _Commands(
    name="kfast",
    help="A columnar Apache Kafka consumer: tools and demonstration.",
    params=[*common_options()],
    invoke_without_command=True,
    callback=click.pass_context(_begin),
    context_settings=SETTINGS,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command with the process's arguments, or with `argv`; return the exit status."""
    open_closed_streams()
    if argv is None:
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
        sys.stderr = open_messages()
    arguments = [*(sys.argv[1:] if argv is None else argv)]
    if arguments[:1] == [_COMPLETE]:
        from kfast.cli.complete import complete  # noqa: PLC0415 - for shells only

        complete(arguments[2:])
        return 0
    common = Common()

    def failed(error: KafkaError) -> int:
        if isinstance(error, KafkaConnectionError):
            common.explain(error)
        is_terminal = sys.stderr.isatty()
        if common.verbosity > 1:
            text = _traceback(error)
            sys.stderr.write(shown_lines(text) if is_terminal else text)
        if isinstance(error, ConfigurationError):
            _note_format(arguments, common)
        sys.stderr.write(error_text(error, is_json=common.has_json_errors, is_terminal=is_terminal))
        return exit_code(error)

    try:
        status = run_program(lambda: _run(arguments, common), failed)
    except Exception as error:
        return _report_bug(error, common)
    return 0 if status == INTERRUPTED and common.ends_by_interrupt else status


def _run(arguments: list[str], common: Common) -> int:
    try:
        with _ROOT.make_context("kfast", arguments, obj=common) as ctx:
            _ROOT.invoke(ctx)
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.UsageError as error:
        raise _usage_error(error) from None
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        if error.filename is None and error.errno in _OF_OUTPUT:
            _discard_output()
            raise OutputError(f"cannot write standard output: {error.strerror}") from None
        name = f"{error.filename}: " if error.filename else ""
        raise KafkaError(f"{name}{error.strerror or error}") from error
    return 0


def _note_format(words: Sequence[str], common: Common) -> None:
    """Look for the format of the results: the mistake may come before the command's name."""
    name = next((word for word in words if word in COMMANDS or word in ALIASES), "topics")
    command = command_of(name)
    if isinstance(command, Command):
        for subcommand in (command, *command.subcommands.values()):
            for param in subcommand.params:
                if isinstance(param, ResultFormat):
                    param.note(words, common)


def _discard_output() -> None:
    """Let the flush of standard output at exit, which is Python's, not fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _usage_error(error: click.UsageError) -> ConfigurationError:
    """Return a mistake in the arguments, with the nearest name."""
    command = "kfast" if error.ctx is None else error.ctx.command_path
    message, hint = error.format_message().rstrip("."), f"{command} --help"
    if isinstance(error, click.NoSuchOption):
        message = f'no option "{error.option_name}"'
        params = [] if error.ctx is None else error.ctx.command.params
        near = did_you_mean(error.option_name, [name for param in params for name in param.opts])
        if error.option_name in {"-t", "--topic"}:
            hint = "topics are arguments: kfast read TOPIC"
        elif near:
            hint = f"did you mean {near}?"
    elif isinstance(error, click.MissingParameter) and error.param is not None:
        is_argument = isinstance(error.param, click.Argument)
        name = error.param.human_readable_name if is_argument else error.param.opts[0]
        message = f"{command}: no {name} is given"
    elif isinstance(error, click.BadParameter) and error.param is not None:
        message = f"{error.param.opts[-1]}: {error.message}"
    return ConfigurationError(message, hint=hint)


def _traceback(error: Exception) -> str:
    import traceback  # noqa: PLC0415 - for errors

    return "".join(traceback.format_exception(error))


def _report_bug(error: Exception, common: Common) -> int:
    text = _traceback(error)
    if common.verbosity > 1:
        sys.stderr.write(text)
    import tempfile  # noqa: PLC0415 - for bugs only

    with tempfile.NamedTemporaryFile(
        "w", prefix="kfast-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    sys.stderr.write(
        f"kfast: this is a bug in kfast\nfound: {summary}\ntry: report it with {file.name}\n"
    )
    return FAILED
