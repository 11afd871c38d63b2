"""The version of the installed kfast."""

from __future__ import annotations


def installed_version() -> str | None:
    """Return the version; None for a source tree that was never installed."""
    # Here: it brings modules for e-mail, CSV and archives along, and is not always asked for.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        return version("kfast")
    except PackageNotFoundError:
        return None
