"""Errors of schemas that cannot be used: each names the place in the schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kfast._base.spelling import did_you_mean
from kfast.errors import ConfigurationError

MAX_NESTING: Final = 64
"""Levels of structs, lists and maps in one schema."""


def refusal(path: str, reason: str, hint: str | None = None) -> ConfigurationError:
    """Return the error for one place of a schema; the path of the root is empty."""
    where = f'schema, "{path}"' if path else "schema"
    return ConfigurationError(f"{where}: {reason}", hint=hint)


def unknown_name(path: str, kind: str, name: str, choices: Iterable[str]) -> ConfigurationError:
    """Return the error for a name that is none of the known ones, with the nearest of them."""
    names = list(choices)
    nearest = did_you_mean(name, names)
    asked = f'; did you mean "{nearest}"?' if nearest else ""
    hint = f'write "{nearest}"' if nearest else f"use one of: {', '.join(names)}"
    return refusal(path, f'unknown {kind} "{name}"{asked}', hint)


def check_name(path: str, name: str) -> None:
    """Refuse a name, or a key of a document, that is no text.

    Raises
    ------
    ConfigurationError
        It has half of a surrogate pair, which UTF-8 has not.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        raise refusal(path, f"{name!r} is no text that UTF-8 has") from None


def check_nesting(path: str, depth: int) -> None:
    """Refuse a schema with more than `MAX_NESTING` levels.

    Raises
    ------
    ConfigurationError
        There are more, or the schema contains itself.
    """
    if depth > MAX_NESTING:
        shown = path if len(path) <= 60 else f"{path[:60]}..."
        raise refusal(
            shown,
            f"more than {MAX_NESTING} levels, or a type that contains itself",
            'write "raw" for a part that has no fixed depth',
        )
