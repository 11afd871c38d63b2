"""Reads of an X.509 certificate what messages about it show.

Pure functions over DER (X.690, RFC 5280). What is read here decides nothing: OpenSSL verifies
certificates, and these facts only word why it refused one. Certificates come from servers that are
not trusted: every length is compared with the bytes left, names are cut and made printable, and a
certificate that cannot be read has no facts.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

MAX_CERTIFICATE_BYTES: Final = 64 << 10
MAX_NAMES: Final = 20
"""Most names of a certificate that are read."""

MAX_SHOWN_NAMES: Final = 5
MAX_NAME_LENGTH: Final = 80

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OBJECT_ID: Final = 0x06
_OCTET_STRING: Final = 0x04
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_DNS_NAME: Final = 0x82
_IP_ADDRESS: Final = 0x87

_SUBJECT_ALT_NAME: Final = bytes.fromhex("551d11")
_NAMING: Final = tuple(bytes.fromhex(object_id) for object_id in ("550403", "55040b", "55040a"))
"""Attributes that name a subject, the best first: commonName, organizationalUnit, organization."""

_ENCODINGS: Final = {0x0C: "utf-8", 0x1C: "utf-32-be", 0x1E: "utf-16-be"}
"""Character encodings of string types; the other types are read as Latin-1."""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What could be read of a certificate: None and no names where nothing could."""

    subject: str | None = None
    issuer: str | None = None
    names: tuple[str, ...] = ()
    """Host names and IP addresses it is for, at most `MAX_NAMES`."""
    not_before: datetime | None = None
    not_after: datetime | None = None

    @property
    def title(self) -> str | None:
        """What to call it: its subject, else the first name it is for."""
        return self.subject or (self.names[0] if self.names else None)


def read_certificate(der: bytes) -> CertificateFacts:
    """Return the facts of a certificate; never raises."""
    try:
        return _read(memoryview(der))
    except _MalformedError:
        return CertificateFacts()


def names_text(names: Sequence[str]) -> str:
    """Return names for a message: at most `MAX_SHOWN_NAMES`, then how many there are besides."""
    shown = ", ".join(names[:MAX_SHOWN_NAMES])
    more = len(names) - MAX_SHOWN_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def printable(text: str) -> str:
    """Return a name as a message shows it: printable, and cut."""
    shown = "".join(c if c.isprintable() else "?" for c in text[: MAX_NAME_LENGTH + 1]).strip()
    return shown if len(shown) <= MAX_NAME_LENGTH else shown[: MAX_NAME_LENGTH - 1] + "…"


# --- DER ------------------------------------------------------------------------------------------


class _MalformedError(Exception):
    """The bytes are no certificate."""


_Value = tuple[int, memoryview]
"""Tag and content."""


def _values(data: memoryview) -> Iterator[_Value]:
    """Yield the values that follow each other in ``data``."""
    while data:
        if len(data) < 2:
            raise _MalformedError
        tag, length, start = data[0], data[1], 2
        if length >= 0x80:
            start += length & 0x7F
            if not 3 <= start <= 5 or len(data) < start:  # indefinite, or above 3 bytes of length
                raise _MalformedError
            length = int.from_bytes(data[2:start], "big")
        if len(data) - start < length:
            raise _MalformedError
        yield tag, data[start : start + length]
        data = data[start + length :]


def _only(data: memoryview, tag: int) -> memoryview:
    """Return the content of the first value, which has to have a tag."""
    for first_tag, content in _values(data):
        if first_tag == tag:
            return content
        break
    raise _MalformedError


def _read(der: memoryview) -> CertificateFacts:
    if len(der) > MAX_CERTIFICATE_BYTES:
        raise _MalformedError
    fields = list(_values(_only(_only(der, _SEQUENCE), _SEQUENCE)))
    if fields and fields[0][0] == _VERSION:
        del fields[0]
    # Serial number, signature algorithm, issuer, validity, subject, public key, extensions.
    if len(fields) < 6 or any(tag != _SEQUENCE for tag, _ in fields[1:6]):
        raise _MalformedError
    times = [_time(*value) for value in _values(fields[3][1])]
    if len(times) != 2:
        raise _MalformedError
    names: tuple[str, ...] = ()
    for tag, content in fields[6:]:
        if tag == _EXTENSIONS:
            names = tuple(_alternative_names(_only(content, _SEQUENCE)))
    return CertificateFacts(_name(fields[4][1]), _name(fields[2][1]), names, times[0], times[1])


def _name(data: memoryview) -> str | None:
    """Return the subject of a ``Name``: its common name, if it has one."""
    attributes_by_id: dict[bytes, str] = {}
    for set_tag, attributes in _values(data):
        for tag, attribute in _values(attributes):
            if (set_tag, tag) != (_SET, _SEQUENCE):
                raise _MalformedError
            parts = list(_values(attribute))
            if len(parts) != 2 or parts[0][0] != _OBJECT_ID:
                raise _MalformedError
            attributes_by_id.setdefault(bytes(parts[0][1]), _text(*parts[1]))
    return next((attributes_by_id[key] for key in _NAMING if attributes_by_id.get(key)), None)


def _text(tag: int, content: memoryview) -> str:
    raw = bytes(content[: 4 * MAX_NAME_LENGTH + 4])
    return printable(raw.decode(_ENCODINGS.get(tag, "latin-1"), "replace"))


def _time(tag: int, content: memoryview) -> datetime | None:
    """Return a time of DER, which ends with Z; None for one that does not exist."""
    text = bytes(content[:32]).decode("latin-1")
    if tag == _UTC_TIME:
        text = ("20" if text[:2] < "50" else "19") + text
    elif tag != _GENERALIZED_TIME:
        raise _MalformedError
    digits = text.removesuffix("Z")
    if len(digits) != 14 or not (digits.isascii() and digits.isdigit()):
        return None
    month, day, hour, minute, second = (int(digits[at : at + 2]) for at in range(4, 14, 2))
    try:
        return datetime(int(digits[:4]), month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


def _alternative_names(extensions: memoryview) -> Iterator[str]:
    left = MAX_NAMES
    for tag, extension in _values(extensions):
        if tag != _SEQUENCE:
            raise _MalformedError
        parts = list(_values(extension))
        if len(parts) < 2 or bytes(parts[0][1]) != _SUBJECT_ALT_NAME:
            continue
        if parts[-1][0] != _OCTET_STRING:
            raise _MalformedError
        for kind, content in _values(_only(parts[-1][1], _SEQUENCE)):
            if not left:
                return
            if kind == _DNS_NAME:
                yield _text(kind, content)
            elif kind == _IP_ADDRESS and len(content) in {4, 16}:
                yield str(ipaddress.ip_address(bytes(content)))
            else:
                continue
            left -= 1
