"""Java's regular expressions, which ``subscribePattern`` has, as Python's.

Owns the translation of a pattern that has to match names of topics. These consist of the characters
`NAME_CHARACTERS` only. So a character class, whatever Java has for it (``\\p{Alpha}``, ``\\p{Lu}``,
``\\p{IsLatin}``, ``[a-z&&[^x]]``), is the set of these that it contains, and is written as such.
What else differs: ``(?<name>...)``, ``\\k<name>``, ``\\Q...\\E``, flags inside of a pattern
(``(?i)``), and ``\\d``, ``\\w`` and ``\\s``, which are ASCII in Java. Pure.
"""

from __future__ import annotations

import functools
import re
import string
import unicodedata
from collections.abc import Mapping
from typing import Final

NAME_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "._-")

_LETTERS: Final = frozenset(string.ascii_letters)
_LOWER: Final = frozenset(string.ascii_lowercase)
_UPPER: Final = frozenset(string.ascii_uppercase)
_DIGITS: Final = frozenset(string.digits)
_WORD: Final = _LETTERS | _DIGITS | {"_"}
_OTHERS: Final = NAME_CHARACTERS - _LETTERS - _DIGITS
_NONE: Final[frozenset[str]] = frozenset()

_PROPERTIES: Final[Mapping[str, frozenset[str]]] = {
    # of POSIX, in ASCII
    **{"Lower": _LOWER, "Upper": _UPPER, "Alpha": _LETTERS, "Digit": _DIGITS, "Punct": _OTHERS},
    **{"Alnum": _LETTERS | _DIGITS, "XDigit": frozenset(string.hexdigits)},
    **dict.fromkeys(("ASCII", "Graph", "Print"), NAME_CHARACTERS),
    **dict.fromkeys(("Blank", "Cntrl", "Space"), _NONE),
    # of java.lang.Character
    **{"javaLowerCase": _LOWER, "javaUpperCase": _UPPER, "javaDigit": _DIGITS},
    **{"javaLetter": _LETTERS, "javaAlphabetic": _LETTERS, "javaLetterOrDigit": _LETTERS | _DIGITS},
    **dict.fromkeys(("javaWhitespace", "javaSpaceChar", "javaMirrored"), _NONE),
}
_UNICODE: Final[Mapping[str, frozenset[str]]] = {
    # binary properties
    **{"isalphabetic": _LETTERS, "isletter": _LETTERS, "isdigit": _DIGITS},
    **{"islowercase": _LOWER, "isuppercase": _UPPER, "ispunctuation": _OTHERS},
    **{"ishex_digit": frozenset(string.hexdigits), "isassigned": NAME_CHARACTERS},
    **dict.fromkeys(("istitlecase", "iscontrol", "iswhite_space", "isideographic"), _NONE),
    # scripts and blocks; there are names in no other
    **dict.fromkeys(("islatin", "script=latin", "sc=latin", "script=latn", "sc=latn"), _LETTERS),
    **dict.fromkeys(("iscommon", "script=common", "sc=common"), NAME_CHARACTERS - _LETTERS),
    **dict.fromkeys(("inbasiclatin", "inbasic_latin", "block=basiclatin"), NAME_CHARACTERS),
}
"""By names in lower case: Java has them in any."""
_CATEGORY: Final = re.compile(
    r"(?:Is|gc=|general_category=)?"
    r"(C[cfnos]?|L[lmotuCD1]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?|all)"
)
_UNIONS: Final = {
    **{"LC": _LETTERS, "LD": _LETTERS | _DIGITS, "L1": NAME_CHARACTERS, "all": NAME_CHARACTERS}
}

_CLASSES: Final = {"d": _DIGITS, "w": _WORD, "s": _NONE, "h": _NONE, "v": _NONE}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ANCHORS: Final = {"b": r"\b", "B": r"\B", "A": r"\A", "z": r"\Z", "Z": r"\Z"}
_FLAGS: Final = frozenset("imsudU")
"""Of these only ``i`` concerns names of topics; ``x`` (comments) is not understood."""


@functools.lru_cache(maxsize=64)
def java_pattern(text: str) -> re.Pattern[str]:
    """Return a Java pattern as one of Python's, for names of topics.

    Raises ``ValueError`` if it is malformed, or has something that is not understood.
    """
    try:
        return re.compile(_Translation(text).result())
    except re.error as error:
        raise ValueError(error.msg) from None


