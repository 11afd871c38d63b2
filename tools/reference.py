"""``python -m tools.reference``: docs/reference, out of the code.

Settings come from their table, the command line from its commands, errors and exit codes from the
classes and the table of codes. Nothing of it is kept under version control: `make docs` writes it.
"""

from __future__ import annotations

import importlib
import inspect
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

import kfast
from kfast import errors
from kfast.cli.commands import COMMANDS
from kfast.cli.exits import EXIT_CODES, exit_code
from kfast.cli.options import Command
from kfast.config import ConsumerConfig
from kfast.spark.source.option_table import OPTIONS

ROOT: Final = Path(__file__).resolve().parents[1]
REFERENCE: Final = ROOT / "docs" / "reference"
_FIRST: Final = ("KafkaConsumer", "ConsumerRecords", "PartitionRecords", "TopicScan")


def pages() -> dict[str, str]:
    """Return the text of each page by its path below docs/reference."""
    found = {"settings.md": settings_page(), "cli.md": cli_page(), "api.md": api_page()}
    found["spark-options.md"] = spark_page()
    classes = error_classes()
    found |= {f"errors/{name}.md": error_page(name, each) for name, each in classes.items()}
    found["errors/index.md"] = errors_index(classes)
    found |= {f"exit-codes/{code}.md": exit_page(code, classes) for code in EXIT_CODES}
    found["exit-codes/index.md"] = exits_index()
    return found


