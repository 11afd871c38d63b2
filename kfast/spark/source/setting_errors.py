"""Errors of a consumer's settings in the words of a query: options that begin with ``kafka.``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kfast.errors import ConfigurationError


def as_option_error(error: ConfigurationError, settings: Iterable[str]) -> ConfigurationError:
    """Return the error of a consumer's configuration with the names of options."""
    names = "|".join(re.escape(name) for name in sorted(settings, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w.])(?:{names})(?![\w.])")

    def renamed(text: str | None) -> str | None:
        return None if text is None else pattern.sub(lambda match: f"kafka.{match[0]}", text)

    return ConfigurationError(
        f"option kafka.*: {renamed(error.message)}",
        cause=renamed(error.cause),
        found=renamed(error.found),
        hint=renamed(error.hint),
    )
