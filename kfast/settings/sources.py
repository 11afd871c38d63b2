"""Where settings come from: options, files, profiles and the environment, in one order.

The first place that has a setting wins, whatever it is called there:

1. what the caller gives (options of a command)
2. the file that the caller names, then the profile that the caller names
3. ``KFAST_<KEY>`` in the environment, then ``KAFKA_BOOTSTRAP_SERVERS`` and ``SCHEMA_REGISTRY_URL``
4. the user's file, ``$KFAST_CONFIG`` or ``$XDG_CONFIG_HOME/kfast/config.toml``: the profile
   ``$KFAST_PROFILE`` or ``current``, then what stands outside of profiles
5. if 4 has nothing, ``$KCAT_CONFIG`` or ``~/.config/kcat.conf``
6. ``bootstrap.servers``: ``localhost:9092``

A profile that the caller names is used in place of ``current``, so that the credentials of one
cluster never go to another. No file of the current folder is read unless it is named. What is
secret is a `Secret` from the moment it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kfast.errors import ConfigNotFoundError, ConfigurationError, did_you_mean
from kfast.settings.files import Entry, SettingsFile, read_settings_file, read_text, shown_path
from kfast.settings.names import (
    ALIASES,
    REGISTRY_PREFIXES,
    SETTINGS,
    find,
    is_foreign,
    keyword,
    parse,
    setting_of,
)
from kfast.settings.secret import Secret
from kfast.settings.table import FILE_SETTINGS

DEFAULT_SERVERS: Final = "localhost:9092"
DEFAULT_ORIGIN: Final = "default"
PREFIX: Final = "KFAST_"

_OWN_VARIABLES: Final = frozenset({"KFAST_CONFIG", "KFAST_ERRORS", "KFAST_PROFILE"})
_OTHER_VARIABLES: Final = {
    "KAFKA_BOOTSTRAP_SERVERS": "bootstrap.servers",
    "SCHEMA_REGISTRY_URL": "schema.registry.url",
}
_USER, _PASSWORD, _MECHANISM = "sasl_plain_username", "sasl_plain_password", "sasl_mechanism"
_VARIABLE: Final = "env:"


@dataclass(frozen=True, slots=True)
class Loaded:
    """All settings that were found, each with its origin."""

    entries: Mapping[str, Entry]
    """By keyword."""
    registry: Mapping[str, Entry] = field(default_factory=dict)
    """Settings of a schema registry, by name with ``_``; every text is a `Secret`."""
    notes: tuple[str, ...] = ()
    """What the user should know: keys that were ignored, files that others can read."""
    left_alone: tuple[str, ...] = ()
    """Variables that begin with ``KFAST_`` and are no settings."""

    def config(self) -> dict[str, object]:
        """Return the settings as `kfast.ConsumerConfig` takes them; secrets are `Secret`."""
        return {entry.key: entry.value for entry in self.entries.values()}


def load_config(
    file: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    environment: bool = True,
) -> dict[str, object]:
    """Return the settings that the command line would use, for ``KafkaConsumer(config=...)``.

    Parameters
    ----------
    file : path, optional
        A Java ``.properties`` file, one of kcat or librdkafka, ``.toml`` or ``.json``.
    profile : str, optional
        A profile of that file, or of the user's ``~/.config/kfast/config.toml``.
    environment : bool
        Whether variables (``KFAST_<KEY>``, ``KAFKA_BOOTSTRAP_SERVERS``) and the user's own files
        are read, too. False: only what `file` and `profile` name.

    Returns
    -------
    dict
        Values by the names that they were found under. Secrets are hidden in its ``repr``.

    Raises
    ------
    ConfigNotFoundError
        There is no such file or profile.
    ConfigurationError
        A name or value is not allowed; the message has file and line.

    Examples
    --------
    >>> consumer = kfast.KafkaConsumer("orders", config=kfast.load_config())
    """
    return load(file, profile, environment).config()


def profile_names(file: str | os.PathLike[str] | None = None) -> list[str]:
    """Return the profiles of a file, else those of the user's own."""
    settings_file = _own_file(os.environ) if file is None else read_settings_file(file)
    return [] if settings_file is None else sorted(settings_file.profiles)


