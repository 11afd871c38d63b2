"""Certificates, keys and revocation lists: from the settings to PEM, with checks.

Owns which kinds of files are understood and the errors for those that are not. Files are PEM, or
PKCS#12 with the ``cryptography`` package; texts are PEM. A private key of a text or a PKCS#12 store
reaches OpenSSL through a file that only this user can read and that exists while it is loaded:
``ssl`` takes keys from files only.

What may hold a private key is a ``Secret`` up to the expression that uses it: local variables are
shown in tracebacks.
"""

from __future__ import annotations

import binascii
import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kfast._base.optional import optional_package
from kfast.errors import ConfigurationError, MissingDependencyError
from kfast.security.certificates import CertificateFacts, read_certificate
from kfast.settings.rules import java_keystore_error
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig

_CERTIFICATE: Final = r"(?:X509 |TRUSTED )?CERTIFICATE"
_CRL: Final = "X509 CRL"
_PRIVATE_KEY: Final = r"(?:ENCRYPTED |RSA |EC |DSA )?PRIVATE KEY"
"""Labels of PEM blocks, as patterns."""

_WHAT: Final = {
    _CERTIFICATE: "certificate",
    _CRL: "certificate revocation list",
    _PRIVATE_KEY: "private key",
}

_JAVA_STORES: Final = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_PKCS12_START: Final = re.compile(
    rb"\x30(?:[\x00-\x80]|\x81.|\x82..|\x83...|\x84....)\x02\x01\x03", re.DOTALL
)
"""A SEQUENCE that starts with the version 3."""

_SERIALIZATION: Final = "cryptography.hazmat.primitives.serialization"
_SHOWN_BYTES: Final = 8


Passwords = Mapping[str, "Secret[str] | None"]
"""The passwords of stores and of the key by setting."""


def ask_passwords(config: ConsumerConfig) -> Passwords:
    """Return the passwords, those that callables give too; application thread only."""
    return {
        name: _asked(config.spelling(name), password)
        for name, password in (
            ("ssl_truststore_password", config.ssl_truststore_password),
            ("ssl_keystore_password", config.ssl_keystore_password),
            ("ssl_key_password", config.ssl_key_password),
        )
    }


def _asked(name: str, password: Secret[str] | None) -> Secret[str] | None:
    if password is None or not password.is_callable:
        return password
    try:
        asked = Secret(password.reveal())
    except Exception as error:
        raise _bad(
            name, f"the callable raised {type(error).__name__}", "return the password as a str"
        ) from error
    if not isinstance(asked.source, str):
        raise _bad(name, "the callable did not return a str", "return the password as a str")
    return asked


# --- trust ----------------------------------------------------------------------------------------


def trusted_certificates(config: ConsumerConfig, passwords: Passwords) -> str | None:
    """Return the trusted certificates as PEM; None: those of the system."""
    text, path = config.ssl_truststore_certificates, config.ssl_truststore_location
    if text is not None:
        return _blocks_of(text, _CERTIFICATE, config.spelling("ssl_truststore_certificates"))
    if path is None:
        return None
    return certificates_at(
        config.spelling("ssl_truststore_location"),
        path,
        config.ssl_truststore_type,
        passwords["ssl_truststore_password"],
        config.spelling("ssl_truststore_password"),
    )


def certificates_at(
    name: str,
    path: str,
    store_type: str | None = None,
    password: Secret[str] | None = None,
    password_name: str = "ssl_truststore_password",
) -> str:
    """Return the certificates of a file or a folder as PEM; the first argument is its setting."""
    if os.path.isdir(path):  # where Path.is_dir raises, the file cannot be read either
        return _certificates_of_folder(name, Path(path))
    data = read_file(name, path)
    _refuse_java_stores(name, path, data, is_truststore=True)
    if _is_pkcs12(data, store_type):
        store = _open_pkcs12(name, path, data, password, password_name)
        return _blocks_of(_certificates_of(store, name), _CERTIFICATE, name, path)
    return _blocks_of(_as_pem(name, path, data), _CERTIFICATE, name, path)


def _certificates_of_folder(name: str, folder: Path) -> str:
    certificates: dict[str, None] = {}
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise _bad(name, f"cannot read {folder}: {words}", "give a folder of PEM files") from None
    for path in paths:
        data = read_file(name, str(path))
        blocks = _blocks(data.reveal().decode("latin-1"), _CERTIFICATE)
        if not all(map(str.isascii, blocks)):
            raise _damaged(name, str(path), _CERTIFICATE)
        certificates.update(dict.fromkeys(blocks))
    if not certificates:
        raise _bad(name, f"no file in {folder} has a certificate", "give a folder of PEM files")
    return "".join(certificates)


def revocation_lists(config: ConsumerConfig) -> str | None:
    """Return the certificate revocation lists as PEM; None: revocation is not checked."""
    path = config.ssl_crlfile
    if path is None:
        return None
    name = config.spelling("ssl_crlfile")
    return _blocks_of(_as_pem(name, path, read_file(name, path)), _CRL, name, path)


