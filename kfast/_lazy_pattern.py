"""Regular expressions that are compiled when they are first used.

Compiling one takes as long as importing a small module, and a process uses few of those that its
modules have. Any thread.
"""

from __future__ import annotations

import re
from typing import Any


class _LazyPattern:
    """Has the attributes of the ``re.Pattern`` that it makes."""

    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, value)
        return value


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return what ``re.compile`` returns, for a module's own patterns."""
    return _LazyPattern(text, flags)  # type: ignore[return-value]  # it has all that is used