class _Translation:
    """The translation of one pattern, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._groups = 0
        self._ignores_case = False

    def result(self) -> str:
        translated = self._sequence()
        if self._at < len(self._text):
            raise ValueError("a ) without its (")
        return translated

    def _sequence(self) -> str:
        """Translate up to the end of the group; a flag holds up to there."""
        ignored_case = self._ignores_case
        items = []
        while self._at < len(self._text) and self._text[self._at] != ")":
            items.append(self._item())
        self._ignores_case = ignored_case
        return "".join(items)

    def _item(self) -> str:
        char = self._next()
        if char == "\\":
            return self._escape()
        if char == "[":
            return _one_of(self._class())
        if char == "(":
            return self._group()
        if char in ".^$|?*+":
            return char
        if char == "{":
            if not (count := self._match(r"\d+(?:,\d*)?\}")):
                raise ValueError("a { begins no quantifier")
            return char + count[0]
        return _one_of(self._cased(char))

    # --- groups -----------------------------------------------------------------------------------

    def _group(self) -> str:
        opening = "("
        if self._accept("?"):
            if match := self._match(r"<([A-Za-z][A-Za-z0-9]*)>"):
                opening = f"(?P<{match[1]}>"
                self._groups += 1
            elif match := self._match(r":|=|!|>|<=|<!"):
                opening = f"(?{match[0]}"
            elif match := self._match(r"([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])"):
                return self._flags(match)
            else:
                raise ValueError(f"(?{self._text[self._at : self._at + 1]} is not a group")
        else:
            self._groups += 1
        return self._closed(opening)

    def _flags(self, match: re.Match[str]) -> str:
        on, off = match[1], match[2] or ""
        unknown = set(on + off) - _FLAGS
        if unknown:
            raise ValueError(f"the flag {min(unknown)} is not understood")
        before = self._ignores_case
        self._ignores_case = ("i" in on or before) and "i" not in off
        if match[3] == ")":
            return ""
        group = self._closed("(?:")
        self._ignores_case = before
        return group

    def _closed(self, opening: str) -> str:
        inside = self._sequence()
        if not self._accept(")"):
            raise ValueError("a ( without its )")
        return f"{opening}{inside})"

    # --- characters -------------------------------------------------------------------------------

    def _escape(self) -> str:
        if match := self._match(r"Q(.*?)(?:\\E|$)", re.DOTALL):
            return "".join(_one_of(self._cased(char)) for char in match[1])
        if match := self._match(r"k<([A-Za-z][A-Za-z0-9]*)>"):
            return self._reference(f"(?P={match[1]})")
        if match := self._match(r"[1-9]\d*"):
            number = match[0]
            while len(number) > 1 and int(number) > self._groups:
                number = number[:-1]
            return self._reference(f"(?:\\{number})") + match[0].removeprefix(number)
        if self._peek() in _ANCHORS:
            return _ANCHORS[self._next()]
        if self._peek() == "R":  # a line's end
            self._next()
            return _one_of(_NONE)
        escaped = self._escaped()
        return _one_of(self._cased(escaped) if isinstance(escaped, str) else escaped)

    def _reference(self, text: str) -> str:
        return f"(?i:{text})" if self._ignores_case else text

    def _escaped(self) -> str | frozenset[str]:
        """Return the character or the class that follows a backslash."""
        if match := self._match(r"(p|P)(?:\{([^}]*)\}|(\w))"):
            characters = self._folded(_property(match[2] or match[3] or ""))
            return NAME_CHARACTERS - characters if match[1] == "P" else characters
        for pattern, base in (
            (r"x\{([0-9a-fA-F]+)\}", 16),
            (r"x([0-9a-fA-F]{2})", 16),
            (r"u([0-9a-fA-F]{4})", 16),
            (r"0([0-3]?[0-7]{1,2})", 8),
        ):
            if match := self._match(pattern):
                return chr(min(int(match[1], base), 0x10FFFF))
        if match := self._match(r"c(.)"):
            return chr(ord(match[1]) ^ 64)
        char = self._next()
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char in _CLASSES:
            return _CLASSES[char]
        if char.lower() in _CLASSES:
            return NAME_CHARACTERS - _CLASSES[char.lower()]
        if char.isascii() and char.isalnum():
            raise ValueError(f"\\{char} is not understood")
        return char

    def _class(self) -> frozenset[str]:
        """Return the characters of a class, whose [ has been read."""
        is_negated = self._accept("^")
        common: frozenset[str] | None = None
        members: frozenset[str] = _NONE
        is_first = True
        while is_first or not self._accept("]"):
            if self._match("&&"):
                common = members if common is None else common & members
                members, is_first = _NONE, False
                continue
            if self._accept("["):
                members |= self._class()
            else:
                members |= self._members()
            is_first = False
        characters = members if common is None else common & members
        return NAME_CHARACTERS - characters if is_negated else characters

    def _members(self) -> frozenset[str]:
        """Return one character of a class, a range or a class by its name."""
        if match := self._match(r"\\Q(.*?)(?:\\E|$)", re.DOTALL):
            return self._folded(frozenset(match[1]))
        first = self._class_character()
        if not isinstance(first, str):
            return first
        if not self._match(r"-(?=[^\]\[])"):
            return self._cased(first)
        last = self._class_character()
        if not isinstance(last, str) or last < first:
            raise ValueError(f"{first}- is the beginning of no range")
        return self._folded(frozenset(c for c in NAME_CHARACTERS if first <= c <= last))

    def _class_character(self) -> str | frozenset[str]:
        char = self._next()
        return self._escaped() if char == "\\" else char

    def _cased(self, char: str) -> frozenset[str]:
        return self._folded(frozenset(char))

    def _folded(self, characters: frozenset[str]) -> frozenset[str]:
        if not self._ignores_case:
            return characters
        return characters.union(c.swapcase() for c in characters if c in _LETTERS)

    # --- reading ----------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise ValueError("it ends too early")
        self._at += 1
        return char

    def _accept(self, char: str) -> bool:
        if self._peek() != char:
            return False
        self._at += 1
        return True

    def _match(self, pattern: str, flags: int = 0) -> re.Match[str] | None:
        match = re.compile(pattern, flags).match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match


def _one_of(characters: frozenset[str]) -> str:
    """Return a pattern of one of these characters, if it is one a name can have."""
    text = "".join(sorted(characters & NAME_CHARACTERS))
    if not text:
        return r"[^\s\S]"
    return re.escape(text) if len(text) == 1 else f"[{re.escape(text)}]"


def _property(name: str) -> frozenset[str]:
    """Return the characters with a property of ``\\p{name}``."""
    characters = _PROPERTIES.get(name, _UNICODE.get(name.lower()))
    if characters is not None:
        return characters
    if match := _CATEGORY.fullmatch(name):
        category = match[1]
        members = (c for c in NAME_CHARACTERS if unicodedata.category(c).startswith(category))
        return _UNIONS.get(category, frozenset(members))
    raise ValueError(f"\\p{{{name}}} is not understood")
