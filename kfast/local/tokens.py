"""TokenIssuer: the OAuth tokens of a LocalKafka, signed with a key of its own.

Owns the key (EC P-256, algorithm ES256), its public half as ``jwks.json``, which the brokers read,
and the claims that the brokers check. Needs the ``cryptography`` package.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kfast._base.optional import optional_package

ISSUER: Final = "https://issuer.local-kafka"
AUDIENCE: Final = "kafka"
_KEY_ID: Final = "1"
_NUMBER_BYTES: Final = 32


class TokenIssuer:
    """Signs tokens; writes ``jwks.json`` into ``folder``."""

    __slots__ = ("_key", "jwks")

    def __init__(self, folder: Path) -> None:
        optional_package("cryptography", "LocalKafka with OAUTHBEARER")
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

        self._key = ec.generate_private_key(ec.SECP256R1())
        point = self._key.public_key().public_numbers()
        public = {
            "kty": "EC",
            "crv": "P-256",
            "alg": "ES256",
            "use": "sig",
            "kid": _KEY_ID,
            "x": _number(point.x),
            "y": _number(point.y),
        }
        self.jwks = folder / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [public]}), encoding="ascii")

    def token(self, user: str, lifetime_s: float, claims: Mapping[str, object]) -> str:
        """Return a token; claims that are None are left out, a negative lifetime is over."""
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec, utils  # noqa: PLC0415

        now = time.time()
        payload: dict[str, object] = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": user,
            "iat": int(min(now, now + lifetime_s)),
            "exp": int(now + lifetime_s),
            **claims,
        }
        header = {"alg": "ES256", "typ": "JWT", "kid": _KEY_ID}
        present = {name: value for name, value in payload.items() if value is not None}
        signed = f"{_json(header)}.{_json(present)}"
        r, s = utils.decode_dss_signature(
            self._key.sign(signed.encode("ascii"), ec.ECDSA(hashes.SHA256()))
        )
        return f"{signed}.{_number(r, s)}"


def _json(value: object) -> str:
    return _base64(json.dumps(value).encode())


def _number(*values: int) -> str:
    return _base64(b"".join(value.to_bytes(_NUMBER_BYTES, "big") for value in values))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
