"""Resolver: look-ups of host names.

Both look-ups may return None, "pending", so that they are done elsewhere and the network thread
does not wait for them. ``SystemResolver`` blocks until the operating system has answered; a
consumer calls it on the helper threads of ``kfast.threads.name_resolver``. Literal IP addresses
never reach a name server.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import Protocol

from kfast.client.node_addresses import Address


class Resolver(Protocol):
    """Turns a host name into addresses."""

    def resolve(self, host: str, port: int) -> Sequence[Address] | None:
        """Return the addresses in order of preference; None while the look-up is pending.

        Raises `OSError`, with the reason, for a name that does not resolve.
        """
        ...

    def canonical_hosts(self, host: str, port: int) -> Sequence[str] | None:
        """Return the canonical host name of each address of a name; otherwise as ``resolve``."""
        ...


class SystemResolver:
    """``getaddrinfo``, which knows IPv4, IPv6, /etc/hosts and the machine's name servers."""

    __slots__ = ()

    def resolve(self, host: str, port: int) -> Sequence[Address] | None:
        """Return all addresses of a name, in the system's order (RFC 6724)."""
        try:
            name = host.encode("ascii") if _is_plain(host) else host
            address_infos = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:  # a label that is empty or too long for IDNA
            raise OSError(f"not a host name: {error}") from error
        return list(
            dict.fromkeys(
                Address(int(family), (str(sockaddr[0]), *(int(n) for n in sockaddr[1:])))
                for family, _, _, _, sockaddr in address_infos
                if family in {socket.AF_INET, socket.AF_INET6}
            )
        )

    def canonical_hosts(self, host: str, port: int) -> Sequence[str]:
        """Return the host names of a name's addresses, by reverse look-up."""
        names: dict[str, None] = {}
        for address in self.resolve(host, port) or ():
            name = address.ip
            with contextlib.suppress(OSError):
                name, _ = socket.getnameinfo(address.sockaddr, socket.NI_NUMERICSERV)  # type: ignore[arg-type]
            names[name] = None
        return list(names)

    def __repr__(self) -> str:
        return "SystemResolver()"


def _is_plain(host: str) -> bool:
    """Whether IDNA leaves a name as it is: its codec takes a while to import."""
    labels = host.removesuffix(".").split(".")
    return host.isascii() and all(0 < len(label) < 64 for label in labels)


def is_ip_address(host: str) -> bool:
    """Return whether this is a literal IP address, which needs no name server."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host.partition("%")[0])
        except (OSError, ValueError):
            continue
        return True
    return False
