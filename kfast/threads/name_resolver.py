"""NameResolver: look-ups of host names on helper threads, so that the network thread never waits.

``getaddrinfo`` blocks, sometimes for many seconds, and cannot be interrupted. Owns the pending
look-ups, their outcomes until they are fetched, and up to ``MAX_THREADS`` daemon threads that live
only as long as there are look-ups. ``resolve`` and ``canonical_hosts`` are called on the network
thread and return None until an outcome is there; ``on_done``, called on a helper thread, then wakes
it to call them again. A look-up that hangs keeps its thread and is not started twice; ``close``
does not wait for it.

| state of a look-up | next |
|---|---|
| unknown | queued, and a thread is started if fewer than ``MAX_THREADS`` run |
| queued, running | called again: None |
| done | called again: the outcome, once; unknown after that, or ``MAX_AGE_MS`` later |
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kfast._base.threads import OwnThread
from kfast.network.resolver import is_ip_address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kfast._base.clock import Clock
    from kfast.client.node_addresses import Address
    from kfast.network.resolver import Resolver

MAX_THREADS: Final = 4
"""Look-ups at a time; a cluster has few distinct names, and a hanging name server hangs for all."""

MAX_AGE_MS: Final = 30_000
"""An outcome that was not fetched for so long is looked up again."""


class _Lookup(NamedTuple):
    method: str
    host: str
    port: int


class _Outcome(NamedTuple):
    value: object
    error: OSError | None
    time_ms: int


class NameResolver:
    """Looks names up without blocking the caller. A `Resolver`.

    ``resolver`` does the work, on helper threads whose names begin with ``name``; it may block.
    ``on_done`` is called on a helper thread whenever an outcome is there, until `close`.
    """

    def __init__(
        self, name: str, resolver: Resolver, clock: Clock, on_done: Callable[[], None]
    ) -> None:
        self._on_done: Callable[[], None] | None = on_done
        self._name = name
        self._resolver = resolver
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: deque[_Lookup] = deque()
        self._outcomes: dict[_Lookup, _Outcome | None] = {}
        self._threads = 0
        self._is_closed = False

    def resolve(self, host: str, port: int) -> Sequence[Address] | None:
        """Return the addresses of a name, None while they are being looked up."""
        if is_ip_address(host):
            return self._resolver.resolve(host, port)
        return cast("Sequence[Address] | None", self._outcome_of(_Lookup("resolve", host, port)))

    def canonical_hosts(self, host: str, port: int) -> Sequence[str] | None:
        """Return the canonical names of the addresses, None while they are looked up."""
        return cast(
            "Sequence[str] | None", self._outcome_of(_Lookup("canonical_hosts", host, port))
        )

    def close(self) -> None:
        """Start no more look-ups; a running one is not waited for."""
        with self._lock:
            self._is_closed = True
            self._queue.clear()
        self._on_done = None

    def _outcome_of(self, lookup: _Lookup) -> object:
        with self._lock:
            outcome = self._outcomes.get(lookup)
            if outcome is not None:
                del self._outcomes[lookup]
                if self._clock.now_ms() - outcome.time_ms <= MAX_AGE_MS:
                    if outcome.error is not None:
                        raise outcome.error
                    return outcome.value
            if lookup not in self._outcomes and not self._is_closed:
                self._outcomes[lookup] = None
                self._queue.append(lookup)
                if self._threads < MAX_THREADS:
                    self._threads += 1
                    OwnThread(self._run, f"{self._name}-{self._threads}").start()
            return None

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._threads -= 1
                    return
                lookup = self._queue.popleft()
            value, error = self._call(lookup)
            with self._lock:
                self._outcomes[lookup] = _Outcome(value, error, self._clock.now_ms())
            on_done = self._on_done
            if on_done is not None:
                on_done()

    def _call(self, lookup: _Lookup) -> tuple[object, OSError | None]:
        method: Any = getattr(self._resolver, lookup.method)
        try:
            return method(lookup.host, lookup.port), None
        except OSError as error:
            return None, error
        except Exception as error:  # a look-up without an outcome would stay pending for ever
            return None, OSError(f"{type(error).__name__}: {error}")

    def __repr__(self) -> str:
        pending = sum(outcome is None for outcome in self._outcomes.values())
        return f"<NameResolver {pending} pending, {self._threads} threads>"
