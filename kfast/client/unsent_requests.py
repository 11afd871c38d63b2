"""UnsentRequests: the requests that wait for a connection.

Sans-IO, network thread only. One queue per connection, one for requests any broker can answer. No
request waits longer than its timeout, even if its node never becomes reachable.
"""

from __future__ import annotations

from collections import deque

from kfast.client.connection_states import ConnectionKey
from kfast.client.request import UnsentRequest
from kfast.client.request_manager import NEVER_MS


class UnsentRequests:
    """Queues by connection. ``default_timeout_ms`` is for requests without a timeout."""

    def __init__(self, default_timeout_ms: int) -> None:
        self._default_timeout_ms = default_timeout_ms
        self._queues: dict[ConnectionKey, deque[UnsentRequest]] = {}
        self._for_any_node: deque[UnsentRequest] = deque()

    def timeout_ms(self, request: UnsentRequest) -> int:
        """Return how long a request may take."""
        return self._default_timeout_ms if request.timeout_ms is None else request.timeout_ms

    def put(self, request: UnsentRequest) -> None:
        """Append a request to the queue of its connection."""
        if request.node_id is None:
            self._for_any_node.append(request)
        else:
            key = ConnectionKey(request.node_id, request.channel)
            self._queues.setdefault(key, deque()).append(request)

    def waiting(self) -> list[ConnectionKey]:
        """Return the connections that requests wait for."""
        return list(self._queues)

    def count(self, key: ConnectionKey) -> int:
        """Return how many requests wait for a connection."""
        return len(self._queues.get(key, ()))

    def pop(self, key: ConnectionKey) -> UnsentRequest | None:
        """Remove and return the oldest request for a connection."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        request = queue.popleft()
        if not queue:
            del self._queues[key]
        return request

    def take(self, key: ConnectionKey) -> list[UnsentRequest]:
        """Remove and return all requests for a connection."""
        return list(self._queues.pop(key, ()))

    @property
    def any_node_count(self) -> int:
        """How many requests wait for any usable node."""
        return len(self._for_any_node)

    def pop_any_node(self) -> UnsentRequest:
        """Remove and return the oldest request that any node can answer."""
        return self._for_any_node.popleft()

    def take_any_node(self) -> list[UnsentRequest]:
        """Remove and return all requests that any node can answer."""
        taken = list(self._for_any_node)
        self._for_any_node.clear()
        return taken

    def take_all(self) -> list[UnsentRequest]:
        """Remove and return all requests."""
        taken = [*self._for_any_node, *(r for queue in self._queues.values() for r in queue)]
        self._for_any_node.clear()
        self._queues.clear()
        return taken

    def expire(self, now_ms: int) -> list[UnsentRequest]:
        """Remove and return the requests that timed out."""
        if self.next_deadline_ms() > now_ms:
            return []
        expired: list[UnsentRequest] = []

        def keep(queue: deque[UnsentRequest]) -> deque[UnsentRequest]:
            kept: deque[UnsentRequest] = deque()
            for request in queue:
                is_over = request.created_ms + self.timeout_ms(request) <= now_ms
                (expired if is_over else kept).append(request)
            return kept

        self._for_any_node = keep(self._for_any_node)
        kept = {key: keep(queue) for key, queue in self._queues.items()}
        self._queues = {key: queue for key, queue in kept.items() if queue}
        return expired

    def next_deadline_ms(self) -> int:
        """Return when the first waiting request expires, ``NEVER_MS`` if none waits."""
        waiting = (*self._for_any_node, *(r for queue in self._queues.values() for r in queue))
        return min((r.created_ms + self.timeout_ms(r) for r in waiting), default=NEVER_MS)

    def __len__(self) -> int:
        return len(self._for_any_node) + sum(map(len, self._queues.values()))

    def __repr__(self) -> str:
        return f"<UnsentRequests any={len(self._for_any_node)} nodes={sorted(self._queues)}>"
