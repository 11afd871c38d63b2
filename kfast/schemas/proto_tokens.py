"""Words, numbers, strings and marks of ``.proto`` text, one after the other.

Reads each character once; nothing is kept but the token at hand.
"""

from __future__ import annotations

import re
from enum import Enum, unique
from typing import Final, NamedTuple, NoReturn

from kfast.schemas.proto_files import FileDefinition
from kfast.schemas.proto_values import unescaped

_SHOWN: Final = 40
_BLANK: Final = re.compile(r"[ \t\r\n\v\f]+|//[^\n]*|/\*(?s:.*?)\*/")
_TOKEN: Final = re.compile(
    r"(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<string>\"(?:[^\"\\\n]++|\\[^\n])*+\"|'(?:[^'\\\n]++|\\[^\n])*+')"
    r"|(?P<mark>[!#-&(-/:-@\[-`{-~])"
)
_JOINED: Final = re.compile(r"[A-Za-z0-9_.]")
"""What cannot follow a number."""


@unique
class TokenKind(Enum):
    """Kinds of tokens; the value is what messages call them."""

    WORD = "a name"
    NUMBER = "a number"
    STRING = "a string"
    MARK = "a mark"
    END = "the end of the text"


_KINDS: Final = {kind.name.lower(): kind for kind in TokenKind}


class Token(NamedTuple):
    """One token; the text of a string has its quotation marks."""

    kind: TokenKind
    text: str
    place: int


class TokenReader:
    """The tokens of a text; ``token`` is the one at hand."""

    def __init__(self, file: FileDefinition, text: str) -> None:
        self.file = file
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0
        self.token = self._next()

    def _next(self) -> Token:
        text, at = self._text, self._at
        while (blank := _BLANK.match(text, at)) is not None:
            at = blank.end()
        match = _TOKEN.match(text, at)
        if match is None:
            return self._end(at)
        self._at = match.end()
        kind = _KINDS[str(match.lastgroup)]
        if kind is TokenKind.NUMBER and _JOINED.match(text, self._at):
            self.refuse("this is no number", at, actual=text[at : self._at + 1][:_SHOWN])
        if match[0] == "/" and text.startswith("/*", at):
            self.refuse("the comment does not end", at, hint="write */ behind it")
        return Token(kind, match[0], at)

    def _end(self, at: int) -> Token:
        if at < len(self._text):
            if self._text[at] in "\"'":
                self.refuse(
                    "the string does not end in its line",
                    at,
                    actual=self._text[at : at + _SHOWN].partition("\n")[0],
                    hint=f"write {self._text[at]} behind it",
                )
            self.refuse("this character cannot be here", at, actual=repr(self._text[at]))
        self._at = at
        return Token(TokenKind.END, "", at)

    # --- taking -----------------------------------------------------------------------------------

    def take(self) -> Token:
        """Return the token at hand and go on to the next."""
        token, self.token = self.token, self._next()
        return token

    def is_at(self, *texts: str) -> bool:
        """Return whether the token at hand is one of some words or marks."""
        return self.token.text in texts  # a string has quotation marks

    def take_if(self, text: str) -> bool:
        """Go on if the token at hand is a word or mark."""
        if self.token.text != text:
            return False
        self.take()
        return True

    def expect(self, text: str) -> None:
        """Go on from a word or mark that has to be here."""
        if not self.take_if(text):
            self.expected(f'"{text}"')

    def take_kind(self, kind: TokenKind, description: str = "") -> Token:
        """Return a token that has to be of a kind, and go on."""
        if self.token.kind is not kind:
            self.expected(description or kind.value)
        return self.take()

    def take_string(self) -> bytes:
        """Return the bytes of one string literal, or of several in a row."""
        parts: list[bytes] = []
        while not parts or self.token.kind is TokenKind.STRING:
            token = self.take_kind(TokenKind.STRING)
            content = unescaped(token.text[1:-1])
            if content is None:
                self.refuse(
                    "the string has a wrong escape or character",
                    token.place,
                    actual=token.text[:_SHOWN],
                )
            parts.append(content)
        return b"".join(parts)

    def take_text(self) -> str:
        """Return the text of string literals."""
        place = self.token.place
        try:
            return self.take_string().decode()
        except UnicodeDecodeError:
            self.refuse("the string is not UTF-8", place, hint="write it without such escapes")

    def take_name(self) -> str:
        """Return a name with dots, and perhaps one in front."""
        parts = ["."] if self.take_if(".") else []
        parts.append(self.take_kind(TokenKind.WORD).text)
        while self.take_if("."):
            parts += [".", self.take_kind(TokenKind.WORD).text]
        return "".join(parts)

    # --- errors -----------------------------------------------------------------------------------

    def expected(self, description: str) -> NoReturn:
        """Raise the error for a token that is not what has to be here."""
        token = self.token
        is_end = token.kind is TokenKind.END
        actual = TokenKind.END.value if is_end else token.text[:_SHOWN]
        self.refuse(
            f"expected {description}", token.place, actual=actual, hint=f"write {description} there"
        )

    def refuse(
        self, why: str, place: int, *, actual: str | None = None, hint: str | None = None
    ) -> NoReturn:
        """Raise an error for a place of the text."""
        self.file.refuse(why, place, actual=actual, hint=hint)
