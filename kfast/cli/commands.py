"""The table of commands, which are imported when they are called."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click

COMMANDS: Final = {
    "read": "write the records of topics to a file or to standard output",
    "topics": "list topics, their partitions and offsets",
    "groups": "list consumer groups and their members, change committed offsets",
    "doctor": "check settings, connections, every broker, a topic and a group",
    "lag": "list how far consumer groups are behind",
    "schema": "print the schema of a topic's values, or those in a registry",
    "ingest": "write topics to a table of files, each record exactly once",
    "config": "show and list settings, choose and import profiles",
    "demo": "show kfast offline, on a local Kafka, or on a topic of yours",
    "bench": "read the same records with kfast and with other clients",
    "completion": "print the script with which a shell completes words of kfast",
    "local": "run an Apache Kafka on this machine until Ctrl-C",
}
"""Each is ``kfast.cli.NAME.command``."""
ALIASES: Final = {"consume": "read", "cat": "read"}


def command_of(name: str) -> click.Command | None:
    """Import and return a command by its name or alias; None if there is none."""
    name = ALIASES.get(name, name)
    if name not in COMMANDS:
        return None
    command: click.Command = importlib.import_module(f"kfast.cli.{name}").command
    return command
