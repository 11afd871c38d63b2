"""Access to Delta tables through the ``deltalake`` package, which needs no jar.

Owns the import of the package, its options for object stores, made from those that kfast's own
files are written with, and the errors: whatever the package raises becomes a ``KafkaError`` with
the table's name.

Used by the process that publishes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from kfast._base.logs import get_logger
from kfast.errors import (
    ConfigurationError,
    KafkaError,
    MissingDependencyError,
    StorageError,
    TableError,
)
from kfast.table.fsspec_store import FsspecStore
from kfast.table.location import is_local, scheme_of
from kfast.table.store import TableStore

logger = get_logger(__name__)

_SCHEMES: Final = {"gcs": "gs"}
"""Schemes of fsspec that deltalake spells in another way."""

_NOT_IN_PATHS: Final = ("%", "\\")
"""Of local folders: the package decodes what looks like an escape, and turns backslashes."""

_S3: Final = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "endpoint_url": "AWS_ENDPOINT_URL",
    "anon": "AWS_SKIP_SIGNATURE",
}
_GCS: Final = {"token": "GOOGLE_SERVICE_ACCOUNT", "endpoint_url": "GOOGLE_BASE_URL"}
_AZURE: Final = {
    "account_name": "AZURE_STORAGE_ACCOUNT_NAME",
    "account_key": "AZURE_STORAGE_ACCOUNT_KEY",
    "sas_token": "AZURE_STORAGE_SAS_TOKEN",
    "tenant_id": "AZURE_STORAGE_TENANT_ID",
    "client_id": "AZURE_STORAGE_CLIENT_ID",
    "client_secret": "AZURE_STORAGE_CLIENT_SECRET",
}
_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "s3": _S3,
    "s3a": _S3,
    "gs": _GCS,
    "gcs": _GCS,
    "abfs": _AZURE,
    "abfss": _AZURE,
    "az": _AZURE,
}
"""Names of deltalake's options by those of fsspec's filesystems, by scheme."""

_GCS_METHODS: Final = ("anon", "cloud", "google_default", "browser", "cache")
"""Values of gcsfs's ``token`` that are no file with a key."""
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_REGION: Final = "us-east-1"
"""For stores with an endpoint of their own, which have no regions but sign requests with one."""

_COLORS: Final = re.compile(r"\x1b\[[0-9;]*m")
_FRAMES: Final = re.compile("[\u2500-\u257f\u21b3]")
_LONGEST: Final = 600
"""Of a cause: the package's errors of object stores fill a screen."""


def import_deltalake() -> Any:
    """Import the package, with its module of transactions."""
    try:
        import deltalake  # noqa: PLC0415 - optional
        import deltalake.transaction  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError(
            "--format delta needs deltalake", hint='pip install "kfast[delta]"'
        ) from error
    return deltalake


def delta_url(store: TableStore) -> str:
    """The URL of a table's folder, as deltalake spells it.

    Raises ``ConfigurationError`` for a store that deltalake has not.
    """
    if is_local(store.url):
        for mark in _NOT_IN_PATHS:
            if mark in store.url:
                raise ConfigurationError(
                    f"{store.url} cannot be a Delta table",
                    cause=f"deltalake may take another folder for it, because of the {mark}",
                    hint="write to a folder with another name",
                )
        return store.url
    scheme = scheme_of(store.url)
    if scheme not in _OPTIONS:
        raise ConfigurationError(
            f"{store.url} cannot be a Delta table",
            cause=f"deltalake does not read {scheme}://",
            hint=f"use a local folder, or one of {', '.join(_OPTIONS)}",
        )
    return _SCHEMES.get(scheme, scheme) + store.url[len(scheme) :]


def delta_options(store: TableStore) -> dict[str, str]:
    """The options of deltalake's object store for those of a table's store.

    What is not given is looked up by the package itself, in the environment and in profiles.
    """
    if not isinstance(store, FsspecStore):
        return {}
    names = _OPTIONS.get(scheme_of(store.url), {})
    options: dict[str, str] = {}
    for name, value in store.options.items():
        if name in names:
            options[names[name]] = value
        else:
            logger.debug("the option %s of %s is not for its Delta log", name, store.url)
    if options.get("GOOGLE_SERVICE_ACCOUNT") in _GCS_METHODS:
        method = options.pop("GOOGLE_SERVICE_ACCOUNT")
        options.update({"GOOGLE_SKIP_SIGNATURE": "true"} if method == "anon" else {})
    if names is _S3:
        options.update(_endpoint_options(options))
    return options


def _endpoint_options(options: Mapping[str, str]) -> dict[str, str]:
    """What deltalake needs besides the endpoint of a store of S3's interface."""
    endpoint = options.get("AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT_URL", ""))
    more = {}
    if endpoint and not any(os.environ.get(name) for name in _REGIONS):
        more["AWS_REGION"] = _REGION
    if endpoint.startswith("http:"):
        more["AWS_ALLOW_HTTP"] = "true"
    return more


@contextmanager
def delta_errors(failure: str) -> Iterator[None]:
    """Raise a ``KafkaError`` for what deltalake raises; ``failure`` says what could not be done."""
    try:
        yield
    except KafkaError:
        raise
    except OSError as error:
        raise StorageError(
            failure,
            cause=plain_text(error),
            hint="check the folder, and for an object store its credentials; then start again",
        ) from error
    except Exception as error:
        raise TableError(
            failure,
            cause=plain_text(error),
            hint="check that other clients of Delta can read the table; then start again",
        ) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of the package's Rust
            raise
        raise TableError(
            failure, cause=plain_text(error), hint="upgrade deltalake, and start again"
        ) from error


def plain_text(error: BaseException) -> str:
    """The text of an error on one line, without colors and frames."""
    text = " ".join(_FRAMES.sub(" ", _COLORS.sub("", str(error))).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
