"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): client and server prove the password.

::

    C1  n,,n=<user>,r=<nonce>[,tokenauth=true]        "=" and "," of the user as =3D and =2C
    S1  r=<nonce of both>,s=<salt>,i=<iterations>     base64 salt; extensions may follow
    C2  c=biws,r=<nonce of both>,p=<proof>
    S2  v=<server signature>, or e=<error>

    salted password = PBKDF2(password, salt, iterations)
    client key = HMAC(salted password, "Client Key"), stored key = H(client key)
    proof = client key XOR HMAC(stored key, auth message)
    server signature = HMAC(HMAC(salted password, "Server Key"), auth message)
    auth message = C1 without "n,,", S1, C2 without the proof, with commas between

User and password are used as their UTF-8 bytes: Kafka stores them without SASLprep. Everything in
S1 is checked before PBKDF2 runs, because a server that may choose the number of iterations may make
the password easy to guess with one, or this client compute for hours. PBKDF2 of many iterations is
`Work`. Only a server that sends the right signature completes the exchange.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kfast.security import authentication_errors as errors
from kfast.security.sasl.mechanism import Work
from kfast.security.sasl.plain import ask_password
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from kfast.client.cluster import Node
    from kfast.errors import AuthenticationError

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 1_000_000
ITERATIONS_IN_PLACE: Final = 16_384
"""PBKDF2 of more iterations takes longer than the network thread may be busy: some 8 ms."""

NONCE_BYTES: Final = 24
"""Random bytes of a nonce, before base64."""

_SHOWN_DIGITS: Final = 18

MAX_TOKEN_BYTES: Final = 64 << 10
MAX_SALT_BYTES: Final = 1024

_GS2_HEADER: Final = b"n,,"
_CHANNEL: Final = b"c=biws"  # base64 of the header
_FIRST: Final = re.compile(
    rb"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]+)(?:,[A-Za-z]=[^,\0]+)*"
)
_ATTRIBUTES: Final = re.compile(rb"(r=[\x21-\x2b\x2d-\x7e]+,)?(s=[A-Za-z0-9+/=]+,)?(i=[0-9]+)?")
_ERROR: Final = re.compile(rb"e=([\x20-\x2b\x2d-\x7e]{1,60})")


@dataclass(frozen=True, slots=True)
class _ServerFirst:
    """A valid S1."""

    nonce: bytes
    salt: Secret[bytes]
    iterations: int


class ScramMechanism:
    """One log-in; ``nonce`` is 24 or more printable characters without a comma, used once.

    With ``is_delegation_token`` the user is the id of a delegation token and the password its HMAC.
    """

    def __init__(
        self,
        node: Node,
        name: str,
        user: str,
        password: Secret[str],
        nonce: str,
        *,
        is_delegation_token: bool = False,
    ) -> None:
        self.name = name
        self.user = user
        self.is_complete = False
        self._node = node
        self._hash = HASHES[name]
        self._password = password
        self._nonce = nonce.encode()
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = b"n=" + escaped.encode() + b",r=" + self._nonce
        if is_delegation_token:
            self._first_bare += b",tokenauth=true"
        self._signature: Secret[bytes] | None = None

    def first(self) -> Secret[bytes]:
        """Return C1."""
        return Secret(_GS2_HEADER + self._first_bare)

    def answer(self, token: Secret[bytes]) -> Secret[bytes] | Work | None:
        """Return C2 for S1; check S2."""
        if self._signature is None:
            return self._answer_first(token)
        self._check_final(token)
        return None

    def refused(self, text: str | None) -> AuthenticationError:
        """Return the error for a proof that the broker refused."""
        return errors.credentials_refused(self._node, self.name, self.user, text)

    # --- S1 to C2 ---------------------------------------------------------------------------------

    def _answer_first(self, token: Secret[bytes]) -> Secret[bytes] | Work:
        server = _read_first(token.reveal(), self._nonce)
        if isinstance(server, _Malformed):
            raise errors.malformed_scram(self._node, self.name, self.user, server.attribute)
        if isinstance(server, str):
            raise errors.untrusted_scram(self._node, self.name, self.user, server)
        if self._password.is_callable or server.iterations > ITERATIONS_IN_PLACE:
            return Work(lambda: self._prove(server, token))
        return self._prove(server, token)

    def _prove(self, server: _ServerFirst, token: Secret[bytes]) -> Secret[bytes]:
        password = ask_password(self._password, self._node, self.name, self.user)
        final = _CHANNEL + b",r=" + server.nonce
        message = Secret(b",".join((self._first_bare, token.reveal(), final)))
        proof, self._signature = _proof_and_signature(self._hash, password, server, message)
        return Secret(final + b",p=" + proof.reveal())

    # --- S2 ---------------------------------------------------------------------------------------

    def _check_final(self, token: Secret[bytes]) -> None:
        cause = None
        if self.is_complete or self._signature is None:
            cause = "it went on after the end"
        elif error := _ERROR.fullmatch(token.reveal()):
            cause = f"it refused the proof: {error[1].decode()}"
        elif not token.reveal().startswith(b"v="):
            raise errors.malformed_scram(self._node, self.name, self.user, "v")
        elif not _is_signature(token.reveal(), self._signature):
            raise errors.wrong_server_signature(self._node, self.name, self.user)
        if cause is not None:
            raise errors.untrusted_scram(self._node, self.name, self.user, cause)
        self.is_complete = True


