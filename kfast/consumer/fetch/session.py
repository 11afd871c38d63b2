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

from kfast.errors import ErrorCode
from kfast.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from kfast._native.fetch_response import FetchedPartition, FetchResponseView

logger = logging.getLogger(__name__)

NO_SESSION: Final = 0
FULL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = (1 << 31) - 1


class SessionMetadata(NamedTuple):
    """Session id and epoch of a request.

    Parameters
    ----------
    session_id, epoch : int
        As on the wire.
    """

    session_id: int
    epoch: int


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


AnsweredPartition = tuple[FetchTarget, "FetchedPartition"]
"""One partition of a reply: what was asked, what came."""


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
        self._session_id, self._epoch = INITIAL if is_enabled else SESSIONLESS
        self._uses_topic_ids = False
        self._wanted: dict[TopicPartition, FetchTarget] = {}
        # Keyed by topic and number: a reply, which names them, need not make a TopicPartition.
        self._sent: dict[tuple[str, int], tuple[TopicPartition, FetchTarget]] = {}
        self._touched: dict[TopicPartition, None] = {}
        self._topic_names: dict[bytes | None, str] = {}
        self._without_id: set[TopicPartition] = set()

    @property
    def next_metadata(self) -> SessionMetadata:
        """Id and epoch of the next request."""
        return SessionMetadata(self._session_id, self._epoch)

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
        found = self._sent.get(tp)
        return None if found is None else found[1]

    # --- requests ---------------------------------------------------------------------------------

    def build(self, *, uses_topic_ids: bool) -> SessionRequest:
        """Make the next request; the changes since the last one are now as good as sent."""
        if uses_topic_ids is not self._uses_topic_ids:
            self._uses_topic_ids = uses_topic_ids
            self._restart()
        is_incremental = self._epoch > FULL_EPOCH
        request = self._build_incremental() if is_incremental else self._build_full()
        self._touched.clear()
        return request

    def _build_full(self) -> SessionRequest:
        self._sent = {item[0]: item for item in self._wanted.items()}
        self._topic_names = {target.topic_id: tp.topic for tp, target in self._sent.values()}
        return SessionRequest(self.next_metadata, tuple(self._sent.values()), ())

    def _build_incremental(self) -> SessionRequest:
        to_send: list[tuple[TopicPartition, FetchTarget]] = []
        to_forget: list[tuple[TopicPartition, bytes]] = []
        for tp in self._touched:
            wanted = self._wanted.get(tp)
            sent = self.sent(tp)
            self._sent.pop(tp, None)
            is_replaced = wanted is not None and sent is not None and self._has_new_id(wanted, sent)
            if sent is not None and (wanted is None or is_replaced):
                to_forget.append((tp, sent.topic_id))
            if wanted is not None:
                self._sent[tp] = (tp, wanted)
                self._topic_names[wanted.topic_id] = tp.topic
                if sent is None or is_replaced or not wanted.is_same_on_wire(sent):
                    to_send.append((tp, wanted))
        return SessionRequest(self.next_metadata, tuple(to_send), tuple(to_forget))

    def _has_new_id(self, wanted: FetchTarget, sent: FetchTarget) -> bool:
        return self._uses_topic_ids and wanted.topic_id != sent.topic_id

    def close(self) -> SessionMetadata | None:
        """Return id and epoch that close the session at the broker; None when there is none."""
        session_id = self._session_id
        self._session_id, self._epoch = INITIAL if self._is_enabled else SESSIONLESS
        return SessionMetadata(session_id, FINAL_EPOCH) if session_id != NO_SESSION else None

    # --- replies ----------------------------------------------------------------------------------

    def handle_response(
        self, view: FetchResponseView
    ) -> dict[TopicPartition, AnsweredPartition] | None:
        """Take the reply to the last request.

        Parameters
        ----------
        view : FetchResponseView
            The reply.

        Returns
        -------
        dict of TopicPartition to AnsweredPartition, or None
            What the partitions answered, in the reply's order; None if it may not be used.
        """
        if view.error_code:
            self._refused(view.error_code)
            return None
        uses_ids = self._uses_topic_ids
        partitions = view.partitions
        answered: dict[TopicPartition, AnsweredPartition] = {}
        for part in partitions:
            topic_id = part.topic_id
            topic = self._topic_names.get(topic_id) if uses_ids else part.topic
            found = None if topic is None else self._sent.get((topic, part.partition))
            if found is None or (uses_ids and found[1].topic_id != topic_id):
                break
            tp, target = found
            answered[tp] = (target, part)
        is_ours = len(answered) == len(partitions)  # else one is foreign, or there twice
        if self._epoch <= FULL_EPOCH:
            return self._handle_full(view, answered, is_ours=is_ours)
        session_id = view.session_id
        if not is_ours or session_id not in (NO_SESSION, self._session_id):
            self._refuse("an incremental reply with partitions outside the session")
            return None
        if session_id == NO_SESSION:
            self._session_id, self._epoch = INITIAL
        else:
            self._epoch = self._epoch % MAX_EPOCH + 1
        return answered

    def _handle_full(
        self,
        view: FetchResponseView,
        answered: dict[TopicPartition, AnsweredPartition],
        *,
        is_ours: bool,
    ) -> dict[TopicPartition, AnsweredPartition] | None:
        if not view.partitions and view.throttle_time_ms > 0:
            return None
        if self._is_enabled:
            self._session_id, self._epoch = view.session_id, FULL_EPOCH
        if not is_ours or len(answered) != len(self._sent):
            self._refuse("a full reply with other partitions than the request's")
            return None
        if self._is_enabled and view.session_id != NO_SESSION:
            self._epoch += 1
        return answered

    def _refused(self, error_code: int) -> None:
        logger.info(
            "Node %d refused the fetch session %s with error %d",
            self.node_id,
            self.next_metadata,
            error_code,
        )
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = NO_SESSION
        self._restart()

    def _refuse(self, what: str) -> None:
        logger.warning("Node %d sent %s; starting the fetch session anew", self.node_id, what)
        self._restart()

    def handle_error(self) -> None:
        """Take that the last request was not answered: nobody knows the session's epoch."""
        self._restart()

    def _restart(self) -> None:
        if self._is_enabled:
            self._epoch = FULL_EPOCH

    def __repr__(self) -> str:
        return (
            f"<FetchSessionHandler node={self.node_id} next={tuple(self.next_metadata)}"
            f" wanted={len(self._wanted)} sent={len(self._sent)}>"
        )
