"""Options of an ingest's command line, and of the file that it names.

Owns how a secret stays out of the list of processes, which every user of a machine may see: a value
may be ``env:NAME`` or ``@FILE``, as in the settings of ``kfast``, or stand in a file of options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from kfast.settings.files import Entry, read_settings_file
from kfast.settings.names import setting_of
from kfast.settings.secret import Secret
from kfast.settings.sources import is_reference, resolved
from kfast.settings.table import FILE_SETTINGS

_KAFKA: Final = "kafka."
_REGISTRY: Final = "schemaregistry."
_SECRET_NAMES: Final = re.compile(
    r"password|secret|token|credential|user\.info|connection_string|(?:^|_)key$", re.IGNORECASE
)
"""Of options that are no settings of a consumer: a registry's, and those of file systems."""


def source_options(
    options: Mapping[str, str], file: str | None, variables: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the options of ``--option`` and of a file, and what the user should know of them.

    Those of the command line take precedence.
    """
    given = _entries(options, "--option")
    names = {entry.key.lower() for entry in given}
    notes = _notes(given, "--option")
    if file is not None:
        found = read_settings_file(file)
        entries = [entry for entry in found.entries if entry.key.lower() not in names]
        if found.is_readable_by_others and any(map(_is_plain_secret, entries)):
            notes.append(f"{found.name} has secrets and others can read it; try: chmod 600 {file}")
        given += entries
    return _texts(given, variables), notes


def storage_options(
    options: Mapping[str, str], variables: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the options of ``--storage-option``, and what the user should know of them."""
    given = _entries(options, "--storage-option")
    return _texts(given, variables), _notes(given, "--storage-option")


def _entries(options: Mapping[str, str], origin: str) -> list[Entry]:
    return [Entry.of(key, value, origin) for key, value in options.items()]


def _texts(entries: Sequence[Entry], variables: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for entry in entries:
        value = resolved(entry, variables).value if _may_refer(entry) else entry.value
        found[entry.key] = str(value.reveal() if isinstance(value, Secret) else value)
    return found


def _may_refer(entry: Entry) -> bool:
    """Return whether a value may stand for what is in a variable or a file."""
    name = entry.key.lower()
    if entry.origin == "--storage-option" or name.startswith(_REGISTRY):
        return True
    row = setting_of(name.removeprefix(_KAFKA)) if name.startswith(_KAFKA) else None
    return row is not None and (row.is_secret or row.name in FILE_SETTINGS)


def _is_plain_secret(entry: Entry) -> bool:
    name = entry.key.lower()
    if name.startswith(_KAFKA):
        row = setting_of(name.removeprefix(_KAFKA))
        is_secret = row is not None and row.is_secret
    else:
        is_secret = _may_refer(entry) and _SECRET_NAMES.search(name) is not None
    return is_secret and not is_reference(entry.value)


def _notes(entries: Sequence[Entry], option: str) -> list[str]:
    names = [entry.key for entry in entries if _is_plain_secret(entry)]
    if not names:
        return []
    return [
        f"every user of this machine can see {', '.join(names)} in the list of processes; "
        f"try: {option} {names[0]}=env:NAME, or =@FILE"
    ]
