"""SchemaThread: fetches the schemas of one registry, and wakes those that wait for them.

Owns the lock of `SchemaLookups` and a daemon thread, ``kfast-schemas``. The thread is started by
the first look-up of something unknown, makes one request at a time with connections of its own,
and ends when there was nothing to fetch for a minute, or with `close` or `abandon`. All consumers
and deserializers that have the same registry share it.

Any thread may look up. No I/O is done, and no code of a caller is run, under the lock. In a forked
child everything begins anew: the parent's thread, lock and connections are not there.
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger
from kfast._base.threads import WorkerThread
from kfast._runtime.wakeup_event import WakeupEvent
from kfast.errors import IllegalStateError, KafkaError, SchemaRegistryError
from kfast.registry.api import Failure
from kfast.registry.lookups import Lookup, SchemaLookups
from kfast.registry.registered_schema import SchemaAnswers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kfast._base.clock import Clock
    from kfast.registry.api import Outcome, RegistrySettings
    from kfast.registry.lookups import SchemaFetch
    from kfast.registry.registered_schema import OnDone, SchemaKey
    from kfast.registry.transport import RegistryClient, RegistryHttp

logger = get_logger(__name__)

NAME: Final = "kfast-schemas"
IDLE_MS: Final = 60_000


class SchemaThread:
    """The look-ups of one registry and the thread that serves them. Thread-safe."""

    def __init__(self, settings: RegistrySettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._idle_ms = IDLE_MS
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._event = WakeupEvent()
        self._lookups = SchemaLookups(self._settings, self._clock)
        self._thread: WorkerThread | None = None

    # --- any thread -------------------------------------------------------------------------------

    def lookup(
        self, keys: Collection[SchemaKey], on_done: OnDone, *, is_serialized: bool
    ) -> PendingSchemas:
        """Begin to look keys up, as `SchemaSource` has it."""
        if os.getpid() != self._pid:
            self._begin()
        with self._lock:
            now_ms = self._clock.now_ms()
            lookup = self._lookups.lookup(keys, now_ms, on_done, is_serialized=is_serialized)
            if not lookup.is_done:
                if self._is_closed:
                    self._lookups.cancel(lookup)
                    raise _closed()
                if self._thread is None:
                    thread = WorkerThread(NAME, lambda: self._run(thread))
                    thread.start()
                    self._thread = thread  # last: an interrupted start begins again
                self._event.set()
        return PendingSchemas(self, lookup)

    def expire(self) -> None:
        """End the look-ups whose deadline has come."""
        with self._lock:
            self._lookups.expire(self._clock.now_ms())
            done = self._lookups.take_done()
        _wake(done)

    def cancel(self, lookup: Lookup) -> None:
        """Drop a look-up."""
        with self._lock:
            self._lookups.cancel(lookup)

    def seconds_to(self, time_ms: int) -> float:
        """How long until a time."""
        return max(0, time_ms - self._clock.now_ms()) / 1000

    def close(self) -> None:
        """End the thread and all look-ups; what is known goes on being answered."""
        with self._lock:
            self._is_closed = True
            self._lookups.fail_all(_closed())
            done = self._lookups.take_done()
            self._event.set()
        _wake(done)

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

    # --- the thread -------------------------------------------------------------------------------

    def _run(self, thread: WorkerThread) -> None:
        with self._lock:
            if self._thread not in (None, thread):
                return  # its start was interrupted, and another one runs
            self._thread = thread
        try:
            from kfast.registry.transport import transport_of  # noqa: PLC0415 - HTTP and TLS

            with contextlib.closing(transport_of(self._settings, self._clock)) as transport:
                self._serve(transport)
        finally:
            with self._lock:
                if self._thread is thread:  # after an exception
                    self._thread = None

    def _serve(self, transport: RegistryHttp | RegistryClient) -> None:
        busy_ms = self._clock.now_ms()
        while True:
            with self._lock:
                self._event.prepare()  # before anything that a `set` announces is looked at
                now_ms = self._clock.now_ms()
                fetch = self._lookups.poll(now_ms)
                done = self._lookups.take_done()
                next_ms = self._lookups.next_poll_ms()
                if fetch is not None or done or next_ms is not None:
                    busy_ms = now_ms
                until_ms = busy_ms + self._idle_ms if next_ms is None else next_ms
                is_over = self._is_closed or (next_ms is None and until_ms <= now_ms)
                if is_over and fetch is None and not done:
                    self._thread = None
                    return
            _wake(done)
            if fetch is not None:
                outcome = _fetch(transport, fetch)
                with self._lock:
                    self._lookups.handle(outcome, self._clock.now_ms())
                    done = self._lookups.take_done()
                _wake(done)
            elif not done:
                self._event.wait(max(0, until_ms - now_ms) / 1000)

    def __repr__(self) -> str:
        return f"<SchemaThread {'runs' if self.is_running else 'idle'} {self._lookups!r}>"


@dataclass(frozen=True, slots=True)
class PendingSchemas:
    """A look-up under way, or done. A `SchemaRequest`; any thread."""

    thread: SchemaThread = field(repr=False)
    lookup: Lookup

    def answers(self) -> SchemaAnswers | None:
        """The answers, None while some are pending; after the deadline an error."""
        if not self.lookup.is_done:
            self.thread.expire()
            if not self.lookup.is_done:
                return None
        error = copy.copy(self.lookup.error)  # each thread that raises it has its own traceback
        return SchemaAnswers(self.lookup.schemas, frozenset(self.lookup.not_found), error)

    @property
    def seconds_left(self) -> float:
        """Until the deadline."""
        return self.thread.seconds_to(self.lookup.deadline_ms)

    def cancel(self) -> None:
        """Drop the request; no effect on one that is done."""
        self.thread.cancel(self.lookup)


def _fetch(transport: RegistryHttp | RegistryClient, fetch: SchemaFetch) -> Outcome:
    try:
        return transport.fetch(fetch)
    except SchemaRegistryError as error:
        return Failure(error)
    except KafkaError as error:  # of the settings: a file that cannot be read
        message = f"{fetch.key} cannot be looked up: {error.message}"
        return Failure(
            SchemaRegistryError(message, cause=error.cause, found=error.found, hint=error.hint)
        )
    except BaseException as error:  # a look-up without an outcome would end at its deadline only
        logger.exception("looking %s up failed", fetch.key)
        message, hint = f"internal error: {type(error).__name__}", "this is a bug worth reporting"
        return Failure(SchemaRegistryError(message, hint=hint))


def _wake(done: Iterable[Lookup]) -> None:
    for lookup in done:
        try:
            if lookup.on_done is not None:
                lookup.on_done()
        except Exception:  # of one consumer: the others are to be woken too
            logger.exception("waking a thread that waits for a schema failed")


def _closed() -> IllegalStateError:
    return IllegalStateError(
        "this SchemaRegistry is closed", hint="make another one, or close it later"
    )