def write(folder: Path = REFERENCE) -> None:
    """Replace the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


# --- Python and settings --------------------------------------------------------------------------


def api_page() -> str:
    """Return the page of the public names, whose texts mkdocstrings takes from the sources."""
    names = [name for name in kfast.__all__ if name not in _FIRST]
    functions = [name for name in names if inspect.isroutine(getattr(kfast, name))]
    classes = [name for name in names if inspect.isclass(getattr(kfast, name))]
    ordered = [*_FIRST, *functions, *classes]
    directives = "\n\n".join(f"::: kfast.{name}" for name in ordered)
    return f"# Python\n\nEverything public is in the package `kfast`.\n\n{directives}\n"


def settings_page() -> str:
    """Return the page of all settings."""
    parts = [
        "# Settings\n\nAs keywords (`fetch_min_bytes`), by Kafka's names in a mapping or a file "
        "(`fetch.min.bytes`), in the environment of commands (`KFAST_FETCH_MIN_BYTES`), and by the "
        "names of other clients that mean the same.\n"
    ]
    for info in ConsumerConfig.describe():
        lines = [f"\n## {info.key}\n", f"{info.doc[:1].upper()}{info.doc[1:]}.\n"]
        lines += [f"- Type: {info.type}", f"- Default: `{info.default}`"]
        lines += [f"- Valid: {_plain(info.valid)}"] if info.valid else []
        if info.aliases:
            lines.append(f"- Also: {', '.join(f'`{name}`' for name in info.aliases)}")
        parts.append("\n".join(lines) + "\n")
    return "".join(parts)


def spark_page() -> str:
    """Return the page of the options of ``format("kfast")``."""
    lines = [
        '# Options of `format("kfast")`\n',
        "`kafka.NAME` is a setting of the consumer, `schemaRegistry.NAME` one of a registry.\n",
        "| option | default | meaning | `kfast ingest` |",
        "|---|---|---|---|",
    ]
    for row in OPTIONS.values():
        default = "" if row.default is None else f"`{row.default}`"
        default = default.lower() if isinstance(row.default, bool) else default
        doc = row.doc.replace("[the deserializer](typed-columns.md)", "the deserializer")
        command = f"`{row.command}`" if row.command else ""
        lines.append(f"| `{row.name}` | {default} | {doc} | {command} |")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return text.replace("[", "\\[").replace("*", "\\*").replace("<", "&lt;")


# --- the command line -----------------------------------------------------------------------------


def cli_page() -> str:
    """Return the page of all commands: what their help says."""
    parts = ["# Command line\n"]
    for title, help_text in commands():
        parts.append(f"\n## {title}\n\n```text\n{help_text}\n```\n")
    return "".join(parts)


def commands() -> Iterator[tuple[str, str]]:
    """Yield each command and subcommand with its help."""
    for name in COMMANDS:
        command: click.Command = importlib.import_module(f"kfast.cli.{name}").command
        yield f"kfast {name}", _help(command, f"kfast {name}")
        if isinstance(command, Command):
            for word, below in command.subcommands.items():
                yield f"kfast {name} {word}", _help(below, f"kfast {name} {word}")


def _help(command: click.Command, name: str) -> str:
    with click.Context(command, info_name=name, terminal_width=90, max_content_width=90) as ctx:
        return command.get_help(ctx)


# --- errors and exit codes ------------------------------------------------------------------------


def _public_errors() -> dict[str, object]:
    """Return what `kfast.errors` has, with the classes that are made when they are asked for."""
    return {name: getattr(errors, name) for name in dir(errors)}


def error_classes() -> dict[str, type[errors.KafkaError]]:
    """Return every class of error by its own name."""
    return {
        value.__name__: value
        for value in _public_errors().values()
        if isinstance(value, type) and issubclass(value, errors.KafkaError)
    }


def other_names(error: type[errors.KafkaError]) -> list[str]:
    """Return the names that a class has in kafka-python."""
    names = {name for name, value in _public_errors().items() if value is error}
    return sorted(names - {error.__name__})


def error_page(name: str, error: type[errors.KafkaError]) -> str:
    """Return the page of one class."""
    exit_status = exit_code(error())
    lines = [f"# {name}\n", f"{inspect.cleandoc(error.__doc__ or '').splitlines()[0]}\n"]
    bases = [base.__name__ for base in error.__mro__[1:] if issubclass(base, errors.KafkaError)]
    if bases:
        lines.append("- Is a " + ", ".join(f"[{base}]({base}.md)" for base in bases))
    again = "the same call may succeed later" if error.retriable else "trying again does not help"
    lines.append(f"- `retriable`: {error.retriable}: {again}")
    codes = [row for row in errors.ERROR_TABLE.values() if row.exception is error]
    lines += [f"- Kafka's error {row.name} ({row.code})" for row in codes]
    lines.append(f"- Exit code of `kfast`: [{exit_status}](../exit-codes/{exit_status}.md)")
    if others := other_names(error):
        lines.append(f"- In kafka-python: {', '.join(f'`{each}`' for each in others)}")
    if error.hint:
        lines.append(f"\nWhat to do: {_plain(error.hint)}")
    return "\n".join(lines) + "\n"


def errors_index(classes: Mapping[str, type[errors.KafkaError]]) -> str:
    """Return the page that has a line for each class."""
    lines = [
        "# Errors\n",
        "Every exception of kfast is a `KafkaError`; the classes are in `kfast.errors`. A message "
        "says what failed, then the cause, what was found, and what to do; `.retriable`, `.topic`, "
        "`.partition`, `.offset` and `.hint` carry the same for programs.\n",
        "| class | what it says |",
        "|---|---|",
    ]
    for name, error in sorted(classes.items()):
        summary = inspect.cleandoc(error.__doc__ or "").splitlines()[0]
        lines.append(f"| [{name}]({name}.md) | {_plain(summary)} |")
    return "\n".join(lines) + "\n"


def exit_page(code: int, classes: Mapping[str, type[errors.KafkaError]]) -> str:
    """Return the page of one exit code."""
    lines = [f"# Exit code {code}\n", f"{EXIT_CODES[code][:1].upper()}{EXIT_CODES[code][1:]}.\n"]
    # Failures of no kind of their own have code 1: a list of them would say nothing.
    mine = sorted(name for name, each in classes.items() if code > 1 and exit_code(each()) == code)
    if mine:
        lines.append("Errors that end a command with it:\n")
        lines += [f"- [{name}](../errors/{name}.md)" for name in mine]
    return "\n".join(lines) + "\n"


def exits_index() -> str:
    """Return the page that has a line for each exit code."""
    lines = ["# Exit codes\n", "| code | meaning |", "|---:|---|"]
    lines += [f"| [{code}]({code}.md) | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write()