def load(
    file: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    environment: bool = True,
    *,
    options: Sequence[Entry] = (),
    variables: Mapping[str, str] | None = None,
) -> Loaded:
    """Return all settings with their origins; ``variables`` is the environment to use."""
    variables = os.environ if variables is None else variables
    named = None if file is None else read_settings_file(file)
    profile_name = profile if profile is not None or named is None else named.current
    of_named = (
        named is not None
        and profile_name is not None
        and (profile is None or profile_name in named.profiles)
    )
    own = _own_file(variables) if environment or (profile is not None and not of_named) else None
    files = _Files()
    levels: list[Sequence[Entry]] = [options]
    if named is not None:
        if of_named:
            levels.append(
                files.use(named, _profile(named, profile or named.current or "", variables))
            )
        levels.append(files.use(named, named.entries))
    if profile is not None and not of_named:
        levels.append(files.use(own, _profile(own or named, profile, variables)))
    left_alone: list[str] = []
    if environment:
        levels += _from_variables(variables, left_alone)
        if profile is None and not of_named:
            ambient = variables.get("KFAST_PROFILE") or (None if own is None else own.current)
            if ambient:
                levels.append(files.use(own, _profile(own, ambient, variables)))
        levels.append(files.use(own, () if own is None else own.entries))
        if own is None or own.name not in files.used:
            other = _kcat_file(variables)
            levels.append(files.use(other, () if other is None else other.entries))
        levels.append([Entry.of("bootstrap.servers", DEFAULT_SERVERS, DEFAULT_ORIGIN)])
    merged = _Merge(variables)
    for number, level in enumerate(levels):
        merged.add(level, is_file=number > 0)
    return Loaded(
        merged.finished(),
        merged.registry,
        (*merged.notes(), *files.notes()),
        tuple(sorted(left_alone)),
    )


# --- places ---------------------------------------------------------------------------------------


class _Files:
    """The files that settings were taken from."""

    def __init__(self) -> None:
        self.used: dict[str, SettingsFile] = {}
        self._secrets: dict[str, list[str]] = {}

    def use(self, file: SettingsFile | None, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return the entries of a file, noting whether they have secrets in plain text."""
        if file is not None and entries:
            self.used[file.name] = file
            for entry in entries:
                row = setting_of(entry.key)
                if row is not None and row.is_secret and not is_reference(entry.value):
                    self._secrets.setdefault(file.name, []).append(entry.key)
        return entries

    def notes(self) -> Iterable[str]:
        for name, keys in self._secrets.items():
            if self.used[name].is_readable_by_others:
                yield f"{name} has {', '.join(keys)} and others can read it; try: chmod 600 {name}"


def user_file_path(variables: Mapping[str, str]) -> Path:
    """Return the path of the user's file of settings and profiles; it may not be there."""
    if variables.get("KFAST_CONFIG"):
        return Path(variables["KFAST_CONFIG"])
    base = variables.get("XDG_CONFIG_HOME") or ""
    return (Path(base) if os.path.isabs(base) else Path.home() / ".config") / "kfast/config.toml"


def _own_file(variables: Mapping[str, str]) -> SettingsFile | None:
    path = user_file_path(variables)
    if variables.get("KFAST_CONFIG"):
        return _named_by(path, "KFAST_CONFIG")
    return read_settings_file(path) if path.exists() else None


def _kcat_file(variables: Mapping[str, str]) -> SettingsFile | None:
    if variables.get("KCAT_CONFIG"):
        return _named_by(Path(variables["KCAT_CONFIG"]), "KCAT_CONFIG")
    path = Path.home() / ".config/kcat.conf"
    return read_settings_file(path) if path.exists() else None


def _named_by(path: Path, variable: str) -> SettingsFile:
    try:
        return read_settings_file(path)
    except ConfigNotFoundError as error:
        raise ConfigNotFoundError(
            f"{error.message} (env {variable})", hint=f"unset {variable}, or make the file"
        ) from None


def _profile(file: SettingsFile | None, name: str, variables: Mapping[str, str]) -> Sequence[Entry]:
    if file is None:
        raise ConfigNotFoundError(
            f'no profile "{name}": there is no {shown_path(user_file_path(variables))}',
            hint=f"kfast config import FILE --name {name}",
        )
    if name not in file.profiles:
        near = did_you_mean(name, file.profiles)
        names = ", ".join(sorted(file.profiles)) or "it has none"
        raise ConfigNotFoundError(
            f'no profile "{name}" in {file.name}',
            found=names,
            hint=f"did you mean {near}?" if near else "kfast config profiles",
        )
    return file.profiles[name]


def _from_variables(
    variables: Mapping[str, str], left_alone: list[str]
) -> tuple[list[Entry], list[Entry]]:
    ours: list[Entry] = []
    for variable, value in sorted(variables.items()):
        if not variable.startswith(PREFIX) or variable in _OWN_VARIABLES:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name in SETTINGS or name in ALIASES or name.startswith(REGISTRY_PREFIXES):
            ours.append(Entry.of(name.replace("_", "."), value, f"env {variable}"))
        else:
            left_alone.append(variable)
    others = [
        Entry.of(key, variables[variable], f"env {variable}")
        for variable, key in _OTHER_VARIABLES.items()
        if variables.get(variable)
    ]
    return ours, others


# --- values ---------------------------------------------------------------------------------------


class _Merge:
    """Takes the settings of one place after the other; what is there already stays."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._given: dict[str, Entry] = {}
        self.registry: dict[str, Entry] = {}
        self._ignored: dict[str, list[str]] = {}

    def add(self, entries: Sequence[Entry], *, is_file: bool) -> None:
        """Take the settings of one place; keys of other clients are ignored in a file."""
        here: dict[str, Entry] = {}
        for entry in entries:
            name = keyword(entry.key)
            if name.startswith(REGISTRY_PREFIXES):
                self.registry.setdefault(name, resolved(entry, self._variables))
                if is_file:
                    continue
            if is_file and is_foreign(name):
                place, _, line = entry.origin.rpartition(":")
                if place or not entry.origin.startswith("env "):
                    self._ignored.setdefault(place or line, []).append(entry.key)
                continue
            row, _ = find(entry.key, entry.value, entry.origin)
            if row.name in self._given:
                continue
            if row.is_secret or row.name in FILE_SETTINGS:
                entry = resolved(entry, self._variables)
            value = _value(entry)
            if row.name in here and value != _value(here[row.name]):
                earlier = here[row.name]
                raise ConfigurationError(
                    f"{earlier.key} ({earlier.origin}) and {entry.key} ({entry.origin}) are the "
                    "same setting, given two values",
                    hint=f"give {entry.key} once",
                )
            here[row.name] = entry
        self._expand_jaas(here)
        self._given = self._given | {
            name: entry for name, entry in here.items() if name not in self._given
        }

    def finished(self) -> dict[str, Entry]:
        """Return all settings by keyword, in the table's order."""
        return {name: self._given[name] for name in SETTINGS if name in self._given}

    def notes(self) -> Iterable[str]:
        for place, keys in self._ignored.items():
            yield f"{place}: ignored, for other clients: {', '.join(keys)}"

    def _expand_jaas(self, here: dict[str, Entry]) -> None:
        """Put user and password in the place of a JAAS line that has nothing else.

        So another place can give one of them anew, such as a password in the environment.
        """
        line = here.get("sasl_jaas_config")
        if line is None or not isinstance(line.value, Secret) or {_USER, _PASSWORD} & {*here}:
            return
        from kfast.settings.jaas import read_jaas  # noqa: PLC0415 - for files of Java clients

        try:
            login = read_jaas(line.value)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{error.message} ({line.origin})", cause=error.cause, hint=error.hint
            ) from None
        mechanism = here.get(_MECHANISM, self._given.get(_MECHANISM))
        chosen = login.mechanism if mechanism is None else str(_value(mechanism))
        fits = chosen == "PLAIN" or chosen.startswith("SCRAM-")
        if not fits or not chosen.startswith(login.mechanism):
            return
        if not set(login.values) <= {_USER, _PASSWORD}:
            return
        del here["sasl_jaas_config"]
        if mechanism is None:
            here[_MECHANISM] = replace(line, key="sasl.mechanism", value=login.mechanism)
        for name, key in ((_USER, "sasl.username"), (_PASSWORD, "sasl.password")):
            if name in login.values:
                value = login.values[name]
                here[name] = Entry.of(
                    key, value if SETTINGS[name].is_secret else value.reveal(), line.origin
                )


