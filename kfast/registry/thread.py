"""SchemaThread: fetches the schemas of one registry, and wakes those that wait for them.

Owns the lock of `SchemaLookups` and a daemon thread, ``kfast-schemas``. The thread is started by
the first look-up of something unknown, makes one request at a time with connections of its own,
and ends when there was nothing to fetch for a minute, or with `close` or `abandon`. All consumers
and deserializers that have the same registry share it.

Any thread may look up. No I/O is done, and no code of a caller is run, under the lock. In a forked
child everything begins anew: the parent's thread, lock and connections are not there.
"""

from __future__ import annotations

import copy
import os
import threading
from typing import TYPE_CHECKING, Final, Protocol

from kfast._base.logs import get_logger
from kfast._base.threads import WorkerThread
from kfast._runtime.wakeup_event import WakeupEvent
from kfast.errors import IllegalStateError, KafkaError, SchemaRegistryError
from kfast.registry.api import Failure
from kfast.registry.registered_schema import SchemaAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from kfast._base.clock import Clock
    from kfast.registry.api import Outcome
    from kfast.registry.lookups import Lookup, SchemaFetch, SchemaLookups
    from kfast.registry.registered_schema import SchemaKey

logger = get_logger(__name__)

NAME: Final = "kfast-schemas"
IDLE_MS: Final = 60_000


