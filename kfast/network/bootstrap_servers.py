"""BootstrapServers: ``bootstrap_servers`` as nodes with negative ids.

Network thread only; ``nodes`` may be read from any thread. With
``client_dns_lookup="resolve_canonical_bootstrap_servers_only"`` a name stands for the canonical
host of each of its addresses (KIP-235), which Kerberos needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kfast.client.cluster import Node
from kfast.network.resolver import Resolver


class BootstrapServers:
    """Makes nodes of hosts and ports, on first use.

    ``resolver`` is given when names stand for the canonical hosts of their addresses.
    """

    def __init__(self, servers: Sequence[tuple[str, int]], resolver: Resolver | None) -> None:
        self._servers = list(servers)
        self._resolver = resolver
        self._unknown = list(servers)
        self.nodes: Mapping[int, Node] = {}

    def resolve(self) -> Mapping[int, Node]:
        """Return the nodes by id; servers whose name is being looked up are appended later."""
        if self._unknown:
            self._look_up()
        return self.nodes

    def forget(self) -> None:
        """Look names up again at the next use."""
        self.nodes = {}
        self._unknown = list(self._servers)

    def _look_up(self) -> None:
        servers: dict[tuple[str, int], None] = {}
        servers.update(dict.fromkeys((node.host, node.port) for node in self.nodes.values()))
        unknown = []
        for host, port in self._unknown:
            names = self._names(host, port)
            if names is None:
                unknown.append((host, port))
            else:
                servers.update(dict.fromkeys((name, port) for name in names))
        self._unknown = unknown
        self.nodes = {
            -1 - index: Node(-1 - index, host, port) for index, (host, port) in enumerate(servers)
        }

    def _names(self, host: str, port: int) -> Sequence[str] | None:
        if self._resolver is None:
            return (host,)
        try:
            return self._resolver.canonical_hosts(host, port)
        except OSError:
            return (host,)  # the connection attempt reports the error

    def __repr__(self) -> str:
        return f"<BootstrapServers {self._servers}>"
