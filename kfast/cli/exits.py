"""Exit codes of ``kfast`` and the texts of its errors.

Owns the one table from classes of exceptions to codes. A text has the message in its first line,
behind ``kfast:``; with ``KFAST_ERRORS=json`` it is one JSON object instead. Nothing in it moves the
cursor of a terminal, whatever the name of a group or the answer of a server is.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

import kfast.errors as e
from kfast.cli.output import OutputError

if TYPE_CHECKING:
    import re

FAILED: Final = 1
USAGE: Final = 2
CONNECTION: Final = 3
SECURITY: Final = 4
NOT_THERE: Final = 5
DATA: Final = 6
OUTPUT: Final = 7
INTERRUPTED: Final = 130
ABOVE: Final = 8
"""The threshold of ``lag --fail-over`` is passed."""

EXIT_CODES: Final = {
    0: "done; also when the reader of the output went away, and after Ctrl-C that ends a follow",
    FAILED: "any other failure",
    USAGE: "a mistake in arguments or settings, or a package that is missing",
    CONNECTION: "no connection, or no answer in time: worth another try",
    SECURITY: "TLS, authentication or authorization",
    NOT_THERE: "a topic, partition, group, profile or file is not there",
    DATA: "data: an offset is gone or not there, a value cannot be read, a checksum is wrong",
    OUTPUT: "the output cannot be written: disk, permission, folder",
    ABOVE: "the threshold of lag --fail-over is passed",
    129: "ended by SIGHUP",
    INTERRUPTED: "ended by Ctrl-C",
    143: "ended by SIGTERM",
}
"""What each means, in a few words."""

_SETTING: Final = re.compile(r'\b([a-z]+(?:_[a-z0-9]+)+)(?:="?(\w+)"?)?')
"""A keyword of Python, perhaps with its value."""
_OPTIONS: Final = {"default_api_timeout_ms": "--timeout"}
"""Settings that are known by an option."""

_CODES: Final[dict[type[BaseException], int]] = {
    e.ConfigurationError: USAGE,
    e.MissingDependencyError: USAGE,
    e.InvalidTopicError: USAGE,
    e.InvalidGroupIdError: USAGE,
    e.InvalidRegularExpressionError: USAGE,
    e.RetriableError: CONNECTION,
    e.BrokerNotAvailableError: CONNECTION,
    e.AuthenticationError: SECURITY,
    e.AuthorizationError: SECURITY,
    e.TransactionalIdAuthorizationError: SECURITY,
    e.DelegationTokenAuthDisabledError: SECURITY,
    e.DelegationTokenAuthorizationError: SECURITY,
    e.DelegationTokenExpiredError: SECURITY,
    e.DelegationTokenNotFoundError: SECURITY,
    e.DelegationTokenOwnerMismatchError: SECURITY,
    e.DelegationTokenRequestNotAllowedError: SECURITY,
    e.SecurityDisabledError: SECURITY,
    e.UnacceptableCredentialError: SECURITY,
    e.PrincipalDeserializationFailureError: SECURITY,
    e.InvalidPrincipalTypeError: SECURITY,
    e.SchemaRegistryError: CONNECTION,
    e.SchemaRegistryAuthenticationError: SECURITY,
    e.UnknownTopicOrPartitionError: NOT_THERE,
    e.UnknownTopicIdError: NOT_THERE,
    e.GroupIdNotFoundError: NOT_THERE,
    e.ConfigNotFoundError: NOT_THERE,
    e.ResourceNotFoundError: NOT_THERE,
    e.TransactionalIdNotFoundError: NOT_THERE,
    e.CorruptRecordError: DATA,
    e.DeserializationError: DATA,
    e.InvalidRecordError: DATA,
    e.LogTruncationError: DATA,
    e.NoOffsetForPartitionError: DATA,
    e.OffsetMovedToTieredStorageError: DATA,
    e.OffsetOutOfRangeError: DATA,
    e.PositionOutOfRangeError: DATA,
    e.RecordTooLargeError: DATA,
    e.UnsupportedCompressionTypeError: DATA,
    e.UnsupportedForMessageFormatError: DATA,
    e.TableError: DATA,
    e.StorageError: OUTPUT,
    OutputError: OUTPUT,
}
"""The nearest class counts; what has none here is any other failure."""


def exit_code(error: BaseException) -> int:
    """Return the exit code that an exception stands for."""
    return next((_CODES[each] for each in type(error).__mro__ if each in _CODES), FAILED)


def command_hint(error: e.KafkaError) -> str | None:
    """Return what to do in words of the command line: settings are given with ``-X``."""
    if error.command_hint is not None or error.hint is None:
        return error.command_hint
    if "_" not in error.hint or error.hint.startswith("did you mean"):
        return error.hint
    from kfast.settings.names import setting_of  # noqa: PLC0415 - for few errors

    def option(found: re.Match[str]) -> str:
        if setting_of(found[1]) is None:
            return found[0]
        if found[1] in _OPTIONS and _OPTIONS[found[1]] not in str(error.hint):
            return _OPTIONS[found[1]]
        key = found[1].replace("_", ".")
        return key if found[2] is None else f"-X {key}={found[2]}"

    return _SETTING.sub(option, error.hint)


def error_text(error: e.KafkaError, *, is_json: bool = False, is_terminal: bool = False) -> str:
    """Return what goes to standard error, with the hint for the command line.

    JSON if asked for here or in the environment.
    """
    error.hint = command_hint(error)
    if not is_json and os.environ.get("KFAST_ERRORS") != "json":
        text = f"kfast: {error}\n"
        return shown_lines(text) if is_terminal else text
    code = e.ERROR_TABLE.get(error.code) if error.code is not None else None
    said = {
        "error": type(error).__name__ if code is None else code.name,
        "message": error.message,
        "cause": error.cause,
        "found": error.found,
        "try": error.hint,
        "exit": exit_code(error),
        "retriable": error.retriable,
    }
    import json  # noqa: PLC0415 - for this form of errors only

    return json.dumps(said, ensure_ascii=is_terminal) + "\n"


def shown_lines(text: str) -> str:
    """Return lines of text with escapes for what else a terminal acts on."""
    from kfast.columns.table_text import shown  # noqa: PLC0415 - for terminals

    return shown(text, keep="\n\t")
