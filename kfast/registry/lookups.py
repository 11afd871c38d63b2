"""SchemaLookups: which schema to fetch next, what is known of which key, and when to give up.

Owns the cache of one registry, the look-ups under way and the back-off. Sans-IO: the time is an
argument, `poll` says what to fetch, and each `SchemaFetch` ends by one call of `handle`. At most
one fetch is in flight. No lock: the caller has one.

=====================  ===========================================================================
state of a key         leaves on
=====================  ===========================================================================
unknown                looked up: queued
queued                 `poll`, in turn: in flight; no look-up waits for it any more: unknown
in flight              its schema: cached, or its references are fetched first; 404: missing; a
                       failure that may pass: queued behind the others; any other, also of one of
                       its references: its look-ups fail, unknown
cached                 the least recently used of more than ``max_schemas``: unknown
missing                ``miss_cache_ms`` later: unknown
=====================  ===========================================================================

Look-ups of the same key share its fetch. A look-up has its own deadline; it keeps the schemas it
has got, whatever the cache drops. Bytes that are no framing look like ids that are unknown: after
``MISSES_PER_MINUTE`` of them within a minute, further ids that are not cached count as missing
without a request.

A look-up ends before its deadline if no server has ever answered, and all of them have refused the
connection since it began, a second or more ago: waiting would not help. Once one has answered, a
registry that refuses is one that starts again.

The registry is *down* from a failure that may pass until the next answer: both changes are logged,
the first as a warning. Its servers are tried in turn, then after back-off, or when a Retry-After
says.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import OrderedDict, deque
from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kfast._base.clock import ExponentialBackoff
from kfast._base.logs import get_logger
from kfast.errors import KafkaError, SchemaRegistryError
from kfast.registry.api import Absent, Failure, Outcome, RawSchema, unreachable
from kfast.registry.registered_schema import (
    KeyKind,
    OnDone,
    RegisteredSchema,
    SchemaKey,
    SchemaReference,
)

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast.registry.api import RegistrySettings

logger = get_logger(__name__)

MAX_DEPTH: Final = 32
"""Of references."""
MISSES_PER_MINUTE: Final = 100
REFUSED_MS: Final = 1_000
"""How long a look-up goes on although all servers refuse."""
_MINUTE_MS: Final = 60_000
_MAX_BACKOFF_MS: Final = 5_000


class SchemaFetch(NamedTuple):
    """One request to be made now."""

    key: SchemaKey
    server: int
    """Number of the registry's URL."""
    is_serialized: bool


