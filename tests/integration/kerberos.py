"""Kdc: an MIT Kerberos key distribution centre on loopback, for GSSAPI against real brokers.

Needs Debian's krb5-kdc (``krb5kdc``, ``kdb5_util``, ``kadmin.local``). Everything is in one folder;
the process ends with this one.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

from kfast.local.node import HOST, free_ports
from tests.integration.support import until

REALM: Final = "KFAST.TEST"
SERVICES: Final = (f"kafka/localhost@{REALM}", f"kafka/{HOST}@{REALM}")
"""The brokers, as Java clients call them, which look the name of an address up, and as others do.
Both have one key: a broker has one principal, and accepts what its key decrypts."""

_PATH: Final = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_KRB5_CONF: Final = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = {host}:{port}
  }}
"""
_KDC_CONF: Final = """\
[kdcdefaults]
  kdc_listen = {host}:{port}
  kdc_tcp_listen = {host}:{port}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/kadm5.acl
    max_life = 1d
  }}
[logging]
  kdc = FILE:{folder}/kdc.log
"""


class Kdc:
    """A realm with the brokers' service and users, each with a keytab.

    Parameters
    ----------
    folder : Path
        Of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (port,) = free_ports(1)
        names = {"realm": REALM, "host": HOST, "port": port, "folder": folder}
        self.config = folder / "krb5.conf"
        self.config.write_text(_KRB5_CONF.format(**names))
        (folder / "kdc.conf").write_text(_KDC_CONF.format(**names))
        self._run("kdb5_util", "-r", REALM, "create", "-s", "-P", "master")
        same_key = ("-pw", "secret", "-e", "aes256-cts-hmac-sha1-96:onlyrealm")
        for name in SERVICES:
            self._run("kadmin.local", "-r", REALM, "addprinc", *same_key, name)
        self.service_keytab = self._keytab(SERVICES[0])
        self._process = subprocess.Popen(
            [_program("setpriv"), "--pdeathsig", "KILL", _program("krb5kdc"), "-n"],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(lambda: _listens(port), "the KDC listens")

    @property
    def environment(self) -> dict[str, str]:
        """Environment of programs that use this realm."""
        return {
            **os.environ,
            "PATH": _PATH,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
        }

    def add_principal(self, name: str) -> Path:
        """Add a principal if it is not there, and return its keytab."""
        if not self._path(name).exists():
            self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", name)
            self._keytab(name)
        return self._path(name)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name.partition('@')[0].replace('/', '-')}.keytab"

    def _keytab(self, name: str) -> Path:
        keytab = self._path(name)
        self._run("kadmin.local", "-r", REALM, "ktadd", "-norandkey", "-k", str(keytab), name)
        return keytab

    def broker_config(self, *listeners: str) -> dict[str, str]:
        """Return the brokers' settings for GSSAPI on these listeners."""
        line = jaas(self.service_keytab, SERVICES[0], isInitiator="false")
        return {f"listener.name.{name.lower()}.gssapi.sasl.jaas.config": line for name in listeners}

    @property
    def java_options(self) -> tuple[str, ...]:
        """Options for a Java that uses this realm."""
        return (f"-Djava.security.krb5.conf={self.config}",)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _run(self, program: str, *args: str) -> None:
        done = subprocess.run(
            [_program(program), *args],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr


def jaas(keytab: Path, principal: str, **more: str) -> str:
    """Return the JAAS line of a Java that has a keytab."""
    options = {
        "useKeyTab": "true",
        "storeKey": "true",
        "keyTab": str(keytab),
        "principal": principal,
        **more,
    }
    words = " ".join(f'{name}="{value}"' for name, value in options.items())
    return f"com.sun.security.auth.module.Krb5LoginModule required {words};"


def is_installed() -> bool:
    """Return whether this machine has the programs."""
    names = ("krb5kdc", "kdb5_util", "kadmin.local", "setpriv")
    return all(shutil.which(name, path=_PATH) for name in names)


def _program(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    assert found is not None
    return found


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 1).close()
    except OSError:
        return False
    return True
