"""Optional packages, imported when a call first needs one.

Owns the names of kfast's extras, for the error about a missing package. Any thread.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Final

from kfast.errors import MissingDependencyError

_EXTRAS: Final = {
    "pyarrow": "arrow",
    "pyspark": "spark",
    "cryptography": "tls",
    "gssapi": "gssapi",
    "confluent_kafka": "confluent",
    "aws_msk_iam_sasl_signer": "aws",
}


def optional_package(package: str, function: str) -> Any:
    """Import an optional package that ``function`` needs; raises MissingDependencyError."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise _missing(package, function) from error


def check_package(package: str, function: str) -> None:
    """Raise MissingDependencyError unless a package is there; it is not imported."""
    if importlib.util.find_spec(package) is None:
        raise _missing(package, function)


def _missing(package: str, function: str) -> MissingDependencyError:
    package = package.partition(".")[0]
    extra = _EXTRAS.get(package, package)
    return MissingDependencyError(
        f"{function} needs {package}", hint=f'pip install "kfast[{extra}]"'
    )
