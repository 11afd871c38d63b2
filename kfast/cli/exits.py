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
    e.AuthenticationError: SECURITY,
    e.AuthorizationError: SECURITY,
    e.SchemaRegistryError: CONNECTION,
    e.SchemaRegistryAuthenticationError: SECURITY,
    e.UnknownTopicOrPartitionError: NOT_THERE,
    e.UnknownTopicIdError: NOT_THERE,
    e.GroupIdNotFoundError: NOT_THERE,
    e.ConfigNotFoundError: NOT_THERE,
    e.CorruptRecordError: DATA,
    e.DeserializationError: DATA,
    e.InvalidRecordError: DATA,
    e.LogTruncationError: DATA,
    e.NoOffsetForPartitionError: DATA,
    e.OffsetOutOfRangeError: DATA,
    e.RecordTooLargeError: DATA,
    e.UnsupportedCompressionTypeError: DATA,
    e.UnsupportedForMessageFormatError: DATA,
    e.TableError: DATA,
    e.StorageError: OUTPUT,
    OutputError: OUTPUT,
}
"""The nearest class counts; what has none here is any other failure."""

_CODES_OF_BROKERS: Final[dict[int | None, int]] = {
    e.ErrorCode.BROKER_NOT_AVAILABLE: CONNECTION,
    e.ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: SECURITY,
    e.ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: SECURITY,
    e.ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: SECURITY,
    e.ErrorCode.DELEGATION_TOKEN_EXPIRED: SECURITY,
    e.ErrorCode.DELEGATION_TOKEN_NOT_FOUND: SECURITY,
    e.ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: SECURITY,
    e.ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: SECURITY,
    e.ErrorCode.SECURITY_DISABLED: SECURITY,
    e.ErrorCode.UNACCEPTABLE_CREDENTIAL: SECURITY,
    e.ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: SECURITY,
    e.ErrorCode.INVALID_PRINCIPAL_TYPE: SECURITY,
    e.ErrorCode.RESOURCE_NOT_FOUND: NOT_THERE,
    e.ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: NOT_THERE,
    e.ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: DATA,
    e.ErrorCode.POSITION_OUT_OF_RANGE: DATA,
}
"""Those whose classes are made when they are asked for."""


def exit_code(error: BaseException) -> int:
    """Return the exit code that an exception stands for."""
    code = error.code if isinstance(error, e.KafkaError) else None
    if code in _CODES_OF_BROKERS:
        return _CODES_OF_BROKERS[code]
    return next(
        (_CODES[error_type] for error_type in type(error).__mro__ if error_type in _CODES), FAILED
    )


def command_hint(error: e.KafkaError) -> str | None:
    """Return the hint in words of the command line: settings are given with ``-X``."""
    if error.command_hint is not None or error.hint is None:
        return error.command_hint
    if "_" not in error.hint or error.hint.startswith("did you mean"):
        return error.hint
    from kfast.settings.names import setting_of  # noqa: PLC0415 - for few errors

    def option(match: re.Match[str]) -> str:
        if setting_of(match[1]) is None:
            return match[0]
        if match[1] in _OPTIONS and _OPTIONS[match[1]] not in str(error.hint):
            return _OPTIONS[match[1]]
        key = match[1].replace("_", ".")
        return key if match[2] is None else f"-X {key}={match[2]}"

    return _SETTING.sub(option, error.hint)


def error_text(error: e.KafkaError, *, is_json: bool = False, is_terminal: bool = False) -> str:
    """Return the text for standard error, with the hint for the command line.

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
