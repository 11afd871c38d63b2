"""The version of the installed kfast."""

from __future__ import annotations

import os
import sys

from kfast._base.signals import is_of_signal_handler

_PREFIX, _SUFFIX = "kfast-", ".dist-info"


def installed_version() -> str | None:
    """Return the version; None for a source tree that was never installed."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError as error:
            if is_of_signal_handler(error):
                raise
            continue
        for name in names:
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
                return name[len(_PREFIX) : -len(_SUFFIX)]
    # Found otherwise; but that brings modules for e-mail, CSV and archives along.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        return version("kfast")
    except (PackageNotFoundError, OSError):  # or as many files are open as there may be
        return None
