"""SchemaLookups: which schema to fetch next, what is known of which key, and when to give up.

Owns the cache of one registry, the look-ups under way and the back-off. Sans-IO: the time is an
argument, `poll` says what to fetch, and each `SchemaFetch` ends by one call of `handle`. At most
one fetch is in flight. No lock: the caller has one.

=====================  ===========================================================================
state of a key         leaves on
=====================  ===========================================================================
unknown                asked for: queued
queued                 `poll`, in turn: in flight; no look-up waits for it any more: unknown
in flight              its schema: known, or waiting for references; 404: missing; a failure that
                       may pass: queued behind the others; any other: its look-ups fail, unknown
waiting for            all of them known: known; one missing or failed: its look-ups fail, unknown
references
known                  the least recently used of more than ``max_schemas``: unknown
missing                ``miss_cache_ms`` later: unknown
=====================  ===========================================================================

Look-ups of the same key share its fetch. A look-up has its own deadline; it keeps what it has
found, whatever the cache drops. Bytes that are no framing look like ids that are unknown: after
``MISSES_PER_MINUTE`` of them within a minute, further ids that are not known count as missing
without a request.

A look-up ends before its deadline if no server has ever answered, and all of them have refused the
connection since it began, a second or more ago: waiting would not help. Once one has answered, a
registry that refuses is one that starts again.

The registry is *down* from a failure that may pass until the next answer: both changes are logged,
the first as a warning. Its servers are tried in turn, then after back-off, or when a Retry-After
says.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kfast._base.logs import get_logger
from kfast.errors import KafkaError, SchemaRegistryError
from kfast.registry.api import (
    Alias,
    Failure,
    NotFound,
    NotSupported,
    Outcome,
    RawSchema,
    unreachable,
)
from kfast.registry.registered_schema import (
    KeyKind,
    RegisteredSchema,
    SchemaAnswers,
    SchemaKey,
    SchemaReference,
)

if TYPE_CHECKING:
    from kfast._base.clock import Clock, ExponentialBackoff
    from kfast.registry.api import Where

logger = get_logger(__name__)

MAX_DEPTH: Final = 32
"""Of references."""
MISSES_PER_MINUTE: Final = 100
_MINUTE_MS: Final = 60_000
REFUSED_MS: Final = 1_000
"""How long a look-up goes on although all servers refuse."""


@dataclass(frozen=True, slots=True)
class SchemaFetch:
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
    is_serialized: bool
    pending: set[SchemaKey]
    found: dict[SchemaKey, RegisteredSchema] = field(default_factory=dict)
    not_found: set[SchemaKey] = field(default_factory=set)
    error: KafkaError | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing is pending any more."""
        return self.error is not None or not self.pending

    def answers(self) -> SchemaAnswers:
        """Return what became of the keys."""
        return SchemaAnswers(self.found, frozenset(self.not_found), self.error)


class _Known(NamedTuple):
    schema: RegisteredSchema
    depth: int
    """Of its references."""


@dataclass(slots=True, eq=False)
class _Wanted:
    """A key that is queued, in flight or waiting for references."""

    key: SchemaKey
    is_serialized: bool
    depth: int = 0
    """Length of the longest chain of references that leads here."""
    lookups: set[Lookup] = field(default_factory=set)
    parents: set[_Wanted] = field(default_factory=set)
    """What waits for this as one of its references."""
    raw: RawSchema | Alias | None = None
    children: dict[SchemaKey, _Known | None] = field(default_factory=dict)

    @property
    def is_wanted(self) -> bool:
        return bool(self.lookups or self.parents)


