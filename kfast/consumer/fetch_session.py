"""FetchSessionHandler: one broker's incremental fetch session (KIP-227).

Owns, for one node, what the fetcher wants fetched there, what the broker's session holds, and the
(id, epoch) of the next request. Network thread only; no I/O. Work is proportional to what changed
since the last request, so a thousand idle partitions cost nothing.

| next request (id, epoch) | meaning |
|---|---|
| (0, -1) | full fetch without a session: sessions are switched off |
| (0, 0) | full fetch, please open a session |
| (id, 0) | full fetch, close session id and open a new one |
| (id, n) | incremental: changes only; n goes up by one and from 2^31-1 to 1 |
| (id, -1) | close the session, at shutdown |

| event | next |
|---|---|
| full reply with a session id | (that id, 1) |
| full reply with id 0 | (0, 0): the broker has no slot free, full fetches work as well |
| full reply, empty and throttled | as before: the broker did not look at it |
| full reply that lacks or adds partitions | (id, 0), the reply is not used |
| incremental reply | (id, n + 1) |
| incremental reply with id 0 | (0, 0): the broker closed the session |
| incremental reply with another id or a foreign partition | (id, 0), the reply is not used |
| error 70 | (0, 0) |
| any other top-level error, disconnect, timeout | (id, 0), or (0, 0) without a session |
| switch between topic names and topic ids | (id, 0) |
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kfast.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

logger = logging.getLogger(__name__)

NO_SESSION: Final = 0
FULL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = (1 << 31) - 1
FETCH_SESSION_ID_NOT_FOUND: Final = 70


class SessionMetadata(NamedTuple):
    """Session id and epoch of a request.

    Parameters
    ----------
    session_id, epoch : int
        As on the wire.
    """

    session_id: int
    epoch: int

    @property
    def is_full(self) -> bool:
        """Whether a request with these lists every partition."""
        return self.epoch in (FULL_EPOCH, FINAL_EPOCH)

    def next_incremental(self) -> SessionMetadata:
        """Return what follows an answered request of the session."""
        return SessionMetadata(self.session_id, 1 if self.epoch == MAX_EPOCH else self.epoch + 1)

    def restart(self) -> SessionMetadata:
        """Return what closes this session, if there is one, and opens another."""
        return SessionMetadata(self.session_id, FULL_EPOCH)


INITIAL: Final = SessionMetadata(NO_SESSION, FULL_EPOCH)
SESSIONLESS: Final = SessionMetadata(NO_SESSION, FINAL_EPOCH)


class FetchTarget(NamedTuple):
    """What is asked for one partition.

    Parameters
    ----------
    topic_id : bytes
        The topic's id, `ZERO_UUID` when unknown.
    fetch_offset : int
        First offset wanted.
    leader_epoch : int
        Epoch of the leader as known, -1 for unknown; fences stale leaders (KIP-320).
    version : int
        Version of the partition; not on the wire.
    """

    topic_id: bytes
    fetch_offset: int
    leader_epoch: int
    version: int

    def is_same_on_wire(self, other: FetchTarget) -> bool:
        """Return whether a broker that has one of the two need not be sent the other."""
        return self[:3] == other[:3]


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """What one Fetch request is made of.

    Parameters
    ----------
    metadata : SessionMetadata
        Id and epoch.
    to_send : tuple of (TopicPartition, FetchTarget)
        Partitions to list, in the order in which the broker shall serve them.
    to_forget : tuple of (TopicPartition, bytes)
        Partitions to take out of the session, with the topic id they have there.
    """

    metadata: SessionMetadata
    to_send: tuple[tuple[TopicPartition, FetchTarget], ...]
    to_forget: tuple[tuple[TopicPartition, bytes], ...]


class FetchSessionHandler:
    """The fetch session with one broker.

    Parameters
    ----------
    node_id : int
        The broker.
    is_enabled : bool
        False sends every request full and without a session.
    """

    def __init__(self, node_id: int, *, is_enabled: bool = True) -> None:
        self.node_id = node_id
        self._is_enabled = is_enabled
        self._next = INITIAL if is_enabled else SESSIONLESS
        self._uses_topic_ids = False
        self._wanted: dict[TopicPartition, FetchTarget] = {}
        self._sent: dict[TopicPartition, FetchTarget] = {}
        self._touched: dict[TopicPartition, None] = {}
        self._topic_names: dict[bytes, str] = {}
        self._without_id: set[TopicPartition] = set()

    @property
    def next_metadata(self) -> SessionMetadata:
        """Id and epoch of the next request."""
        return self._next

    # --- what is wanted ---------------------------------------------------------------------------

    def want(self, tp: TopicPartition, target: FetchTarget) -> None:
        """Have a partition in the next request; a new one is served last."""
        if self._wanted.get(tp) != target:
            self._wanted[tp] = target
            self._touched[tp] = None
            if target.topic_id == ZERO_UUID:
                self._without_id.add(tp)
            else:
                self._without_id.discard(tp)

    def drop(self, tp: TopicPartition) -> None:
        """Leave a partition out of the next request."""
        if self._wanted.pop(tp, None) is not None:
            self._touched[tp] = None
            self._without_id.discard(tp)

    def move_to_end(self, tp: TopicPartition) -> None:
        """Serve a partition last in the next full request; brokers do it in incremental ones."""
        target = self._wanted.pop(tp, None)
        if target is not None:
            self._wanted[tp] = target

    def wanted(self, tp: TopicPartition) -> FetchTarget | None:
        """Return what is wanted of a partition, None if it is not wanted here."""
        return self._wanted.get(tp)

    def __contains__(self, tp: object) -> bool:
        return tp in self._wanted

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def has_all_topic_ids(self) -> bool:
        """Whether every wanted topic has an id, so that Fetch 13 and later may be used."""
        return not self._without_id

    def sent(self, tp: TopicPartition) -> FetchTarget | None:
        """Return what the last request asks for a partition, listed in it or kept in the session.

        None when the partition is not part of it.
        """
        return self._sent.get(tp)

    def sent_partitions(self) -> Collection[TopicPartition]:
        """Return the partitions of the last request, those kept in the session included."""
        return self._sent.keys()

    # --- requests ---------------------------------------------------------------------------------

    def build(self, *, uses_topic_ids: bool) -> SessionRequest:
        """Make the next request; the changes since the last one are now as good as sent."""
        if uses_topic_ids is not self._uses_topic_ids:
            self._uses_topic_ids = uses_topic_ids
            self._restart()
        request = self._build_full() if self._next.is_full else self._build_incremental()
        self._touched.clear()
        return request

    def _build_full(self) -> SessionRequest:
        self._sent = dict(self._wanted)
        self._topic_names = {target.topic_id: tp.topic for tp, target in self._sent.items()}
        return SessionRequest(self._next, tuple(self._sent.items()), ())

    def _build_incremental(self) -> SessionRequest:
        to_send: list[tuple[TopicPartition, FetchTarget]] = []
        to_forget: list[tuple[TopicPartition, bytes]] = []
        for tp in self._touched:
            wanted = self._wanted.get(tp)
            sent = self._sent.pop(tp, None)
            is_replaced = wanted is not None and sent is not None and self._has_new_id(wanted, sent)
            if sent is not None and (wanted is None or is_replaced):
                to_forget.append((tp, sent.topic_id))
            if wanted is not None:
                self._sent[tp] = wanted
                self._topic_names[wanted.topic_id] = tp.topic
                if sent is None or is_replaced or not wanted.is_same_on_wire(sent):
                    to_send.append((tp, wanted))
        return SessionRequest(self._next, tuple(to_send), tuple(to_forget))

    def _has_new_id(self, wanted: FetchTarget, sent: FetchTarget) -> bool:
        return self._uses_topic_ids and wanted.topic_id != sent.topic_id

    def close(self) -> SessionMetadata | None:
        """Return id and epoch that close the session at the broker; None when there is none."""
        session_id = self._next.session_id
        self._next = INITIAL if self._is_enabled else SESSIONLESS
        return SessionMetadata(session_id, FINAL_EPOCH) if session_id != NO_SESSION else None

    # --- replies ----------------------------------------------------------------------------------

    def resolve(
        self, topic: str | None, topic_id: bytes | None, partition: int
    ) -> TopicPartition | None:
        """Return which partition of the last request a reply means; None if it is none of them."""
        name = self._topic_names.get(topic_id or ZERO_UUID) if self._uses_topic_ids else topic
        if name is None:
            return None
        tp = TopicPartition(name, partition)
        sent = self._sent.get(tp)
        if sent is None or (self._uses_topic_ids and sent.topic_id != topic_id):
            return None
        return tp

    def handle_response(
        self,
        session_id: int,
        error_code: int,
        answered: Collection[TopicPartition | None],
        *,
        is_throttled: bool = False,
    ) -> bool:
        """Take the reply to the last request.

        Parameters
        ----------
        session_id, error_code : int
            Of the reply.
        answered : collection of TopicPartition or None
            The partitions listed, each as `resolve` returned it.
        is_throttled : bool
            Whether the reply carries a throttle time.

        Returns
        -------
        bool
            Whether the partitions of the reply may be used.
        """
        if error_code:
            logger.info(
                "Node %d refused the fetch session %s with error %d",
                self.node_id,
                self._next,
                error_code,
            )
            if error_code == FETCH_SESSION_ID_NOT_FOUND:
                self._next = SessionMetadata(NO_SESSION, self._next.epoch)
            self._restart()
            return False
        distinct = set(answered)
        is_foreign = None in distinct or len(distinct) < len(answered)
        if self._next.is_full:
            return self._handle_full(session_id, distinct, is_foreign, is_throttled=is_throttled)
        if is_foreign or session_id not in (NO_SESSION, self._next.session_id):
            return self._refuse("an incremental reply with partitions outside the session")
        self._next = self._next.next_incremental() if session_id else INITIAL
        return True

    def _handle_full(
        self,
        session_id: int,
        answered: Collection[TopicPartition | None],
        is_foreign: bool,
        *,
        is_throttled: bool,
    ) -> bool:
        if not answered and is_throttled:
            return False
        if self._is_enabled:
            self._next = SessionMetadata(session_id, FULL_EPOCH)
        if is_foreign or len(answered) != len(self._sent):
            return self._refuse("a full reply with other partitions than the request's")
        if self._is_enabled and session_id != NO_SESSION:
            self._next = self._next.next_incremental()
        return True

    def _refuse(self, what: str) -> bool:
        logger.warning("Node %d sent %s; starting the fetch session anew", self.node_id, what)
        self._restart()
        return False

    def handle_error(self) -> None:
        """Take that the last request was not answered: nobody knows the session's epoch."""
        self._restart()

    def _restart(self) -> None:
        if self._is_enabled:
            self._next = self._next.restart()

    def __repr__(self) -> str:
        return (
            f"<FetchSessionHandler node={self.node_id} next={tuple(self._next)}"
            f" wanted={len(self._wanted)} sent={len(self._sent)}>"
        )
