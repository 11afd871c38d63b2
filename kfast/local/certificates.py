"""Certificates: the certificate authorities and certificates of a LocalKafka, as PEM files.

Owns one folder, which only its owner can read. Every key is EC P-256 and every certificate is valid
for a day; a file has the private key (PKCS#8) and the chain, leaf first, which is what Kafka reads
as a PEM keystore. Needs the ``cryptography`` package, imported inside functions.
"""

from __future__ import annotations

import datetime
import ipaddress
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kfast._base.optional import optional_package

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName, KeyUsage

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_DAY: Final = datetime.timedelta(days=1)
_EARLIER: Final = datetime.timedelta(hours=1)
"""How long ago a certificate's time began, or ended if it is expired: clocks differ."""


class Certificates:
    """PEM files of certificates for brokers and clients, valid for one day.

    Parameters
    ----------
    folder : path
        Where the files go; made if missing. Only its owner can read it.

    Attributes
    ----------
    ca : Path
        Certificate of the authority that signs everything here: what a client has to trust.
    other_ca : Path
        Certificate of an authority that neither brokers nor clients trust.
    server : Path
        Key and certificate for ``localhost``, ``127.0.0.1`` and ``::1``.

    Notes
    -----
    A file with a key has the key first, then the certificate. Methods make a new file at each call.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        optional_package("cryptography", "LocalKafka with TLS")
        self.folder = Path(folder)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self._numbers = itertools.count(1)
        self._authority = _Authority("LocalKafka CA")
        self._other_authority = _Authority("Other CA")
        self.ca = self._write("ca", self._authority.pem())
        self.other_ca = self._write("other-ca", self._other_authority.pem())
        self.server = self.for_host(*LOCAL_HOSTS)

    def __repr__(self) -> str:
        return f"<Certificates in {self.folder}>"

    def for_host(
        self, host: str, *more: str, is_expired: bool = False, is_trusted: bool = True
    ) -> Path:
        """Make a broker's key and certificate.

        Parameters
        ----------
        host, *more : str
            Names and IP addresses that it is for; the first is also its common name.
        is_expired : bool
            Whether its time ended an hour ago.
        is_trusted : bool
            Whether `ca` signs it; else `other_ca` does.

        Returns
        -------
        Path
            The file.
        """
        authority = self._authority if is_trusted else self._other_authority
        return self._write("server", authority.sign(host, (host, *more), is_expired=is_expired))

    def expired(self) -> Path:
        """Make a broker's key and certificate whose time ended an hour ago."""
        return self.for_host(*LOCAL_HOSTS, is_expired=True)

    def client(
        self,
        common_name: str,
        *,
        password: str | None = None,
        is_expired: bool = False,
        is_trusted: bool = True,
    ) -> Path:
        """Make a client's key and certificate.

        Parameters
        ----------
        common_name : str
            The broker takes it for the name of the user.
        password : str, optional
            What the key is encrypted with.
        is_expired, is_trusted : bool
            As in `for_host`.

        Returns
        -------
        Path
            The file.
        """
        authority = self._authority if is_trusted else self._other_authority
        pem = authority.sign(common_name, (), is_expired=is_expired, password=password)
        return self._write("client", pem)

    def _write(self, kind: str, pem: bytes) -> Path:
        path = self.folder / f"{kind}-{next(self._numbers)}.pem"
        with open(path, "xb", opener=_open_private) as file:
            file.write(pem)
        return path


class _Authority:
    """A key that signs certificates, and its own certificate."""

    __slots__ = ("_certificate", "_key")

    def __init__(self, name: str) -> None:
        self._key = _new_key()
        self._certificate = self._build(name, self._key, (), _DAY, is_authority=True)

    def pem(self) -> bytes:
        """Return the certificate."""
        from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

        return self._certificate.public_bytes(Encoding.PEM)

    def sign(
        self,
        common_name: str,
        hosts: Sequence[str],
        *,
        is_expired: bool,
        password: str | None = None,
    ) -> bytes:
        """Return a new key and its certificate; one for ``hosts`` is a server's."""
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

        key = _new_key()
        left = -_EARLIER if is_expired else _DAY
        certificate = self._build(common_name, key, hosts, left)
        encryption = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode())
        )
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return key.private_bytes(pem, pkcs8, encryption) + certificate.public_bytes(pem)

    def _build(
        self,
        common_name: str,
        key: EllipticCurvePrivateKey,
        hosts: Sequence[str],
        left: datetime.timedelta,
        *,
        is_authority: bool = False,
    ) -> Certificate:
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415

        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name if is_authority else self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + min(left, -_EARLIER) - _EARLIER)
            .not_valid_after(now + left)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(_key_usage(is_authority), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if not is_authority:
            use = ExtendedKeyUsageOID
            purpose = use.SERVER_AUTH if hosts else use.CLIENT_AUTH
            builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    return ec.generate_private_key(ec.SECP256R1())


def _key_usage(is_authority: bool) -> KeyUsage:
    from cryptography.x509 import KeyUsage  # noqa: PLC0415

    return KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> GeneralName:
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