class SchemaLookups:
    """The look-ups of one registry, whose servers have ``urls``; the clock gives random numbers."""

    def __init__(
        self,
        urls: Sequence[Where],
        *,
        deadline_ms: int,
        backoff: ExponentialBackoff,
        miss_cache_ms: int,
        max_schemas: int,
        clock: Clock,
    ) -> None:
        self._urls = tuple(urls)
        self._deadline_ms = deadline_ms
        self._backoff = backoff
        self._miss_cache_ms = miss_cache_ms
        self._max_schemas = max_schemas
        self._clock = clock
        self._known: dict[SchemaKey, _Known] = {}
        """Least recently used first."""
        self._missing: dict[SchemaKey, int] = {}
        """When each is unknown again, the first to be so first."""
        self._miss_times: deque[int] = deque(maxlen=MISSES_PER_MINUTE)
        self._is_refusing = False
        self._wanted: dict[SchemaKey, _Wanted] = {}
        self._queue: deque[_Wanted] = deque()
        self._in_flight: _Wanted | None = None
        self._lookups: dict[Lookup, None] = {}
        self._done: list[Lookup] = []
        self._server = 0
        self._failures = 0
        self._next_ms = 0
        self._down: tuple[Where, str] | None = None
        """The server that failed last and why, until one answers."""
        self._has_answered = False
        self._refused_ms: dict[int, int] = {}
        """When each server whose last failure was a refusal has refused."""
        self._has_serialized = True

    # --- asking -----------------------------------------------------------------------------------

    def lookup(
        self, keys: Collection[SchemaKey], now_ms: int, *, is_serialized: bool = False
    ) -> Lookup:
        """Begin to look keys up; the result is done already if nothing has to be fetched."""
        made = Lookup(now_ms, now_ms + self._deadline_ms, is_serialized, set())
        self._forget_misses(now_ms)
        for key in dict.fromkeys(keys):
            known = self._use(key)
            if known is not None:
                made.found[key] = known.schema
            elif key in self._missing or (isinstance(key.value, int) and key.value < 0):
                made.not_found.add(key)  # no registry gives negative ids
            else:
                self._want(key, is_serialized).lookups.add(made)
                made.pending.add(key)
        if made.pending:
            self._lookups[made] = None
        return made

    def cancel(self, lookup: Lookup) -> None:
        """Drop a look-up: nothing is fetched for it alone."""
        self._leave(lookup)
        self._done = [each for each in self._done if each is not lookup]

    def expire(self, now_ms: int) -> None:
        """End the look-ups whose deadline has come, or that all servers refuse."""
        for lookup in [each for each in self._lookups if now_ms >= self._end_ms(each)]:
            url, cause = self._down or (self._urls[self._server], "timed out")
            seconds = (self._end_ms(lookup) - lookup.begun_ms) / 1000
            what = f"{min(lookup.pending, key=str)} in {seconds:g} s"
            self._fail(lookup, unreachable(url, cause, what))

    def _end_ms(self, lookup: Lookup) -> int:
        """Return when a look-up ends without an answer."""
        servers = range(len(self._urls))
        is_certain = not self._has_answered and all(
            self._refused_ms.get(server, -1) >= lookup.begun_ms for server in servers
        )
        end_ms = lookup.begun_ms + REFUSED_MS if is_certain else lookup.deadline_ms
        return min(end_ms, lookup.deadline_ms)

    def fail_all(self, error: KafkaError) -> None:
        """End every look-up with an error."""
        for lookup in list(self._lookups):
            self._fail(lookup, error)

    def take_done(self) -> list[Lookup]:
        """Return the look-ups that were pending and are done, each once."""
        done, self._done = self._done, []
        return done

    # --- fetching ---------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> SchemaFetch | None:
        """Return the next request to make, None if there is none at the moment."""
        self.expire(now_ms)
        if self._in_flight is not None or now_ms < self._next_ms:
            return None
        while self._queue:
            wanted = self._queue.popleft()
            if not wanted.is_wanted:
                self._wanted.pop(wanted.key, None)
            elif self._is_one_too_many(wanted, now_ms):
                self._end(wanted, None)
            else:
                self._in_flight = wanted
                is_serialized = wanted.is_serialized and self._has_serialized
                return SchemaFetch(wanted.key, self._server, is_serialized)
        return None

    def next_poll_ms(self) -> int | None:
        """Return when to `poll` again, None if there is nothing to wait for."""
        if not self._lookups:
            return None
        deadline_ms = min(map(self._end_ms, self._lookups))
        return min(deadline_ms, self._next_ms) if self._queue else deadline_ms

    def handle(self, outcome: Outcome, now_ms: int) -> None:
        """Take the outcome of the fetch in flight."""
        wanted, self._in_flight = self._in_flight, None
        assert wanted is not None
        if isinstance(outcome, Failure) and outcome.may_pass:
            self._try_again(wanted, outcome, now_ms)
            return
        self._is_up()
        if isinstance(outcome, NotSupported):
            self._has_serialized = False
            self._queue.appendleft(wanted)
        elif isinstance(outcome, NotFound):
            self._miss(wanted, now_ms)
        elif isinstance(outcome, Failure):
            # A caller that polls on must not ask at the rate of its polls.
            self._failures += 1
            self._next_ms = now_ms + self._backoff.backoff_ms(self._failures - 1, self._clock)
            self._give_up(wanted, outcome.error)
        else:
            self._failures = 0
            wanted.raw = outcome
            self._resolve(wanted)

    def _try_again(self, wanted: _Wanted, failure: Failure, now_ms: int) -> None:
        url, cause = self._urls[self._server], failure.error.cause or failure.error.message
        level = logging.WARNING if self._down is None else logging.DEBUG
        logger.log(level, "no answer from the schema registry %s: %s", url, cause)
        self._down = url, cause
        if failure.is_refused:
            self._refused_ms[self._server] = now_ms
        else:
            self._refused_ms.pop(self._server, None)
        self._failures += 1
        self._server = (self._server + 1) % len(self._urls)
        rounds, rest = divmod(self._failures, len(self._urls))
        if not rest:
            self._next_ms = now_ms + self._backoff.backoff_ms(rounds - 1, self._clock)
        self._next_ms = max(self._next_ms, now_ms + failure.retry_after_ms)
        self._queue.append(wanted)

    def _is_up(self) -> None:
        self._has_answered = True
        if self._down is not None:
            logger.info("the schema registry %s answers again", self._urls[self._server])
            self._down = None
            self._failures = 0

    # --- what is wanted ---------------------------------------------------------------------------

    def _want(self, key: SchemaKey, is_serialized: bool) -> _Wanted:
        wanted = self._wanted.get(key)
        if wanted is None:
            wanted = self._wanted[key] = _Wanted(key, is_serialized)
            self._queue.append(wanted)
        return wanted

    def _drop(self, wanted: _Wanted) -> None:
        """Forget a key that no look-up waits for, and what only its references needed."""
        self._wanted.pop(wanted.key, None)
        for key in wanted.children:
            child = self._wanted.get(key)
            if child is not None:
                child.parents.discard(wanted)
                self._drop_if_idle(child)

    def _drop_if_idle(self, wanted: _Wanted) -> None:
        # What is queued or in flight is dropped when its turn comes.
        if wanted.raw is not None and not wanted.is_wanted:
            self._drop(wanted)

    def _leave(self, lookup: Lookup) -> None:
        """Take a look-up out of all keys that it waits for."""
        self._lookups.pop(lookup, None)
        for key in lookup.pending:
            wanted = self._wanted.get(key)
            if wanted is not None:
                wanted.lookups.discard(lookup)
                self._drop_if_idle(wanted)

    def _fail(self, lookup: Lookup, error: KafkaError) -> None:
        lookup.error = error
        self._leave(lookup)
        self._done.append(lookup)

    def _end(self, wanted: _Wanted, schema: RegisteredSchema | None) -> None:
        """Answer the look-ups of a key that is known, or missing."""
        self._wanted.pop(wanted.key, None)
        for lookup in wanted.lookups:
            lookup.pending.discard(wanted.key)
            if schema is None:
                lookup.not_found.add(wanted.key)
            else:
                lookup.found[wanted.key] = schema
            if lookup.is_done:
                del self._lookups[lookup]
                self._done.append(lookup)
        wanted.lookups.clear()

    def _give_up(self, wanted: _Wanted, error: SchemaRegistryError) -> None:
        """Fail everything that waits for a key."""
        parents, wanted.parents = wanted.parents, set()
        for lookup in list(wanted.lookups):
            self._fail(lookup, error)
        for parent in parents:
            self._give_up(parent, error)
        self._drop(wanted)

    # --- references -------------------------------------------------------------------------------

    def _resolve(self, wanted: _Wanted) -> None:
        """Take the raw schema of a key: known if its references are, else they are wanted too."""
        raw = wanted.raw
        assert raw is not None
        keys = [raw.key] if isinstance(raw, Alias) else [each.key for each in raw.references]
        if keys and not wanted.is_wanted:
            self._wanted.pop(wanted.key, None)
            return
        for key in dict.fromkeys(keys):
            known = self._use(key)
            wanted.children[key] = known
            if known is not None:
                continue
            child = self._want(key, wanted.is_serialized)
            if _is_above(child, wanted):
                self._give_up(wanted, self._bad(wanted, f"{key} refers back to itself"))
                return
            child.parents.add(wanted)
        if self._deepen(wanted, wanted.depth):
            self._complete(wanted)
        else:
            cause = f"its references are more than {MAX_DEPTH} deep"
            self._give_up(wanted, self._bad(wanted, cause))

    def _deepen(self, wanted: _Wanted, depth: int) -> bool:
        """Set the depth of a key, and that of its references; False if one is too deep."""
        wanted.depth = depth
        for key, known in wanted.children.items():
            if depth + 1 + (0 if known is None else known.depth) > MAX_DEPTH:
                return False
            child = None if known is not None else self._wanted.get(key)
            if child is None or child.depth > depth:
                continue
            if not self._deepen(child, depth + 1):
                return False
        return True

    def _complete(self, wanted: _Wanted) -> None:
        """Make the schema of a key if all its references are there, then those that wait for it."""
        raw, children = wanted.raw, wanted.children
        there = {key: child for key, child in children.items() if child is not None}
        if raw is None or len(there) < len(children):
            return
        if isinstance(raw, Alias):
            made = there[raw.key]
        else:
            references = tuple(
                SchemaReference(
                    each.name, str(each.key.value), each.key.version or 0, there[each.key].schema
                )
                for each in raw.references
            )
            schema = RegisteredSchema(
                raw.schema_type, raw.text, references, raw.id, raw.guid, raw.subject, raw.version
            )
            made = _Known(schema, max((1 + child.depth for child in there.values()), default=0))
        self._keep(wanted.key, made)
        self._end(wanted, made.schema)
        parents, wanted.parents = wanted.parents, set()
        for parent in parents:
            parent.children[wanted.key] = made
            self._complete(parent)

    def _bad(self, wanted: _Wanted, cause: str) -> SchemaRegistryError:
        url = self._urls[self._server]
        return SchemaRegistryError(
            f"{wanted.key} cannot be used: its references cannot be resolved",
            cause=cause,
            hint=f"look at the schema in the registry {url}",
            url=str(url),
        )

    # --- the caches -------------------------------------------------------------------------------

    def _use(self, key: SchemaKey) -> _Known | None:
        known = self._known.pop(key, None)
        if known is not None:
            self._known[key] = known  # now the most recently used one
        return known

    def _keep(self, key: SchemaKey, known: _Known) -> None:
        if key.kind is KeyKind.VERSION and key.version is None:
            return  # the latest version may be another one soon
        self._known[key] = known
        while len(self._known) > self._max_schemas:
            del self._known[next(iter(self._known))]

    def _miss(self, wanted: _Wanted, now_ms: int) -> None:
        key = wanted.key
        self._failures = 0
        parents, wanted.parents = wanted.parents, set()
        for parent in parents:
            self._give_up(parent, self._bad(parent, f"the registry does not have {key}"))
        if key.kind is not KeyKind.VERSION:
            self._miss_times.append(now_ms)
            if self._miss_cache_ms > 0:
                self._missing[key] = now_ms + self._miss_cache_ms
            while len(self._missing) > self._max_schemas:
                del self._missing[next(iter(self._missing))]
        self._end(wanted, None)

    def _forget_misses(self, now_ms: int) -> None:
        while self._missing:
            key = next(iter(self._missing))
            if self._missing[key] > now_ms:
                return
            del self._missing[key]

    def _is_one_too_many(self, wanted: _Wanted, now_ms: int) -> bool:
        """Whether an unknown id counts as missing because so many were."""
        if wanted.parents or wanted.key.kind is KeyKind.VERSION:
            return False
        times = self._miss_times
        is_full = len(times) == MISSES_PER_MINUTE and now_ms - times[0] < _MINUTE_MS
        if is_full and not self._is_refusing:
            logger.warning(
                "%d unknown schema ids within a minute: further ones count as unknown without a "
                "request to %s; do all records have the framing that was given?",
                MISSES_PER_MINUTE,
                self._urls[self._server],
            )
        self._is_refusing = is_full
        return is_full

    def __repr__(self) -> str:
        return (
            f"<SchemaLookups known={len(self._known)} missing={len(self._missing)} "
            f"wanted={len(self._wanted)} {'down' if self._down else 'up'}>"
        )


def _is_above(above: _Wanted, below: _Wanted) -> bool:
    """Whether one key is another one, or waits for it as a reference at any depth."""
    seen = {below}
    ahead = [below]
    while ahead:
        each = ahead.pop()
        if each is above:
            return True
        ahead += each.parents - seen
        seen |= each.parents
    return False