@dataclass(slots=True, eq=False)
class Lookup:
    """Keys that are looked up together."""

    begun_ms: int
    deadline_ms: int
    on_done: OnDone = None
    """Called by the caller of `SchemaLookups.take_done`."""
    pending: set[SchemaKey] = field(default_factory=set)
    schemas: dict[SchemaKey, RegisteredSchema] = field(default_factory=dict)
    not_found: set[SchemaKey] = field(default_factory=set)
    error: KafkaError | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing is pending any more."""
        return self.error is not None or not self.pending


class _Resolved(NamedTuple):
    schema: RegisteredSchema
    depth: int
    """Of its references."""


_Steps = Generator[SchemaKey, RawSchema | SchemaKey | Absent | None, _Resolved | None]
"""Yields keys to fetch and is sent their outcomes, or None to go on where it was."""


@dataclass(slots=True, eq=False)
class _Task:
    """A key that is being looked up."""

    key: SchemaKey
    is_serialized: bool
    steps: _Steps
    lookups: set[Lookup] = field(default_factory=set)


class SchemaLookups:
    """The look-ups of one registry; the clock gives random numbers."""

    def __init__(self, settings: RegistrySettings, clock: Clock) -> None:
        self._settings = settings
        self._servers = settings.servers
        self._backoff = ExponentialBackoff(settings.retry_backoff_ms, _MAX_BACKOFF_MS)
        self._clock = clock
        self._cached: OrderedDict[SchemaKey, _Resolved] = OrderedDict()
        """Least recently used first."""
        self._missing: OrderedDict[SchemaKey, int] = OrderedDict()
        """When each is unknown again, the first to be so first."""
        self._miss_times: deque[int] = deque(maxlen=MISSES_PER_MINUTE)
        self._is_refusing = False
        self._tasks: dict[SchemaKey, _Task] = {}
        self._queue: deque[_Task] = deque()
        self._in_flight: tuple[_Task, SchemaKey] | None = None
        self._lookups: dict[Lookup, None] = {}
        self._done: list[Lookup] = []
        self._server = 0
        self._failures = 0
        self._next_ms = 0
        self._down: tuple[str, str] | None = None
        """The server that failed last and why, until one answers."""
        self._has_answered = False
        self._refused_ms: dict[int, int] = {}
        """When each server whose last failure was a refusal has refused."""
        self._has_serialized = True

    # --- look-ups ---------------------------------------------------------------------------------

    def lookup(
        self, keys: Collection[SchemaKey], now_ms: int, on_done: OnDone, *, is_serialized: bool
    ) -> Lookup:
        """Begin to look keys up; the result is done already if nothing has to be fetched."""
        lookup = Lookup(now_ms, now_ms + self._settings.deadline_ms, on_done)
        for key in dict.fromkeys(keys):
            cached = self._use(key)
            is_negative = isinstance(key.value, int) and key.value < 0  # no registry gives such ids
            if cached is not None:
                lookup.schemas[key] = cached.schema
            elif is_negative or self._missing.get(key, 0) > now_ms:
                lookup.not_found.add(key)
            else:
                task = self._tasks.get(key)
                if task is None:
                    task = self._tasks[key] = _Task(key, is_serialized, self._resolve(key, (), {}))
                    self._queue.append(task)
                task.lookups.add(lookup)
                lookup.pending.add(key)
        if lookup.pending:
            self._lookups[lookup] = None
        return lookup

    def cancel(self, lookup: Lookup) -> None:
        """Drop a look-up: nothing is fetched for it alone."""
        self._lookups.pop(lookup, None)
        for key in lookup.pending:
            if key in self._tasks:
                self._tasks[key].lookups.discard(lookup)
        self._done = [done for done in self._done if done is not lookup]

    def expire(self, now_ms: int) -> None:
        """End the look-ups whose deadline has come, or that all servers refuse."""
        for lookup in [lookup for lookup in self._lookups if now_ms >= self._end_ms(lookup)]:
            server, cause = self._down or (self._servers[self._server], "timed out")
            seconds = (self._end_ms(lookup) - lookup.begun_ms) / 1000
            key = min(lookup.pending, key=str)
            self._fail(lookup, unreachable(server, cause, f"{key} in {seconds:g} s"))

    def _end_ms(self, lookup: Lookup) -> int:
        """When a look-up ends without an answer."""
        is_certain = not self._has_answered and all(
            self._refused_ms.get(server, -1) >= lookup.begun_ms
            for server in range(len(self._servers))
        )
        end_ms = lookup.begun_ms + REFUSED_MS if is_certain else lookup.deadline_ms
        return min(end_ms, lookup.deadline_ms)

    def fail_all(self, error: KafkaError) -> None:
        """End every look-up with an error."""
        for lookup in list(self._lookups):
            self._fail(lookup, error)

    def take_done(self) -> list[Lookup]:
        """The look-ups that were pending and are done, each once."""
        done, self._done = self._done, []
        return done

    def _fail(self, lookup: Lookup, error: KafkaError) -> None:
        lookup.error = error
        self.cancel(lookup)
        self._done.append(lookup)

    # --- fetches ----------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> SchemaFetch | None:
        """The next request to make, None if there is none at the moment."""
        self.expire(now_ms)
        while self._queue and self._in_flight is None and now_ms >= self._next_ms:
            task = self._queue.popleft()
            key = self._step(task, None)
            if key is None:
                continue
            if key == task.key and self._is_one_too_many(key, now_ms):
                self._end(task, None)
            else:
                self._in_flight = task, key
                is_serialized = task.is_serialized and self._has_serialized
                return SchemaFetch(key, self._server, is_serialized)
        return None

    def next_poll_ms(self) -> int | None:
        """When to `poll` again, None if there is nothing to wait for."""
        if not self._lookups:
            return None
        deadline_ms = min(map(self._end_ms, self._lookups))
        return min(deadline_ms, self._next_ms) if self._queue else deadline_ms

    def handle(self, outcome: Outcome, now_ms: int) -> None:
        """Take the outcome of the fetch in flight."""
        assert self._in_flight is not None
        (task, key), self._in_flight = self._in_flight, None
        if isinstance(outcome, Failure) and outcome.error.retriable:
            self._try_again(task, outcome, now_ms)
            return
        self._has_answered = True
        if self._down is not None:
            logger.info("the schema registry %s answers again", self._servers[self._server])
            self._down = None
            self._failures = 0
        if outcome is Absent.FORM:
            self._has_serialized = False
            self._queue.appendleft(task)
        elif isinstance(outcome, Failure):
            # A caller that polls on must not ask at the rate of its polls.
            self._failures += 1
            self._next_ms = now_ms + self._backoff.backoff_ms(self._failures - 1, self._clock)
            self._give_up(task, outcome.error)
        else:
            self._failures = 0
            if outcome is Absent.SCHEMA and key.kind is not KeyKind.VERSION:
                self._miss(key, now_ms)
            if self._step(task, outcome) is not None:
                self._queue.appendleft(task)

    def _try_again(self, task: _Task, failure: Failure, now_ms: int) -> None:
        server, cause = self._servers[self._server], failure.error.cause or failure.error.message
        level = logging.WARNING if self._down is None else logging.DEBUG
        logger.log(level, "no answer from the schema registry %s: %s", server, cause)
        self._down = server, cause
        if failure.is_refused:
            self._refused_ms[self._server] = now_ms
        else:
            self._refused_ms.pop(self._server, None)
        self._failures += 1
        self._server = (self._server + 1) % len(self._servers)
        rounds, rest = divmod(self._failures, len(self._servers))
        if not rest:
            self._next_ms = now_ms + self._backoff.backoff_ms(rounds - 1, self._clock)
        self._next_ms = max(self._next_ms, now_ms + failure.retry_after_ms)
        self._queue.append(task)

    # --- keys -------------------------------------------------------------------------------------

    def _step(
        self, task: _Task, outcome: RawSchema | SchemaKey | Absent | None
    ) -> SchemaKey | None:
        """Go on with a key; return what to fetch for it, None if it is done or not needed."""
        try:
            key = task.steps.send(outcome)
            if task.lookups:
                return key
            del self._tasks[task.key]  # no look-up waits for it any more
        except StopIteration as end:
            self._end(task, end.value)
        except SchemaRegistryError as error:
            self._give_up(task, error)
        return None

    def _end(self, task: _Task, resolved: _Resolved | None) -> None:
        """Answer the look-ups of a key that is cached, or missing."""
        del self._tasks[task.key]
        for lookup in task.lookups:
            lookup.pending.discard(task.key)
            if resolved is None:
                lookup.not_found.add(task.key)
            else:
                lookup.schemas[task.key] = resolved.schema
            if lookup.is_done:
                del self._lookups[lookup]
                self._done.append(lookup)

    def _give_up(self, task: _Task, error: SchemaRegistryError) -> None:
        for lookup in list(task.lookups):
            self._fail(lookup, error)
        del self._tasks[task.key]

    def _resolve(
        self, key: SchemaKey, path: tuple[SchemaKey, ...], seen: dict[SchemaKey, _Resolved]
    ) -> _Steps:
        """Fetch a schema, then what it refers to, depth first.

        ``path`` are the keys that lead here. ``seen`` has each schema of a diamond of references
        once, whatever the cache drops meanwhile.
        """
        raw = None
        while (resolved := seen.get(key) or self._use(key)) is None and raw is None:
            raw = yield key
        if resolved is None and isinstance(raw, RawSchema | SchemaKey):
            path = (*path, key)
            references = raw.references if isinstance(raw, RawSchema) else (("", raw),)
            children = []
            too_deep = f"its references are more than {MAX_DEPTH} deep"
            for _, child in references:
                if child in path:
                    cause = f"{child} refers back to itself"
                elif len(path) > MAX_DEPTH:
                    cause = too_deep
                elif (below := (yield from self._resolve(child, path, seen))) is None:
                    cause = f"the registry does not have {child}"
                elif len(path) + below.depth > MAX_DEPTH:
                    cause = too_deep
                else:
                    children.append(below)
                    continue
                server = self._servers[self._server]
                raise SchemaRegistryError(
                    f"{key} cannot be used: its references cannot be resolved",
                    cause=cause,
                    hint=f"look at the schema in the registry {server}",
                    url=server,
                )
            if isinstance(raw, SchemaKey):
                [resolved] = children
            else:
                schemas = tuple(
                    SchemaReference(name, str(child.value), child.version or 0, below.schema)
                    for (name, child), below in zip(references, children, strict=True)
                )
                depth = max((1 + below.depth for below in children), default=0)
                resolved = _Resolved(dataclasses.replace(raw.schema, references=schemas), depth)
            self._keep(key, resolved)
        if resolved is not None:
            seen[key] = resolved
        return resolved

    # --- the caches -------------------------------------------------------------------------------

    def _use(self, key: SchemaKey) -> _Resolved | None:
        if key in self._cached:
            self._cached.move_to_end(key)
        return self._cached.get(key)

    def _keep(self, key: SchemaKey, resolved: _Resolved) -> None:
        if key.kind is not KeyKind.VERSION or key.version is not None:  # the latest one may change
            self._cached[key] = resolved
            if len(self._cached) > self._settings.max_schemas:
                self._cached.popitem(last=False)

    def _miss(self, key: SchemaKey, now_ms: int) -> None:
        self._miss_times.append(now_ms)
        self._missing.pop(key, None)
        self._missing[key] = now_ms + self._settings.miss_cache_ms
        if len(self._missing) > self._settings.max_schemas:
            self._missing.popitem(last=False)

    def _is_one_too_many(self, key: SchemaKey, now_ms: int) -> bool:
        """Whether an unknown id counts as missing because so many were."""
        if key.kind is KeyKind.VERSION:
            return False
        times = self._miss_times
        is_full = len(times) == MISSES_PER_MINUTE and now_ms - times[0] < _MINUTE_MS
        if is_full and not self._is_refusing:
            logger.warning(
                "%d unknown schema ids within a minute: further ones count as unknown without a "
                "request to %s; do all records have the framing that was given?",
                MISSES_PER_MINUTE,
                self._servers[self._server],
            )
        self._is_refusing = is_full
        return is_full

    def __repr__(self) -> str:
        return (
            f"<SchemaLookups cached={len(self._cached)} missing={len(self._missing)} "
            f"tasks={len(self._tasks)} {'down' if self._down else 'up'}>"
        )