# --- the client certificate -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """The client certificate with its key, as PEM, and how messages name them."""

    chain: str
    """The client's own certificate is the first."""
    key: Secret[str]
    password: Secret[str] | None
    """That of the key; None if none is known."""
    chain_setting: str
    key_setting: str
    chain_path: str | None = None
    """The user's file; None if the chain is a text or from a PKCS#12 store. Likewise the key."""
    key_path: str | None = None

    @contextlib.contextmanager
    def files(self) -> Iterator[tuple[str, str]]:
        """Provide files of the chain and the key; those made here are removed at the end."""
        with contextlib.ExitStack() as stack:
            chain, key = self.chain_path, self.key_path
            if chain is None:
                chain = stack.enter_context(private_file(Secret(self.chain)))
            if key is None:
                key = stack.enter_context(private_file(self.key))
            yield chain, key

    def facts(self) -> CertificateFacts:
        """Return the facts of the certificate, for messages."""
        first = _blocks(self.chain, _CERTIFICATE)[0]
        try:
            return read_certificate(binascii.a2b_base64("".join(first.splitlines()[1:-1])))
        except binascii.Error:
            return CertificateFacts()


def client_certificate(config: ConsumerConfig, passwords: Passwords) -> ClientCertificate | None:
    """Return the client certificate and its key; None if there is none."""
    path, text = config.ssl_keystore_location, config.ssl_keystore_certificate_chain
    if path is not None:
        name = config.spelling("ssl_keystore_location")
        data = read_file(name, path)
        _refuse_java_stores(name, path, data, is_truststore=False)
        if _is_pkcs12(data, config.ssl_keystore_type):
            return _of_pkcs12(config, name, path, data, passwords)
        text = _as_pem(name, path, data)
    elif text is not None:
        name = config.spelling("ssl_keystore_certificate_chain")
    else:
        return None
    chain = _blocks_of(text, _CERTIFICATE, name, path)
    key_setting, key_path, key = name, path, text
    if config.ssl_keystore_key is not None:
        key_setting, key_path = config.spelling("ssl_keystore_key"), None
        key = config.ssl_keystore_key
    elif config.ssl_keyfile is not None:
        key_setting, key_path = config.spelling("ssl_keyfile"), config.ssl_keyfile
        key = _as_pem(key_setting, key_path, read_file(key_setting, key_path))
    return ClientCertificate(
        chain,
        Secret(_blocks_of(key, _PRIVATE_KEY, key_setting, key_path)),
        passwords["ssl_key_password"],
        name,
        key_setting,
        path,
        key_path,
    )


def certificate_of_files(
    path: str, key_path: str | None, password: Secret[str] | None
) -> ClientCertificate:
    """Return the client certificate and key of PEM files; without a path the key is in the first.

    The settings are ``ssl_certfile`` and ``ssl_keyfile``.
    """
    name, key_name = "ssl_certfile", "ssl_keyfile"
    pem = key = _as_pem(name, path, read_file(name, path))
    if key_path is None:
        key_name, key_path = name, path
    else:
        key = _as_pem(key_name, key_path, read_file(key_name, key_path))
    return ClientCertificate(
        _blocks_of(pem, _CERTIFICATE, name, path),
        Secret(_blocks_of(key, _PRIVATE_KEY, key_name, key_path)),
        password,
        name,
        key_name,
        path,
        key_path,
    )


# --- PKCS#12 --------------------------------------------------------------------------------------


def _is_pkcs12(data: Secret[bytes], store_type: str | None) -> bool:
    if store_type is not None:
        return store_type == "PKCS12"
    return _PKCS12_START.match(data.reveal()) is not None


def _open_pkcs12(
    name: str, path: str, data: Secret[bytes], password: Secret[str] | None, password_name: str
) -> Any:
    """Return a PKCS#12 store as ``cryptography`` has it."""
    try:
        pkcs12: Any = optional_package(f"{_SERIALIZATION}.pkcs12", name)
    except MissingDependencyError as error:
        raise MissingDependencyError(
            "PKCS#12 stores need cryptography",
            found=f"{name}: {path}",
            hint='pip install "kfast[tls]", or convert: '
            f"openssl pkcs12 -in {path} -out {Path(path).stem}.pem -nodes",
        ) from error
    try:
        return pkcs12.load_pkcs12(
            data.reveal(), None if password is None else password.reveal().encode()
        )
    except ValueError:  # the same for a wrong password and for damaged data
        pass  # raised outside of the handler: a chained error might show what it was given
    if _PKCS12_START.match(data.reveal()) is None:
        raise _not(name, path, data, "PKCS#12 store")
    if password is None:
        raise _bad(name, f"{path} needs a password", f"give {password_name}")
    raise _bad(name, f"wrong password for {path} ({password_name})", "give the store's password")


def _certificates_of(store: Any, name: str) -> Secret[str]:
    """Return all certificates of a PKCS#12 store as PEM, that of the key first."""
    encoding = optional_package(_SERIALIZATION, name).Encoding.PEM
    entries = [entry for entry in (store.cert, *store.additional_certs) if entry is not None]
    return Secret("".join(entry.certificate.public_bytes(encoding).decode() for entry in entries))


