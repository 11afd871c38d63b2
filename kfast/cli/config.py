"""``kfast config``: settings and where they come from, and the profiles of the user's file.

Profiles are written into the user's file as text: comments and everything else stay. The new text
is read back before it is returned, and a file that is written in another way than these functions
know is refused.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from kfast._base.spelling import did_you_mean
from kfast.cli.common_settings import shown
from kfast.cli.options import Command, Common
from kfast.cli.rows import Row, format_option, write_object, write_rows
from kfast.config import ConsumerConfig
from kfast.errors import ConfigNotFoundError, ConfigurationError, MissingDependencyError
from kfast.settings.files import SettingsFile, read_settings_file, shown_path
from kfast.settings.names import is_foreign, keyword
from kfast.settings.secret import Secret
from kfast.settings.sources import load, user_file_path

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_HEADER: Final = re.compile(r"\s*\[")
_CURRENT: Final = re.compile(r"\s*current\s*=")


def with_current(text: str, name: str) -> str:
    """Return the text with ``current`` naming a profile."""
    lines = text.splitlines(keepends=True)
    line = f"current = {toml_value(name)}\n"
    for number, header in enumerate(lines):
        if _HEADER.match(header):
            break
        if _CURRENT.match(header):
            lines[number] = line
            return _checked(text, "".join(lines), lambda document: document.update(current=name))
    return _checked(text, line + text, lambda document: document.update(current=name))


def with_profile(text: str, name: str, settings: Mapping[str, object]) -> str:
    """Return the text with a profile at its end, in the place of one with that name."""
    lines = text.splitlines(keepends=True)
    header = f"[profiles.{toml_key(name)}]"
    kept, is_old = [], False
    for line in lines:
        if _HEADER.match(line):
            is_old = line.partition("#")[0].strip().replace(" ", "") == header
        if not is_old:
            kept.append(line)
    before = "".join(kept)
    if before and not before.endswith("\n"):
        before += "\n"
    new = "".join(f"{toml_key(key)} = {toml_value(value)}\n" for key, value in settings.items())

    def change(document: dict[str, Any]) -> None:
        document.setdefault("profiles", {})[name] = tomllib.loads(new)

    return _checked(text, f"{before}{chr(10) if before else ''}{header}\n{new}", change)


def toml_key(key: str) -> str:
    """Return a dotted key of a setting, or the name of a profile in quotes where it needs them."""
    if all(_BARE.fullmatch(word) for word in key.split(".")):
        return key
    return toml_value(key)


def toml_value(value: object) -> str:
    """Return text, a number or a bool in TOML."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return str(value)


def _checked(old: str, new: str, change: Any) -> str:
    expected = tomllib.loads(old)
    change(expected)
    try:
        is_same = tomllib.loads(new) == expected
    except tomllib.TOMLDecodeError:
        is_same = False
    if not is_same:
        raise ConfigurationError(
            "the file has profiles in a form that is not changed by a program",
            cause="profiles are changed only where they are tables of their own: [profiles.NAME]",
            hint="edit the file by hand",
        )
    return new


_SHOW_COLUMNS: Final = ("key", "value", "origin")
_LIST_COLUMNS: Final = ("key", "type", "default", "valid", "doc", "other_spellings")
_PROFILE_COLUMNS: Final = ("profile", "current", "servers")
_RPK_ENDINGS: Final = (".yaml", ".yml")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_NO_SETTING: Final = "no setting of kfast"


def _help() -> None:
    click.echo(click.get_current_context().get_help())


# --- settings -------------------------------------------------------------------------------------


