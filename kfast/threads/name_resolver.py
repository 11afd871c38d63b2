"""NameResolver: host names are looked up on helper threads, so that the network thread never waits.

``getaddrinfo`` blocks, sometimes for many seconds, and cannot be interrupted. Owns the look-ups
under way, their outcomes until they are fetched, and up to ``MAX_THREADS`` daemon threads that live
only as long as there is something to look up. ``resolve`` and ``canonical_hosts`` are called on the
network thread and return None until an outcome is there; ``on_done``, called on a helper thread,
then has them asked again. A name that hangs keeps its thread and is not looked up twice; whoever
closes does not wait for it.

| state of a look-up | next |
|---|---|
| unknown | queued, and a thread is started if fewer than ``MAX_THREADS`` run |
| queued, running | asked again: None |
| done | asked again: the outcome, once; unknown after that, or ``MAX_AGE_MS`` later |
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kfast.network.resolver import is_ip_address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kfast._clock import Clock
    from kfast.client.node_addresses import Address
    from kfast.network.resolver import Resolver

MAX_THREADS: Final = 4
"""Look-ups at a time; a cluster has few distinct names, and a hanging name server hangs for all."""

MAX_AGE_MS: Final = 30_000
"""An outcome nobody fetched for so long is looked up anew."""


class _Question(NamedTuple):
    method: str
    host: str
    port: int


class _Outcome(NamedTuple):
    value: object
    error: OSError | None
    time_ms: int


class NameResolver:
    """Looks names up without blocking the caller. A `Resolver`.

    Parameters
    ----------
    name : str
        Prefix of the threads' names.
    resolver : Resolver
        Does the work, on the helper threads; may block.
    clock : Clock
        Tells how old outcomes are.

    Attributes
    ----------
    on_done : Callable
        Called on a helper thread whenever an outcome is there.
    """

    def __init__(self, name: str, resolver: Resolver, clock: Clock) -> None:
        self.on_done: Callable[[], None] = _nothing
        self._name = name
        self._resolver = resolver
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: deque[_Question] = deque()
        self._outcomes: dict[_Question, _Outcome | None] = {}
        self._threads = 0
        self._is_closed = False

    def resolve(self, host: str, port: int) -> Sequence[Address] | None:
        """Return the addresses of a name, None while they are being looked up.

        Raises
        ------
        OSError
            The name does not resolve.
        """
        if is_ip_address(host):
            return self._resolver.resolve(host, port)
        return cast("Sequence[Address] | None", self._ask(_Question("resolve", host, port)))

    def canonical_hosts(self, host: str, port: int) -> Sequence[str] | None:
        """Return the canonical names of a name's addresses, None while they are being looked up.

        Raises
        ------
        OSError
            The name does not resolve.
        """
        return cast("Sequence[str] | None", self._ask(_Question("canonical_hosts", host, port)))

    def close(self) -> None:
        """Begin nothing any more; what hangs is left to itself."""
        with self._lock:
            self._is_closed = True
            self._queue.clear()
        self.on_done = _nothing

    def _ask(self, question: _Question) -> object:
        with self._lock:
            outcome = self._outcomes.get(question)
            if outcome is not None:
                del self._outcomes[question]
                if self._clock.now_ms() - outcome.time_ms <= MAX_AGE_MS:
                    if outcome.error is not None:
                        raise outcome.error
                    return outcome.value
            if question not in self._outcomes and not self._is_closed:
                self._outcomes[question] = None
                self._queue.append(question)
                if self._threads < MAX_THREADS:
                    self._threads += 1
                    threading.Thread(
                        target=self._run, name=f"{self._name}-{self._threads}", daemon=True
                    ).start()
            return None

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._threads -= 1
                    return
                question = self._queue.popleft()
            value, error = self._look_up(question)
            with self._lock:
                self._outcomes[question] = _Outcome(value, error, self._clock.now_ms())
            self.on_done()

    def _look_up(self, question: _Question) -> tuple[object, OSError | None]:
        look_up: Any = getattr(self._resolver, question.method)
        try:
            return look_up(question.host, question.port), None
        except OSError as error:
            return None, error
        except Exception as error:  # nothing may end as a look-up that never answers
            return None, OSError(f"{type(error).__name__}: {error}")

    def __repr__(self) -> str:
        pending = sum(outcome is None for outcome in self._outcomes.values())
        return f"<NameResolver {pending} pending, {self._threads} threads>"


def _nothing() -> None:
    """Tell nobody."""