def resolved(entry: Entry, variables: Mapping[str, str]) -> Entry:
    """Return the entry with what ``env:NAME`` or ``@FILE`` stands for."""
    text = _text(entry.value)
    if text is None or not is_reference(entry.value):
        return entry
    for escaped, plain in (("env::", "env:"), ("@@", "@")):
        if text.startswith(escaped):
            return Entry.of(entry.key, plain + text.removeprefix(escaped), entry.origin)
    if text.startswith("@"):
        return Entry.of(entry.key, _file_content(entry, text[1:]), entry.origin)
    variable = text.removeprefix(_VARIABLE)
    if variable not in variables:
        raise ConfigurationError(
            f"{entry.key} ({entry.origin}): the variable {variable} is not set",
            hint=f"export {variable}=...",
        )
    return Entry.of(entry.key, variables[variable], entry.origin)


def _value(entry: Entry) -> object:
    row, raw = find(entry.key, entry.value, entry.origin)
    value: object = parse(row, entry.key, raw, entry.origin)
    return value


def _text(value: object) -> str | None:
    source = value.source if isinstance(value, Secret) else value
    return source if isinstance(source, str) else None


def is_reference(value: object) -> bool:
    """Return whether a value is ``env:NAME`` or ``@FILE``, or an escaped one."""
    text = _text(value)
    return text is not None and text.startswith((_VARIABLE, "@"))


def _file_content(entry: Entry, name: str) -> str:
    """Read a file without its last line end; its name may be a password by mistake."""
    problem = "it is empty"
    try:
        text, _ = read_text(entry.folder / Path(name).expanduser())
        text = text.removesuffix("\n").removesuffix("\r")
        if text:
            return text
    except OSError as error:
        problem = error.strerror or "it cannot be read"
    except ValueError as error:
        problem = str(error)
    raise ConfigurationError(
        f"{entry.key} ({entry.origin}): the file that @ names cannot be used: {problem}",
        hint="write @FILE with the path of a file, or @@ for a value that begins with @",
    )
