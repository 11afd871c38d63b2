"""``kfast _complete -- WORD...``: what the last of some words may become, one per line.

The other words come before it on the command line. Topics and groups are asked of the cluster that
the options and the user's files name, for two seconds at most, and kept for a minute in a file that
only the user reads; whatever fails, there are no candidates and no message.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from kfast.cli.commands import COMMANDS, command_of
from kfast.cli.options import Common, Words, common_options

TIMEOUT_MS: Final = 1_500
KEPT_S: Final = 60.0
_PLAIN: Final = re.compile(r"[\w.:/@%+,=-]+")
"""Names that every shell takes as they are; others are not proposed."""
_FILE: Final = "completion.json"
_MOST_KEPT: Final = 20


def complete(words: Sequence[str]) -> None:
    """Print the candidates for the last word; nothing if anything fails."""
    completions: Iterable[str] = ()
    with contextlib.suppress(Exception):
        completions = candidates([*words] or [""])
    sys.stdout.write("".join(f"{candidate}\n" for candidate in completions))


def candidates(words: Sequence[str]) -> list[str]:
    """Return the candidates for the last word, sorted."""
    *before, last = words
    line = _Line(before)
    if line.is_literal:  # behind --
        return _starting(last, line.arguments(last))
    if line.awaited is not None:
        return _starting(last, line.values(line.awaited, last))
    if last.startswith("--") and "=" in last:
        name, _, value = last.partition("=")
        option = line.options.get(name)
        if option is None:
            return []
        return [f"{name}={candidate}" for candidate in _starting(value, line.values(option, value))]
    if last.startswith("-"):
        return _starting(last, line.options)
    return _starting(last, line.arguments(last))


def _starting(prefix: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in {*names} if name.startswith(prefix) and _PLAIN.fullmatch(name))


class _Line:
    """The words before the one to complete: the command, its options, and what was given."""

    def __init__(self, words: Sequence[str]) -> None:
        self.command: click.Command | None = None
        self.common = Common(is_quiet=True, timeout_ms=TIMEOUT_MS)
        self.awaited: click.Option | None = None
        """The option whose value comes next."""
        self.is_literal = False
        self.count = 0
        """How many arguments there were behind the command."""
        self.options = _named(common_options())
        self._is_unknown = False
        for word in words:
            self._next(word)

    def _next(self, word: str) -> None:
        if self.is_literal:
            self.count += 1
        elif self.awaited is not None:
            self._take(self.awaited, word)
            self.awaited = None
        elif word == "--":
            self.is_literal = True
        elif word.startswith("-") and word != "-":
            self._option(word)
        elif self.command is None:
            self.command = None if self._is_unknown else command_of(word)
            self._is_unknown = self.command is None
            if self.command is not None:
                self.options = _named(self.command.params)
        elif self.count == 0 and word in self._subcommands():
            self.command = self._subcommands()[word]
            self.options = _named(self.command.params)
        else:
            self.count += 1

    def _subcommands(self) -> dict[str, click.Command]:
        return getattr(self.command, "subcommands", {})

    def _option(self, word: str) -> None:
        name, sign, value = word.partition("=")
        if not word.startswith("--") and word not in self.options:
            name, sign, value = word[:2], word[2:], word[2:]
        option = self.options.get(name)
        if option is None or option.is_flag or option.count:
            return
        if sign:
            self._take(option, value)
        else:
            self.awaited = option

    def _take(self, option: click.Option, value: str) -> None:
        """Note what says which cluster is meant."""
        if option.name == "settings":
            self.common.settings.append(value)
        elif option.name in {"servers", "file", "profile"}:
            setattr(self.common, option.name, value)

    # --- candidates -------------------------------------------------------------------------------

    def arguments(self, word: str) -> Iterable[str]:
        """Return commands, subcommands, topics or groups, whatever comes next."""
        if self.command is None:
            return () if self._is_unknown else COMMANDS
        subcommands = [] if self.count or self.is_literal else [*self._subcommands()]
        if word and any(name.startswith(word) for name in subcommands):
            return subcommands
        names = [param for param in self.command.params if isinstance(param, click.Argument)]
        if not names:
            return subcommands
        param = names[min(self.count, len(names) - 1)]
        if self.count >= len(names) and names[-1].nargs == 1:
            return []
        return [*subcommands, *self._values_of(param)]

    def values(self, option: click.Option, value: str) -> Iterable[str]:
        """Return values of an option, the last one of a list."""
        if option.name == "settings":
            return _settings()
        if option.name == "profile":
            return _profiles(self.common)
        if option.name == "columns":
            from kfast.cli.formats import COLUMNS  # noqa: PLC0415 - for this option only

            head, comma, _ = value.rpartition(",")
            return [f"{head}{comma}{column}" for column in COLUMNS]
        return self._values_of(option)

    def _values_of(self, param: click.Parameter) -> Iterable[str]:
        kind = param.type
        if isinstance(kind, Words):
            return kind.words
        if isinstance(kind, click.Choice):
            return [str(choice) for choice in kind.choices]
        if param.name in {"topic", "topics"}:
            return _kept(self.common, "topics", _topics)
        if param.name in {"group", "groups"}:
            return _kept(self.common, "groups", _groups)
        return ()


def _named(params: Iterable[click.Parameter]) -> dict[str, click.Option]:
    return {
        name: param
        for param in params
        if isinstance(param, click.Option) and not param.hidden
        for name in param.opts
    } | {"--help": click.Option(["--help"], is_flag=True)}


def _settings() -> list[str]:
    from kfast.config import ConsumerConfig  # noqa: PLC0415 - for this option only

    return [f"{info.key}=" for info in ConsumerConfig.describe()]


def _profiles(common: Common) -> Iterable[str]:
    from kfast.settings.sources import profile_names  # noqa: PLC0415 - for this option only

    return profile_names(common.file)


# --- topics and groups ----------------------------------------------------------------------------


def _topics(common: Common) -> Iterable[str]:
    from kfast.cli.admin import admin_of  # noqa: PLC0415 - when nothing is kept

    with admin_of(common) as admin:
        return admin.topics()


def _groups(common: Common) -> Iterable[str]:
    from kfast.cli.admin import admin_of, is_consumer_group  # noqa: PLC0415 - as above

    with admin_of(common) as admin:
        return [name for name, group in admin.groups().items() if is_consumer_group(group)]


def _kept(common: Common, kind: str, ask: Callable[[Common], Iterable[str]]) -> list[str]:
    """Return names of a cluster, those that were found within the last minute if there are any."""
    entries = common.loaded().entries
    about = [
        str(entries[name].value)
        for name in ("bootstrap_servers", "sasl_username")
        if name in entries
    ]
    key = " ".join([kind, str(common.file), str(common.profile), *about])
    path = _cache_folder() / _FILE
    kept: dict[str, Any] = {}
    now = time.time()
    with contextlib.suppress(OSError, ValueError):
        read = json.loads(path.read_text(encoding="utf-8"))
        kept = {name: entry for name, entry in read.items() if 0 <= now - entry["time"] < KEPT_S}
    if key in kept:
        return [str(name) for name in kept[key]["names"]]
    names = sorted(ask(common))
    kept = dict([*kept.items()][-_MOST_KEPT:]) | {key: {"time": now, "names": names}}
    with contextlib.suppress(OSError):
        _write(path, json.dumps(kept))
    return names


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kfast"


def _write(path: Path, text: str) -> None:
    """Replace a file by one that only the user reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:  # mode 0600
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