def _show(common: Common, format: str) -> None:
    loaded = common.loaded()
    entries = {entry.key: entry for entry in sorted(loaded.entries.values(), key=lambda e: e.key)}
    if format in {"json", "jsonl"}:
        settings: dict[str, Any] = {
            key: {"value": shown(entry), "origin": entry.origin} for key, entry in entries.items()
        }
        write_object({"settings": settings, "left_alone": [*loaded.left_alone]}, format)
        return
    rows: list[Row] = [(key, _text(shown(entry)), entry.origin) for key, entry in entries.items()]
    rows += [(name, None, f"env, {_NO_SETTING}") for name in loaded.left_alone]
    write_rows(_SHOW_COLUMNS, rows, format)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _list(word: str | None, format: str) -> None:
    rows: list[Row] = []
    for info in ConsumerConfig.describe():
        spellings = [name.replace("_", ".") for name in info.aliases]
        if word is None or any(
            word.replace("_", ".").lower() in text.lower()
            for text in (info.key, *spellings, info.doc)
        ):
            rows.append((info.key, info.type, info.default, info.valid, info.doc, spellings))
    if not rows:
        keys = [info.key for info in ConsumerConfig.describe()]
        near = did_you_mean(word or "", keys)
        raise ConfigNotFoundError(
            f'no setting has "{word}" in its name or text',
            hint=f"did you mean {near}?" if near else "kfast config list",
        )
    write_rows(_LIST_COLUMNS, rows, format)


# --- profiles -------------------------------------------------------------------------------------


def _own_path() -> Path:
    path = user_file_path(os.environ)
    if path.suffix.lower() != ".toml":
        raise ConfigurationError(
            f"{shown_path(path)} has no profiles: it is no .toml", hint="unset KFAST_CONFIG"
        )
    return path


def _own_file() -> SettingsFile:
    path = _own_path()
    return read_settings_file(path) if path.exists() else SettingsFile(shown_path(path))


def _profiles(format: str) -> None:
    file = _own_file()
    current = os.environ.get("KFAST_PROFILE") or file.current
    rows: list[Row] = []
    for name in sorted(file.profiles):
        servers = load(profile=name).entries["bootstrap_servers"].value
        rows.append((name, name == current, _text(servers)))
    write_rows(_PROFILE_COLUMNS, rows, format)


def _use(name: str) -> None:
    file = _own_file()
    if name not in file.profiles:
        near = did_you_mean(name, file.profiles)
        raise ConfigNotFoundError(
            f'no profile "{name}" in {file.name}',
            found=", ".join(sorted(file.profiles)) or "it has none",
            hint=f"did you mean {near}?" if near else f"kfast config import FILE --name {name}",
        )
    path = _own_path()
    _write(path, with_current(path.read_text(encoding="utf-8"), name))


def _import(common: Common, source: str, name: str | None, force: bool) -> None:
    path, own = _own_path(), _own_file()
    if Path(source).suffix.lower() in _RPK_ENDINGS:
        rpk_name, settings = _rpk_settings(source)
        name = name or rpk_name
    else:
        settings = _file_settings(source)
        name = name or Path(source).stem
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f'"{name}" cannot be the name of a profile: letters, digits, _ and -',
            hint="--name NAME",
        )
    if name in own.profiles and not force:
        raise ConfigurationError(
            f'{own.name} has a profile "{name}"', hint="--force to replace it, or --name NAME"
        )
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    text = with_profile(text, name, settings)
    _write(path, with_current(text, name) if not own.profiles else text)
    if not common.is_quiet:
        click.echo(f'profile "{name}" is in {own.name}', err=True)


def _file_settings(file: str) -> dict[str, object]:
    """Return the settings in a file; those of other clients are left out."""
    load(file, environment=False)  # names and values are checked
    settings: dict[str, object] = {}
    for entry in read_settings_file(file).entries:
        if is_foreign(keyword(entry.key)):
            continue
        value = entry.value.source if isinstance(entry.value, Secret) else entry.value
        if isinstance(value, str) and value.startswith("@") and not value.startswith("@@"):
            value = f"@{(entry.folder / value[1:]).absolute()}"
        settings[entry.key] = value
    if not settings:
        raise ConfigurationError(f"{shown_path(file)} has no settings", hint=f"cat {file}")
    return settings


