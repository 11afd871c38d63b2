"""Names of a module that are imported from their homes when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(module: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a module; ``homes`` has the module that each name is from.

    It is not for type checkers, which would take every misspelt name for one of these.
    """

    def getattribute(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[module], name, value)  # the next use does not come here
        return value

    return getattribute
