"""Templates of ``kfast read -f``: a text with a ``%`` as operations of the text writer.

Pure. The letters are kcat's, besides ``%v``, ``%d`` and ``%e``; nothing is added to what the
template says, not even a newline.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kfast.errors import ConfigurationError


class Operation(NamedTuple):
    """One step of the text writer; see ``kfast/_native/text_writer.pyx``."""

    field: str
    form: str = ""
    style: str = "plain"
    text: bytes = b""
    null: bytes = b""


def literal(text: str | bytes) -> Operation:
    """Return the operation that writes a text."""
    return Operation("literal", text=text.encode() if isinstance(text, str) else text)


_LETTERS: Final = {
    "t": Operation("topic"),
    "p": Operation("partition"),
    "o": Operation("offset"),
    "T": Operation("time", "ms", null=b"-1"),
    "K": Operation("key_length"),
    "S": Operation("value_length"),
    "V": Operation("value_length"),
    "H": Operation("header_count"),
    "e": Operation("leader_epoch", null=b"-1"),
}
_BYTES: Final = {"k": "key", "s": "value", "v": "value"}
_LIST: Final = (
    "%t topic, %p partition, %o offset, %T time in ms, %d time, %k key, %K its length, "
    "%s value, %S its length, %h headers, %H their number, %e leader epoch, %% percent"
)
_NUMBERS: Final = ("int32", "int64", "float32", "float64")
MODIFIERS: Final = ("hex", "base64", "json", *_NUMBERS, *(f"{name}le" for name in _NUMBERS))
"""What may stand in braces behind ``%k``, ``%s`` and ``%v``."""
_TIMES: Final = ("iso", "ms", "s")
_TIME_LETTERS: Final = "YymdHMSfjFTsabzZ%"
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_TOKEN: Final = re.compile(r"%(.?)(?:\{([^}]*)(\})?)?|\\(x[0-9a-fA-F]{2}|.?)|[^%\\]+", re.DOTALL)


def parse_template(
    template: str,
    *,
    key: str = "auto",
    value: str = "auto",
    null: str = "",
    typed: Mapping[str, int] | None = None,
) -> list[Operation]:
    """Return the operations that write one record by a template.

    ``key`` and ``value`` are kinds for letters without a modifier; ``null`` stands for a null.
    ``typed`` has the numbers of the columns of keys and values with a schema.
    Raises ConfigurationError for a letter, a modifier or an escape that is not there.
    """
    operations: list[Operation] = []
    text = b""
    at = 0
    while at < len(template):
        token = _TOKEN.match(template, at)
        assert token is not None  # every character begins one
        at = token.end()
        letter, modifier, brace, escape = token.groups()
        if letter is None:
            text += os.fsencode(token[0]) if escape is None else _escaped(escape)
            continue
        if letter not in {*_BYTES, "d"} and modifier is not None:  # a brace of the text
            at, modifier = token.end(1), None
        elif modifier is not None and brace is None:
            raise ConfigurationError(f"-f: {token[0]} has no closing brace")
        if letter == "%":
            text += b"%"
            continue
        if text:
            operations.append(literal(text))
            text = b""
        column = None if typed is None else typed.get(_BYTES.get(letter, ""))
        if column is not None and modifier in {None, "json"}:
            operations.append(_typed(column, modifier, os.fsencode(null)))
            continue
        operations.append(
            _operation(letter, modifier, {"key": key, "value": value}, os.fsencode(null))
        )
    return [*operations, literal(text)] if text else operations


def _typed(column: int, modifier: str | None, null: bytes) -> Operation:
    if modifier is None:
        return Operation("column", "text", text=b"%d" % column, null=null)
    return Operation("column", "json", "json", b"%d" % column, b"null")


def _operation(letter: str, modifier: str | None, kinds: dict[str, str], null: bytes) -> Operation:
    if letter in _BYTES:
        field = _BYTES[letter]
        kind = kinds[field]
        if modifier == "json":
            return Operation(field, kind, "json", null=b"null")
        if modifier is not None and modifier not in MODIFIERS:
            raise ConfigurationError(
                f"-f: %{letter} has no {{{modifier}}}", hint=f"one of {', '.join(MODIFIERS)}"
            )
        form = modifier or ("raw" if kind == "auto" else kind)
        return Operation(field, form, null=null)
    if letter == "d":
        return _time(modifier, null)
    if letter == "h":
        return Operation("headers", "list", null=null)
    if letter not in _LETTERS:
        raise ConfigurationError(f"-f: there is no %{letter}", hint=_LIST)
    return _LETTERS[letter]


def _time(modifier: str | None, null: bytes) -> Operation:
    if modifier is None or modifier in _TIMES:
        return Operation("time", modifier or "iso", null=null or b"")
    letters = re.findall(r"%(.?)", modifier, re.DOTALL)
    unknown = [letter for letter in letters if not letter or letter not in _TIME_LETTERS]
    if not letters or unknown:
        where = f"%{unknown[0]} in " if unknown else ""
        raise ConfigurationError(
            f"-f: there is no {where}%d{{{modifier}}}",
            hint=f"{', '.join(_TIMES)}, or a text with %{' %'.join(_TIME_LETTERS)}",
        )
    return Operation("time", "pattern", text=os.fsencode(modifier), null=null)


def _escaped(escape: str) -> bytes:
    if len(escape) == 3:
        return bytes.fromhex(escape[1:])
    if escape not in _ESCAPES:
        raise ConfigurationError(
            f"-f: there is no \\{escape}", hint=r"one of \n, \t, \r, \0, \\, \xHH"
        )
    return _ESCAPES[escape].encode()