@dataclass(frozen=True, slots=True)
class _Malformed:
    attribute: str


def _read_first(token: bytes, nonce: bytes) -> _ServerFirst | _Malformed | str:
    """Return S1, or what is wrong with it: the attribute that cannot be read, or a reason."""
    if len(token) > MAX_TOKEN_BYTES:
        return _Malformed("it is too long")
    if error := _ERROR.fullmatch(token):
        return f"it refused the user: {error[1].decode()}"
    if token.startswith(b"m="):
        return "it demands an extension that is not supported"
    match = _FIRST.fullmatch(token)
    if match is None:
        parts = _ATTRIBUTES.match(token)
        groups = parts.groups() if parts is not None else ()
        missing = [name for name, group in zip("rsi", groups, strict=False) if group is None]
        return _Malformed(missing[0] if missing else "i")
    if not match[1].startswith(nonce) or match[1] == nonce:
        return "its nonce does not continue ours"
    try:
        salt = binascii.a2b_base64(match[2], strict_mode=True)
    except binascii.Error:
        return _Malformed("s")
    if not 0 < len(salt) <= MAX_SALT_BYTES:
        return _Malformed("s")
    digits = match[3].lstrip(b"0") or b"0"
    if len(digits) > _SHOWN_DIGITS:  # Python makes no number of thousands
        return f"it asks for iterations of {len(digits)} digits, more than {MAX_ITERATIONS}"
    iterations = int(digits)
    if iterations < MIN_ITERATIONS:
        return f"it asks for {iterations} iterations, fewer than {MIN_ITERATIONS}"
    if iterations > MAX_ITERATIONS:
        return f"it asks for {iterations} iterations, more than {MAX_ITERATIONS}"
    return _ServerFirst(match[1], Secret(salt), iterations)


def _proof_and_signature(
    hash_name: str, password: Secret[str], server: _ServerFirst, message: Secret[bytes]
) -> tuple[Secret[bytes], Secret[bytes]]:
    """Return the client's proof in base64, and the signature the server has to send."""
    salted = hashlib.pbkdf2_hmac(
        hash_name, password.reveal().encode(), server.salt.reveal(), server.iterations
    )
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    client_signature = hmac.digest(stored_key, message.reveal(), hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    signature = hmac.digest(server_key, message.reveal(), hash_name)
    return Secret(binascii.b2a_base64(proof, newline=False)), Secret(signature)


def _is_signature(token: bytes, signature: Secret[bytes]) -> bool:
    """Return whether S2 has the signature expected; extensions after it are ignored."""
    value = token[2:].partition(b",")[0]
    try:
        received = binascii.a2b_base64(value, strict_mode=True)
    except binascii.Error:
        return False
    return hmac.compare_digest(received, signature.reveal())
