"""Files with the certificate and the key of a client."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.unit.security.tls.authority import (
    authority,
    chain_pem,
    key_pem,
)

CLIENT = authority("Client Root").issue_cert("app.example", common_name="app")


def files(folder: Path, password: str | None = None) -> dict[str, str]:
    """Return settings for a certificate and a key in two files."""
    (folder / "app.crt").write_text(chain_pem(CLIENT))
    (folder / "app.key").write_text(key_pem(CLIENT, password))
    return {"ssl_certfile": str(folder / "app.crt"), "ssl_keyfile": str(folder / "app.key")}


def pkcs12_store(folder: Path, password: str | None) -> str:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    key = serialization.load_pem_private_key(CLIENT.private_key_pem.bytes(), None)
    leaf = x509.load_pem_x509_certificate(CLIENT.cert_chain_pems[0].bytes())
    store = pkcs12.serialize_key_and_certificates(b"app", key, leaf, None, encryption)  # type: ignore[arg-type]
    (folder / "app.p12").write_bytes(store)
    return str(folder / "app.p12")