def _rpk_settings(file: str) -> tuple[str, dict[str, object]]:
    """Return name and settings of the current profile in a file of rpk's."""
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        raise MissingDependencyError(
            f"{shown_path(file)} needs PyYAML", hint="pip install pyyaml"
        ) from None
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigNotFoundError(
            f"cannot read {shown_path(file)}: {error.strerror}", hint=f"ls {file}"
        ) from None
    document: Any = None
    problem = "it has no profiles of rpk"
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        problem = "it is not YAML"
    profiles = document.get("profiles") if isinstance(document, dict) else None
    if not profiles or not isinstance(profiles, list) or not isinstance(profiles[0], dict):
        raise ConfigurationError(f"{shown_path(file)}: {problem}", hint="rpk profile print")
    current = document.get("current_profile")
    chosen = next((p for p in profiles if p.get("name") == current), profiles[0])
    return str(chosen.get("name", "rpk")), _of_rpk(chosen.get("kafka_api") or {})


def _of_rpk(api: Mapping[str, Any]) -> dict[str, object]:
    has_tls = api.get("tls") is not None  # an empty table switches it on
    tls, sasl = (dict[str, Any](api.get(name) or {}) for name in ("tls", "sasl"))
    settings: dict[str, object] = {"bootstrap.servers": ",".join(map(str, api.get("brokers", [])))}
    if has_tls or sasl:
        protocol = "SSL" if has_tls else "PLAINTEXT"
        settings["security.protocol"] = f"SASL_{protocol}" if sasl else protocol
    for key, name in (
        ("ca_file", "ssl.ca.location"),
        ("cert_file", "ssl.certificate.location"),
        ("key_file", "ssl.key.location"),
    ):
        if tls.get(key):
            settings[name] = str(tls[key])
    for key, name in (
        ("mechanism", "sasl.mechanism"),
        ("user", "sasl.username"),
        ("password", "sasl.password"),
    ):
        if sasl.get(key):
            settings[name] = str(sasl[key])
    return settings


def _write(path: Path, text: str) -> None:
    """Replace the file as a whole; a new one is for its owner only."""
    tomllib.loads(text)
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    number, name = tempfile.mkstemp(dir=target.parent, prefix=".kfast-")
    try:
        with open(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


# --- commands -------------------------------------------------------------------------------------

_SUBCOMMANDS: Final = {
    "show": Command(
        "show",
        callback=click.pass_obj(_show),
        help="Show the settings that commands use, and where each comes from. Secrets are ***.",
        params=[format_option()],
        examples=(
            "kfast config show",
            "kfast config show --profile prod",
            "kfast config show -f json",
        ),
    ),
    "list": Command(
        "list",
        callback=_list,
        help="List all settings, or those with a word in name, other spellings or text.",
        params=[click.Argument(["word"], required=False), format_option()],
        examples=("kfast config list", "kfast config list fetch", "kfast config list ssl -f json"),
    ),
    "profiles": Command(
        "profiles",
        callback=_profiles,
        help="List the profiles of the user's file.",
        params=[format_option()],
        examples=(
            "kfast config profiles",
            "kfast config profiles -f json",
            "kfast topics --profile prod",
        ),
    ),
    "use": Command(
        "use",
        callback=_use,
        help="Make a profile the one that commands use where none is named.",
        params=[click.Argument(["name"])],
        examples=(
            "kfast config use prod",
            "kfast config use dev && kfast topics",
            "kfast config profiles",
        ),
    ),
    "import": Command(
        "import",
        callback=click.pass_obj(_import),
        help="Make a profile from a Java .properties file, or one of kcat or rpk.",
        params=[
            click.Argument(["source"], metavar="FILE"),
            click.Option(["--name"], help="name of the profile (default: that of the file)"),
            click.Option(["--force"], is_flag=True, help="replace a profile of that name"),
        ],
        examples=(
            "kfast config import client.properties --name prod",
            "kfast config import ~/.config/kcat.conf --name dev --force",
            "kfast config import ~/.config/rpk/rpk.yaml",
        ),
    ),
}

command = Command(
    "config",
    callback=_help,
    help="Settings and profiles: show, list [WORD], profiles, use NAME, import FILE.",
    examples=(
        "kfast config show",
        "kfast config list timeout",
        "kfast config import client.properties",
    ),
    subcommands=_SUBCOMMANDS,
)
