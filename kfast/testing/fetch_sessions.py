"""Fetch sessions of one node (KIP-227), as the broker keeps them.

Owns the session cache and the rules by which a request's (session id, epoch) becomes the list of
partitions to read, and a response lists only those that changed. It reads no log.

==============  ===========================================================================
(0, -1)         no session; every request is complete
(0, 0)          complete request that asks for a session
(id, n >= 1)    changes only; n must be the next epoch of the session, else error 71
(id, 0)         drop session ``id``, open a new one with this complete request
(id, -1)        drop session ``id``; the request is complete and usually lists nothing
==============  ===========================================================================

An unknown id with n >= 1 is error 70. Mixing topic names and topic ids in a session is error 106.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kfast.errors import ErrorCode

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 0x7FFF_FFFF

PartitionKey = tuple[str, bytes, int]
"""Topic name ("" when asked by id), topic id (zero when asked by name), partition."""


@dataclass(frozen=True, slots=True)
class RequestedPartition:
    """One partition in a Fetch request."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class SessionPartition:
    """One partition of a session: the last request for it, and the last response."""

    request: RequestedPartition
    high_watermark: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class FetchSession:
    """One session."""

    session_id: int
    uses_topic_ids: bool
    epoch: int = 1
    partitions: dict[PartitionKey, SessionPartition] = field(default_factory=dict)


@dataclass(slots=True)
class SessionRequest:
    """A Fetch request after the session rules.

    Attributes
    ----------
    error : int
        Top-level error; nothing is read then.
    session : FetchSession, optional
        The session the reply belongs to.
    is_incremental : bool
        Whether the response lists only partitions that changed.
    partitions : dict
        Partitions to read, in the order in which byte limits apply to them.
    """

    partitions: dict[PartitionKey, RequestedPartition]
    error: int = 0
    session: FetchSession | None = None
    is_incremental: bool = False

    @property
    def session_id(self) -> int:
        """Return the id the reply carries."""
        return NO_SESSION if self.session is None else self.session.session_id


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """The parts of a partition's reply that decide whether it must be listed."""

    error: int
    records_bytes: int
    high_watermark: int
    log_start_offset: int
    preferred_read_replica: int = -1
    is_diverging: bool = False


class FetchSessionCache:
    """All sessions of one node.

    Parameters
    ----------
    max_sessions : int
        Slots; a request that finds none gets session id 0.
    first_id : int
        Id of the first session; later ones count up.
    """

    def __init__(self, max_sessions: int = 1000, first_id: int = 1_000_001) -> None:
        self.max_sessions = max_sessions
        self.sessions: dict[int, FetchSession] = {}
        self._next_id = first_id

    def evict(self, session_id: int | None = None) -> None:
        """Forget one session, or all: as if idle too long or displaced by a bigger one."""
        if session_id is None:
            self.sessions.clear()
        else:
            self.sessions.pop(session_id, None)

    def open_request(
        self,
        session_id: int,
        epoch: int,
        requested: dict[PartitionKey, RequestedPartition],
        forgotten: Iterable[PartitionKey],
        *,
        uses_topic_ids: bool,
    ) -> SessionRequest:
        """Apply a request to the cache."""
        if epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            self.sessions.pop(session_id, None)
            if epoch == FINAL_EPOCH or len(self.sessions) >= self.max_sessions:
                return SessionRequest(requested)
            return SessionRequest(requested, session=self._open(requested, uses_topic_ids))
        session = self.sessions.get(session_id)
        if session is None:
            return SessionRequest({}, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return SessionRequest({}, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return SessionRequest({}, error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        for key, request in requested.items():
            partition = session.partitions.get(key)
            if partition is None:
                session.partitions[key] = SessionPartition(request)
            else:
                partition.request = request
        for key in forgotten:
            session.partitions.pop(key, None)
        if not session.partitions:
            del self.sessions[session_id]
            return SessionRequest({})
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        return SessionRequest(
            {key: partition.request for key, partition in session.partitions.items()},
            session=session,
            is_incremental=True,
        )

    def _open(
        self, requested: dict[PartitionKey, RequestedPartition], uses_topic_ids: bool
    ) -> FetchSession:
        session = FetchSession(self._next_id, uses_topic_ids)
        self._next_id += 1
        session.partitions = {key: SessionPartition(request) for key, request in requested.items()}
        self.sessions[session.session_id] = session
        return session


def note_answer(request: SessionRequest, key: PartitionKey, outcome: PartitionOutcome) -> bool:
    """Note the outcome of a partition; return whether the response must list it.

    A complete response lists everything. An incremental one lists a partition that has data, an
    error, a redirect, a divergence, or a changed high watermark or log start. A partition with
    data goes to the end of the session, so that byte limits starve none.
    """
    session = request.session
    last = None if session is None else session.partitions.get(key)
    if session is None or last is None:
        return True
    must_list = (
        not request.is_incremental
        or outcome.error != 0
        or outcome.records_bytes > 0
        or outcome.preferred_read_replica >= 0
        or outcome.is_diverging
        or outcome.high_watermark != last.high_watermark
        or outcome.log_start_offset != last.log_start_offset
    )
    # After an error the next healthy reply must be listed even if nothing else changed.
    last.high_watermark = -1 if outcome.error else outcome.high_watermark
    last.log_start_offset = outcome.log_start_offset
    if outcome.records_bytes > 0:
        session.partitions[key] = session.partitions.pop(key)
    return must_list
