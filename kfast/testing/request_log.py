"""RequestLog: the requests to a fake cluster, in order.

Owns the list that assertions read. Entries are appended when a request is complete on its
connection, before faults act on it; a request the broker refuses (unknown API, version outside the
offered range, undecodable) is logged as well, with ``message`` None.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

MessageT = TypeVar("MessageT")


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request.

    Attributes
    ----------
    api_key, version, correlation_id : int
        From the request header.
    client_id : str or None
        From the request header.
    message : object or None
        The decoded request; None if the broker refused it.
    node_id : int
        The node it went to.
    connection_id : int
        Number of the connection, unique in the cluster.
    time_ms : int
        When it was complete, on the clock of whoever drives the cluster.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    message: Any
    node_id: int
    connection_id: int
    time_ms: int


class RequestLog:
    """All requests so far; may be read from any thread while the server runs."""

    def __init__(self) -> None:
        self._entries: list[LoggedRequest] = []
        self._changed = threading.Condition()

    def append(self, entry: LoggedRequest) -> None:
        """Add an entry and wake whoever waits."""
        with self._changed:
            self._entries.append(entry)
            self._changed.notify_all()

    def clear(self) -> None:
        """Forget everything so far."""
        with self._changed:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[LoggedRequest]:
        with self._changed:
            return iter(list(self._entries))

    def select(
        self,
        api: int | None = None,
        *,
        node: int | None = None,
        connection: int | None = None,
        where: Callable[[LoggedRequest], bool] | None = None,
    ) -> list[LoggedRequest]:
        """Return the entries that match all conditions."""
        return [
            entry
            for entry in self
            if (api is None or entry.api_key == api)
            and (node is None or entry.node_id == node)
            and (connection is None or entry.connection_id == connection)
            and (where is None or where(entry))
        ]

    def messages(self, message_type: type[MessageT], *, node: int | None = None) -> list[MessageT]:
        """Return the decoded requests of one type."""
        return [
            entry.message
            for entry in self
            if isinstance(entry.message, message_type) and (node is None or entry.node_id == node)
        ]

    def wait_for(self, condition: Callable[[RequestLog], bool], timeout_s: float = 10.0) -> bool:
        """Block until a condition on the log holds; return whether it did in time."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self), timeout_s)

    def __repr__(self) -> str:
        return f"<RequestLog {len(self)} requests>"
