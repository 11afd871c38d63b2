"""NodeAddresses: the IP addresses of one host name, tried in turn (KIP-302, KIP-602).

Sans-IO: a resolver in the network layer fills the list, a connection attempt takes the current
one. After the last has failed, or after a connection that worked was lost, the name must be
resolved again; an address that was lost comes last then, because the server behind it is the one
most likely to be gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Address(NamedTuple):
    """One address to connect to, as ``socket.connect`` takes it."""

    family: int
    """``AF_INET`` or ``AF_INET6``."""
    sockaddr: tuple[str | int, ...]
    """Address and port (and flow and scope for IPv6)."""

    @property
    def ip(self) -> str:
        """The IP address as text."""
        return str(self.sockaddr[0])


class NodeAddresses:
    """A cursor over the addresses of one node."""

    __slots__ = ("_addresses", "_index", "_lost")

    def __init__(self) -> None:
        self._addresses: tuple[Address, ...] = ()
        self._index = 0
        self._lost: Address | None = None

    @property
    def needs_resolving(self) -> bool:
        """Whether the name must be looked up before the next attempt."""
        return self._index >= len(self._addresses)

    @property
    def current(self) -> Address:
        """The address to try now; only when ``needs_resolving`` is false."""
        return self._addresses[self._index]

    @property
    def ips(self) -> list[str]:
        """The IP addresses the last look-up gave."""
        return [address.ip for address in self._addresses]

    def resolved(self, addresses: Iterable[Address]) -> None:
        """Take the result of a look-up, in the resolver's order of preference."""
        unique = list(dict.fromkeys(addresses))
        if self._lost in unique:
            unique.remove(self._lost)
            unique.append(self._lost)
        self._lost = None
        self._addresses = tuple(unique)
        self._index = 0

    def failed(self) -> bool:
        """Move to the next address; return whether there is one left."""
        self._index += 1
        return not self.needs_resolving

    def lost(self) -> None:
        """Note that the connection to the current address worked and ended."""
        if not self.needs_resolving:
            self._lost = self.current
        self._addresses = ()
        self._index = 0

    def forget(self) -> None:
        """Make the next attempt look the name up again."""
        self._addresses = ()
        self._index = 0

    def __repr__(self) -> str:
        ips = ", ".join(address.ip for address in self._addresses)
        return f"<NodeAddresses [{ips}] at {self._index}>"
