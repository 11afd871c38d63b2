"""The fake cluster behind ``kfast.network`` in one thread and in virtual time.

``LoopbackNetwork`` is transport factory, resolver and selector for a ``NetworkClient``. Nothing
waits: when no socket is ready, ``select`` moves the ``FakeClock`` to the next thing that happens in
the cluster (the end of a long poll, a delayed chunk), to the next scheduled action, or to the
caller's timeout, whichever comes first. Same inputs, same order of events, every time.

Addresses: the host name of every node resolves to ``10.0.0.<node id>``; further names can be added
(also ones that fail to resolve). An address without a listener refuses, one in ``blackholes`` never
answers the connection attempt. Bytes arrive in the chunks of the answer's pacing, further cut by
``max_recv_bytes`` and ``max_send_bytes``.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import os
import socket
from collections.abc import Callable, Sequence

from kfast._native.frame import FrameReceiver
from kfast.client.cluster import Node
from kfast.client.node_addresses import Address
from kfast.network.selector import HasFileno, Selected
from kfast.network.transport import EVENT_READ, EVENT_WRITE
from kfast.testing.cluster import FakeCluster
from kfast.testing.connection import BrokerConnection
from tests.fake_clock import FakeClock


class LoopbackTransport:
    """The client's end of one connection to a fake node; implements ``kfast``'s Transport."""

    is_raw = False
    is_handshaking = False
    has_pending = False
    wants_write = False

    def __init__(self, network: LoopbackNetwork, address: Address) -> None:
        self.network = network
        self.address = address
        self.connection: BrokerConnection | None = None
        self.is_closed = False
        self._pending = b""

    def fileno(self) -> int:
        return id(self)

    def setup(self) -> int:
        if self.connection is not None:
            return 0
        if self.address.ip in self.network.blackholes:
            return EVENT_WRITE
        node_id = self.network.node_at(self.address)
        if node_id is None or not self.network.cluster.nodes[node_id].is_running:
            raise _os_error(errno.ECONNREFUSED)
        self.connection = BrokerConnection.accept(
            self.network.cluster, node_id, self.network.clock.now
        )
        return 0

    def ready_events(self) -> int:
        """Return what the transport is ready for."""
        if self.connection is None:
            return 0
        self._fill()
        has_input = self._pending or self.connection.is_closed
        return EVENT_WRITE | (EVENT_READ if has_input else 0)

    def recv_into(self, view: memoryview) -> int | None:
        connection = self._connected()
        self._fill()
        if not self._pending:
            if connection.is_reset:
                raise _os_error(errno.ECONNRESET)
            return 0 if connection.is_closed else None
        count = min(len(view), len(self._pending), self.network.max_recv_bytes)
        view[:count] = self._pending[:count]
        self._pending = self._pending[count:]
        return count

    def expect(self, nbytes: int) -> None:
        """Nothing to prepare: bytes in memory come in the pieces they were sent in."""

    def send(self, data: memoryview) -> int | None:
        connection = self._connected()
        if connection.is_closed:
            raise _os_error(errno.ECONNRESET if connection.is_reset else errno.EPIPE)
        count = min(len(data), self.network.max_send_bytes)
        connection.receive(bytes(data[:count]), self.network.clock.now)
        return count

    def end_output(self) -> None:
        if self.connection is not None:
            self.connection.input_ended(self.network.clock.now)

    def close(self) -> None:
        self.is_closed = True
        self.network.forget(self)
        if self.connection is not None and not self.connection.is_closed:
            self.connection.client_closed()

    def _fill(self) -> None:
        if not self._pending:
            self._pending = self._connected().next_chunk(self.network.clock.now) or b""

    def _connected(self) -> BrokerConnection:
        if self.connection is None:
            raise _os_error(errno.ENOTCONN)
        return self.connection

    def __repr__(self) -> str:
        return f"<LoopbackTransport {self.address.ip} {self.connection!r}>"


class LoopbackNetwork:
    """A whole network in memory: transport factory, resolver and selector.

    Parameters
    ----------
    cluster : FakeCluster
        Whose nodes can be reached.
    clock : FakeClock
        Moved by ``select``; the same one the client reads.

    Attributes
    ----------
    names : dict
        Host name to IP addresses, or to the OSError that looking it up raises.
    blackholes : set of str
        IP addresses that never answer.
    attempts : list of (time, ip, port)
        Connection attempts so far.
    max_recv_bytes, max_send_bytes : int
        Most bytes one call moves.
    """

    def __init__(self, cluster: FakeCluster, clock: FakeClock) -> None:
        self.cluster = cluster
        self.clock = clock
        self.names: dict[str, Sequence[str] | OSError] = {}
        self.blackholes: set[str] = set()
        self.attempts: list[tuple[int, str, int]] = []
        self.max_recv_bytes = 1 << 30
        self.max_send_bytes = 1 << 30
        self.selects = 0
        self._transports: set[LoopbackTransport] = set()
        self._interest: dict[HasFileno, tuple[int, object]] = {}
        self._actions: list[tuple[int, int, Callable[[], object]]] = []
        self._action_numbers = itertools.count()
        self._is_woken = False
        for node in cluster.nodes.values():
            self.names[node.host] = [self.ip(node.node_id)]

    @staticmethod
    def ip(node_id: int) -> str:
        """Return the address of a node."""
        return f"10.0.0.{node_id}"

    @property
    def bootstrap_servers(self) -> list[str]:
        """Return the host:port of all nodes."""
        return [f"{node.host}:{node.port}" for node in self.cluster.nodes.values()]

    def schedule(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Do something when the virtual time has come: a leader moves, records arrive."""
        entry = (self.clock.now + delay_ms, next(self._action_numbers), action)
        heapq.heappush(self._actions, entry)

    def node_at(self, address: Address) -> int | None:
        """Return which node listens at an address."""
        for node in self.cluster.nodes.values():
            if address.sockaddr[:2] == (self.ip(node.node_id), node.port):
                return node.node_id
        return None

    def forget(self, transport: LoopbackTransport) -> None:
        """Drop a transport the client has closed."""
        self._transports.discard(transport)

    # -- TransportFactory ------------------------------------------------------------------

    def connect(self, node: Node, address: Address) -> LoopbackTransport:
        """Start a connection; ``setup`` returns the outcome."""
        self.attempts.append((self.clock.now, address.ip, int(address.sockaddr[1])))
        transport = LoopbackTransport(self, address)
        self._transports.add(transport)
        return transport

    # -- Resolver --------------------------------------------------------------------------

    def resolve(self, host: str, port: int) -> Sequence[Address]:
        """Look a name up in ``names``; IP addresses stand for themselves."""
        found = self.names.get(host)
        if found is None and not host.replace(".", "").isdigit():
            found = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if isinstance(found, OSError):
            raise found
        return [Address(socket.AF_INET, (ip, port)) for ip in found or (host,)]

    def canonical_hosts(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a name as its canonical hosts."""
        return [address.ip for address in self.resolve(host, port)]

    # -- Selector --------------------------------------------------------------------------

    def set_interest(self, transport: HasFileno, events: int, previous: int, key: object) -> None:
        known = self._interest.get(transport, (0, None))[0]
        assert known == previous, f"interest was {known}, not {previous}"
        if events:
            self._interest[transport] = (events, key)
        else:
            self._interest.pop(transport, None)

    def select(self, timeout_ms: int) -> Selected:
        """Return what is ready, moving the clock only as far as needed."""
        self.selects += 1
        deadline_ms = self.clock.now + timeout_ms
        while True:
            self._run_actions()
            # Twice, because what one connection does can let another one's answer be ready.
            ready = self._ready() or self._ready()
            if ready or self._is_woken or self.clock.now >= deadline_ms:
                is_woken, self._is_woken = self._is_woken, False
                return ready, is_woken
            self.clock.advance(self._next_event_ms(deadline_ms) - self.clock.now)

    def receive(self, receivers: dict[int, FrameReceiver], timeout_ms: int) -> tuple[int, bool]:
        """Leave it to ``select``: nothing here is a socket to be received from directly."""
        return 0, True

    def wakeup(self) -> None:
        self._is_woken = True

    def close(self) -> None:
        self._interest.clear()

    def _run_actions(self) -> None:
        while self._actions and self._actions[0][0] <= self.clock.now:
            _, _, action = heapq.heappop(self._actions)
            action()

    def _ready(self) -> list[tuple[object, int]]:
        found: list[tuple[object, int]] = []
        for transport, (wanted, key) in list(self._interest.items()):
            assert isinstance(transport, LoopbackTransport)
            if events := wanted & transport.ready_events():
                found.append((key, events))
        return found

    def _next_event_ms(self, deadline_ms: int) -> int:
        """Return the time to go to; what was due before now waits for the client, not for time."""
        times = [deadline_ms, *(time_ms for time_ms, _, _ in self._actions[:1])]
        for transport in self._transports:
            if transport.connection is not None:
                event_ms = transport.connection.next_event_ms()
                if event_ms is not None and event_ms > self.clock.now:
                    times.append(event_ms)
        return min(times)

    def __repr__(self) -> str:
        return f"<LoopbackNetwork t={self.clock.now} {len(self._transports)} connections>"


def _os_error(code: int) -> OSError:
    """Return the OSError subclass of an errno, as the operating system would raise it."""
    return OSError(code, os.strerror(code))