class SchemaTransport(Protocol):
    """Makes the requests; used by one thread, and may block."""

    def fetch(self, fetch: SchemaFetch, /) -> Outcome:
        """Make one request; what it raises fails the look-up."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class SchemaThread:
    """The look-ups of one registry and the thread that serves them. Thread-safe."""

    def __init__(
        self,
        make_lookups: Callable[[], SchemaLookups],
        make_transport: Callable[[], SchemaTransport],
        clock: Clock,
        *,
        idle_ms: int = IDLE_MS,
    ) -> None:
        self._make_lookups = make_lookups
        self._make_transport = make_transport
        self._clock = clock
        self._idle_ms = idle_ms
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._event = WakeupEvent()
        self._lookups = self._make_lookups()
        self._on_done: dict[Lookup, Callable[[], object]] = {}
        self._thread: WorkerThread | None = None

    # --- any thread -------------------------------------------------------------------------------

    def lookup(
        self,
        keys: Collection[SchemaKey],
        on_done: Callable[[], object] | None = None,
        *,
        is_serialized: bool = False,
    ) -> PendingSchemas:
        """Begin to look keys up, as `SchemaSource` has it."""
        if os.getpid() != self._pid:
            self._begin()
        with self._lock:
            made = self._lookups.lookup(keys, self._clock.now_ms(), is_serialized=is_serialized)
            if not made.is_done:
                if self._is_closed:
                    self._lookups.cancel(made)
                    raise _closed()
                if on_done is not None:
                    self._on_done[made] = on_done
                if self._thread is None:
                    thread = WorkerThread(NAME, lambda: self._run(thread))
                    thread.start()
                    self._thread = thread  # last: an interrupted start begins again
                self._event.set()
        return PendingSchemas(self, made)

    def wait_for(
        self, keys: Collection[SchemaKey], *, is_serialized: bool = False
    ) -> SchemaAnswers:
        """Look keys up and wait for them; the errors of the look-up are raised."""
        event = WakeupEvent()
        event.prepare()
        request = self.lookup(keys, event.set, is_serialized=is_serialized)
        try:
            while (answers := request.answers()) is None:
                event.wait(request.seconds_left())
                event.prepare()
        finally:
            request.cancel()
        if answers.error is not None:
            raise answers.error
        return answers

    def close(self) -> None:
        """End the thread and all look-ups; what is known goes on being answered."""
        with self._lock:
            self._is_closed = True
            self._lookups.fail_all(_closed())
            done = self._take_done()
            self._event.set()
        _call(done)

    def abandon(self) -> None:
        """End the thread as soon as there is nothing to fetch; no look-up follows.

        Called by garbage collection, on any thread and under any lock: it takes none.
        """
        self._idle_ms = 0
        self._event.set()

    @property
    def is_running(self) -> bool:
        """Whether the thread has been started and has not ended."""
        return self._thread is not None

    def expire(self) -> None:
        """End the look-ups whose deadline has come."""
        with self._lock:
            self._lookups.expire(self._clock.now_ms())
            done = self._take_done()
        _call(done)

    def cancel(self, lookup: Lookup) -> None:
        """Drop a look-up."""
        with self._lock:
            self._on_done.pop(lookup, None)
            self._lookups.cancel(lookup)

    def seconds_left(self, lookup: Lookup) -> float:
        """Return how long until the deadline of a look-up."""
        return max(0, lookup.deadline_ms - self._clock.now_ms()) / 1000

    def _take_done(self) -> list[Callable[[], object]]:
        done = (self._on_done.pop(lookup, None) for lookup in self._lookups.take_done())
        return [each for each in done if each is not None]

    # --- the thread -------------------------------------------------------------------------------

    def _run(self, thread: WorkerThread) -> None:
        with self._lock:
            if self._thread not in (None, thread):
                return  # its start was interrupted, and another one runs
            self._thread = thread
        transport = self._make_transport()
        busy_ms = self._clock.now_ms()
        try:
            while True:
                with self._lock:
                    self._event.prepare()  # before anything that a `set` announces is looked at
                    now_ms = self._clock.now_ms()
                    fetch = self._lookups.poll(now_ms)
                    done = self._take_done()
                    next_ms = self._lookups.next_poll_ms()
                    if fetch is not None or done or next_ms is not None:
                        busy_ms = now_ms
                    until_ms = busy_ms + self._idle_ms if next_ms is None else next_ms
                    is_over = self._is_closed or (next_ms is None and until_ms <= now_ms)
                    if is_over and fetch is None and not done:
                        self._thread = None
                        return
                _call(done)
                if fetch is None and not done:
                    self._event.wait(max(0, until_ms - now_ms) / 1000)
                if fetch is not None:
                    outcome = _fetch(transport, fetch)
                    with self._lock:
                        self._lookups.handle(outcome, self._clock.now_ms())
                        done = self._take_done()
                    _call(done)
        finally:
            transport.close()
            with self._lock:
                if self._thread is thread:  # after an exception
                    self._thread = None

    def __repr__(self) -> str:
        return f"<SchemaThread {'runs' if self.is_running else 'idle'} {self._lookups!r}>"


class PendingSchemas:
    """A look-up under way, or done. A `SchemaRequest`; any thread."""

    __slots__ = ("_lookup", "_thread")

    def __init__(self, thread: SchemaThread, lookup: Lookup) -> None:
        self._thread = thread
        self._lookup = lookup

    def answers(self) -> SchemaAnswers | None:
        """Return the answers, None while some are pending; after the deadline an error."""
        lookup = self._lookup
        if not lookup.is_done:
            self._thread.expire()
            if not lookup.is_done:
                return None
        found = lookup.answers()
        if found.error is None:
            return found
        # Several threads may raise it: each gets a traceback of its own.
        return SchemaAnswers(found.found, found.not_found, copy.copy(found.error))

    def cancel(self) -> None:
        """Drop the request; no effect on one that is done."""
        self._thread.cancel(self._lookup)

    def seconds_left(self) -> float:
        """Return how long until the deadline."""
        return self._thread.seconds_left(self._lookup)

    def __repr__(self) -> str:
        return f"<PendingSchemas {self._lookup.answers() if self._lookup.is_done else 'pending'}>"


def _fetch(transport: SchemaTransport, fetch: SchemaFetch) -> Outcome:
    try:
        return transport.fetch(fetch)
    except SchemaRegistryError as error:
        return Failure(error)
    except KafkaError as error:  # of the settings: a file that cannot be read
        found = SchemaRegistryError(
            f"{fetch.key} cannot be looked up: {error.message}",
            cause=error.cause,
            found=error.found,
            hint=error.hint,
        )
        return Failure(found)
    except BaseException as error:  # a look-up without an outcome would end at its deadline only
        logger.exception("looking %s up failed", fetch.key)
        return Failure(
            SchemaRegistryError(
                f"internal error: {type(error).__name__}",
                hint="this is a bug worth reporting",
            )
        )


def _call(callbacks: Iterable[Callable[[], object]]) -> None:
    for callback in callbacks:
        try:
            callback()
        except Exception:  # of one consumer: the others are to be woken too
            logger.exception("waking a thread that waits for a schema failed")


def _closed() -> IllegalStateError:
    return IllegalStateError(
        "this SchemaRegistry is closed", hint="make another one, or close it later"
    )
