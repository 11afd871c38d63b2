"""The servers to look the cluster up from, as nodes with negative ids.

Network thread only; ``nodes`` may be read from any thread. With
``client_dns_lookup="resolve_canonical_bootstrap_servers_only"`` a name stands for the canonical
host of each of its addresses (KIP-235), which Kerberos needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from kfast.client.cluster import Node
from kfast.network.resolver import Resolver


class BootstrapServers:
    """Makes nodes of ``bootstrap_servers``, on first use.

    Parameters
    ----------
    servers : Sequence of (str, int)
        Host and port of each.
    resolver : Resolver or None
        Given when names stand for the canonical hosts of their addresses.
    """

    def __init__(self, servers: Sequence[tuple[str, int]], resolver: Resolver | None) -> None:
        self._servers = list(servers)
        self._resolver = resolver
        self.nodes: dict[int, Node] = {}

    def known(self) -> dict[int, Node]:
        """Return the nodes by id, looking names up if that was not done yet."""
        if not self.nodes:
            self.nodes = {
                -1 - index: Node(-1 - index, host, port)
                for index, (host, port) in enumerate(self._expanded())
            }
        return self.nodes

    def forget(self) -> None:
        """Look names up again at the next use."""
        self.nodes = {}

    def _expanded(self) -> list[tuple[str, int]]:
        if self._resolver is None:
            return self._servers
        expanded: dict[tuple[str, int], None] = {}
        for host, port in self._servers:
            try:
                names = self._resolver.canonical_hosts(host, port)
            except OSError:
                names = [host]  # the attempt to connect will say what is wrong
            expanded.update(dict.fromkeys((name, port) for name in names))
        return list(expanded)

    def __repr__(self) -> str:
        return f"<BootstrapServers {self._servers}>"