def _of_pkcs12(
    config: ConsumerConfig, name: str, path: str, data: Secret[bytes], passwords: Passwords
) -> ClientCertificate:
    password_name = "ssl_keystore_password"
    if passwords[password_name] is None and passwords["ssl_key_password"] is not None:
        password_name = "ssl_key_password"
    password = passwords[password_name]
    for other in ("ssl_keyfile", "ssl_keystore_key"):
        if config.was_given(other):
            raise _bad(
                config.spelling(other), f"the key is in {path}, which is PKCS#12", "leave it out"
            )
    store = _open_pkcs12(name, path, data, password, config.spelling(password_name))
    if store.key is None or store.cert is None:
        raise _bad(name, f"{path} has no private key with its certificate", "export both into it")
    serialization = optional_package(_SERIALIZATION, name)
    # The file that OpenSSL reads it from is encrypted with a password used only once.
    once = Secret(os.urandom(32).hex())
    key = Secret(
        store.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(once.reveal().encode()),
        ).decode()
    )
    chain = _certificates_of(store, name).reveal()
    return ClientCertificate(chain, key, once, name, name)


# --- files ----------------------------------------------------------------------------------------


def read_file(name: str, path: str) -> Secret[bytes]:
    """Return the content of a file; the error names the setting."""
    try:
        return Secret(Path(path).read_bytes())
    except FileNotFoundError:
        problem = f"no such file: {path}"
    except OSError as error:
        problem = f"cannot read {path}: {(error.strerror or str(error)).lower()}"
    except ValueError:  # a NUL in the path
        problem = "not a path"
    raise _bad(name, problem, "give the path of a file that this process can read")


@contextlib.contextmanager
def private_file(text: Secret[str]) -> Iterator[str]:
    """Provide a file, in a folder, that only this user can read, and remove both at the end."""
    with contextlib.ExitStack() as stack:
        try:
            folder = tempfile.mkdtemp(prefix="kfast-")
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            path = os.path.join(folder, "private.pem")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(text.reveal().encode())
        except OSError as error:
            raise ConfigurationError(
                f"no temporary file for OpenSSL: {(error.strerror or str(error)).lower()}",
                hint="set TMPDIR to a folder that can be written to, or give PEM files",
            ) from None
        yield path


# --- PEM ------------------------------------------------------------------------------------------


def _blocks(pem: str, label: str) -> list[str]:
    """Return the PEM blocks of a label, without what is between them."""
    pattern = rf"-----BEGIN ({label})-----.+?-----END \1-----"
    return [match[0] + "\n" for match in re.finditer(pattern, pem, re.DOTALL)]


def _blocks_of(pem: Secret[str], label: str, name: str, path: str | None = None) -> str:
    """Return the blocks of a label as one text; raise if there is none."""
    blocks = Secret("".join(_blocks(pem.reveal(), label)))
    if not blocks.reveal().isascii():
        raise _damaged(name, path, label)
    if blocks.reveal():
        return blocks.reveal()
    there = [_WHAT[other] for other in _WHAT if _blocks(pem.reveal(), other)]
    raise _bad(
        name,
        f"{path or 'the text'} has no {_WHAT[label]}",
        "give the private key as ssl_keyfile, or in the file of the certificate"
        if label == _PRIVATE_KEY
        else f"give PEM with a {_WHAT[label]}",
        found=f"a {' and a '.join(there)}" if there else None,
    )


def _as_pem(name: str, path: str, data: Secret[bytes]) -> Secret[str]:
    """Return the text of a PEM file; raise for what is none."""
    if b"-----BEGIN " not in data.reveal():
        raise _not(name, path, data, "PEM file")
    return Secret(data.reveal().decode("latin-1"))


def _refuse_java_stores(name: str, path: str, data: Secret[bytes], *, is_truststore: bool) -> None:
    kind = _JAVA_STORES.get(data.reveal()[:4])
    if kind is not None:
        raise java_keystore_error(name, path, kind, is_truststore=is_truststore)


# --- errors ---------------------------------------------------------------------------------------


def _not(name: str, path: str, data: Secret[bytes], kind: str) -> ConfigurationError:
    return _bad(
        name,
        f"{path} is not a {kind}",
        "give a file in PEM (-----BEGIN ...), or a PKCS#12 store",
        found=data.reveal()[:_SHOWN_BYTES].hex(" ") or "an empty file",
    )


def _damaged(name: str, path: str | None, label: str) -> ConfigurationError:
    return _bad(
        name,
        f"{path or 'the text'} is damaged",
        "replace it: PEM between its BEGIN and END lines is base64",
        found=f"a {_WHAT[label]} with characters that are not ASCII",
    )


def _bad(name: str, problem: str, hint: str, *, found: str | None = None) -> ConfigurationError:
    return ConfigurationError(f"{name}: {problem}", found=found, hint=hint)
