"""FetchSessionHandler: one broker's incremental fetch session (KIP-227).

Owns, for one broker, the partitions to fetch there, those of the broker's session, and the
(id, epoch) of the next request. Network thread only; no I/O. Work is proportional to what changed
since the last request, so a thousand idle partitions cost nothing.

| next request (id, epoch) | meaning |
|---|---|
| (0, -1) | full fetch without a session: sessions are disabled |
| (0, 0) | full fetch, open a session |
| (id, 0) | full fetch, close session id and open a new one |
| (id, n) | incremental: changes only; n goes up by one and from 2^31-1 to 1 |
| (id, -1) | close the session, at shutdown |

| event | next |
|---|---|
| full response with a session id | (that id, 1) |
| full response with id 0 | (0, 0): the broker has no free slot, full fetches work as well |
| full response, empty and throttled | as before: the broker has not processed the request |
| full response that lacks or adds partitions | (id, 0), the response is dropped |
| incremental response | (id, n + 1) |
| incremental response with id 0 | (0, 0): the broker closed the session |
| incremental response with another id or an unknown partition | (id, 0), response dropped |
| error 70 | (0, 0) |
| any other top-level error, disconnect, timeout | (id, 0), or (0, 0) without a session |
| switch between topic names and topic ids | (id, 0) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kfast._base.logs import get_logger
from kfast.errors import ErrorCode
from kfast.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from kfast._native.fetch_response import FetchedPartition, FetchResponseView

logger = get_logger(__name__)

NO_SESSION: Final = 0
FULL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = (1 << 31) - 1


class SessionMetadata(NamedTuple):
    """Session id and epoch of a request."""

    session_id: int
    epoch: int


_SPARE_NAMES: Final = 64
"""Names of topics that are no longer in a session, which may be kept."""

INITIAL: Final = SessionMetadata(NO_SESSION, FULL_EPOCH)
SESSIONLESS: Final = SessionMetadata(NO_SESSION, FINAL_EPOCH)


class FetchTarget(NamedTuple):
    """The request for one partition."""

    topic_id: bytes  # `ZERO_UUID` if unknown
    fetch_offset: int
    leader_epoch: int  # -1 if unknown; fences stale leaders (KIP-320)
    max_bytes: int
    version: int  # of the partition; not on the wire

    def is_same_on_wire(self, other: FetchTarget) -> bool:
        """Return whether the fields that are sent are the same."""
        return self[:4] == other[:4]


class LogOffsets(Protocol):
    """What a response says of the log of a partition, -1 where it says nothing."""

    @property
    def high_watermark(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...


class _LogOffsets(NamedTuple):
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


FetchedTarget = tuple[FetchTarget, "FetchedPartition"]
"""One partition of a response: as requested, as received."""


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The session's part of one Fetch request."""

    metadata: SessionMetadata
    to_send: tuple[tuple[TopicPartition, FetchTarget], ...]  # in the order of serving
    to_forget: tuple[tuple[TopicPartition, bytes], ...]  # with the topic id they were sent with


class FetchSessionHandler:
    """The session with one broker; if not enabled, every request is full, without a session."""

    def __init__(self, node_id: int, *, is_enabled: bool = True) -> None:
        self.node_id = node_id
        self._is_enabled = is_enabled
        self._session_id, self._epoch = INITIAL if is_enabled else SESSIONLESS
        self._uses_topic_ids = False
        self._targets: dict[TopicPartition, FetchTarget] = {}
        # Keyed by topic and number: a response, which has these, need not make a TopicPartition.
        self._sent: dict[tuple[str, int], tuple[TopicPartition, FetchTarget]] = {}
        # Of the partitions sent, as last received: the broker lists them when they change, not when
        # the partition is assigned anew, or when a response was of no use.
        self._log_offsets: dict[tuple[str, int], _LogOffsets] = {}
        self._touched: dict[TopicPartition, None] = {}
        self._topic_names: dict[bytes | None, str] = {}
        self._without_id: set[TopicPartition] = set()

    @property
    def next_metadata(self) -> SessionMetadata:
        """Id and epoch of the next request."""
        return SessionMetadata(self._session_id, self._epoch)

    # --- partitions to fetch ----------------------------------------------------------------------

    def add(self, tp: TopicPartition, target: FetchTarget) -> None:
        """Add a partition to the next request; a new one is served last."""
        if self._targets.get(tp) != target:
            self._targets[tp] = target
            self._touched[tp] = None
            if target.topic_id == ZERO_UUID:
                self._without_id.add(tp)
            else:
                self._without_id.discard(tp)

    def drop(self, tp: TopicPartition) -> None:
        """Remove a partition from the next request."""
        if self._targets.pop(tp, None) is not None:
            self._touched[tp] = None
            self._without_id.discard(tp)

    def move_to_end(self, tp: TopicPartition) -> None:
        """Serve a partition last in the next full request; brokers do it in incremental ones."""
        target = self._targets.pop(tp, None)
        if target is not None:
            self._targets[tp] = target

    def target(self, tp: TopicPartition) -> FetchTarget | None:
        """Return the target of a partition, None if it is not fetched here."""
        return self._targets.get(tp)

    def __contains__(self, tp: object) -> bool:
        return tp in self._targets

    def __len__(self) -> int:
        return len(self._targets)

    @property
    def has_all_topic_ids(self) -> bool:
        """Whether every topic has an id, so that Fetch 13 and later may be used."""
        return not self._without_id

    def sent(self, tp: TopicPartition) -> FetchTarget | None:
        """Return a partition of the last request, listed or kept in the session, else None."""
        sent = self._sent.get(tp)
        return None if sent is None else sent[1]

    def log_offsets(self, tp: TopicPartition, topic_id: bytes) -> LogOffsets | None:
        """Return the log offsets last received for a partition of the session, None for none."""
        sent = self._sent.get(tp)
        if sent is None or sent[1].topic_id != topic_id:
            return None
        return self._log_offsets.get(tp)

    # --- requests ---------------------------------------------------------------------------------

    def build(self, *, uses_topic_ids: bool) -> SessionRequest:
        """Make the next request; the changes since the last one count as sent."""
        if uses_topic_ids is not self._uses_topic_ids:
            self._uses_topic_ids = uses_topic_ids
            self._restart()
        is_incremental = self._epoch > FULL_EPOCH
        request = self._build_incremental() if is_incremental else self._build_full()
        self._touched.clear()
        return request

    def _build_full(self) -> SessionRequest:
        self._sent = {item[0]: item for item in self._targets.items()}
        self._log_offsets.clear()
        self._topic_names = {target.topic_id: tp.topic for tp, target in self._sent.values()}
        return SessionRequest(self.next_metadata, tuple(self._sent.values()), ())

    def _build_incremental(self) -> SessionRequest:
        to_send: list[tuple[TopicPartition, FetchTarget]] = []
        to_forget: list[tuple[TopicPartition, bytes]] = []
        for tp in self._touched:
            target = self._targets.get(tp)
            sent = self.sent(tp)
            self._sent.pop(tp, None)
            is_replaced = target is not None and sent is not None and self._has_new_id(target, sent)
            if sent is not None and (target is None or is_replaced):
                to_forget.append((tp, sent.topic_id))
                self._log_offsets.pop(tp, None)
            if target is not None:
                self._sent[tp] = (tp, target)
                self._topic_names[target.topic_id] = tp.topic
                if sent is None or is_replaced or not target.is_same_on_wire(sent):
                    to_send.append((tp, target))
        if len(self._topic_names) > 2 * len(self._sent) + _SPARE_NAMES:
            self._topic_names = {target.topic_id: tp.topic for tp, target in self._sent.values()}
        return SessionRequest(self.next_metadata, tuple(to_send), tuple(to_forget))

    def _has_new_id(self, target: FetchTarget, sent: FetchTarget) -> bool:
        return self._uses_topic_ids and target.topic_id != sent.topic_id

    def close(self) -> SessionMetadata | None:
        """Return id and epoch of the request that closes the session; None if there is none."""
        session_id = self._session_id
        self._session_id, self._epoch = INITIAL if self._is_enabled else SESSIONLESS
        return SessionMetadata(session_id, FINAL_EPOCH) if session_id != NO_SESSION else None

    # --- responses --------------------------------------------------------------------------------

    def handle_response(
        self, view: FetchResponseView
    ) -> dict[TopicPartition, FetchedTarget] | None:
        """Return the partitions of the response to the last request, None if it is dropped."""
        if view.error_code:
            self._session_error(view.error_code)
            return None
        uses_ids = self._uses_topic_ids
        partitions = view.partitions
        fetched: dict[TopicPartition, FetchedTarget] = {}
        for partition in partitions:
            topic_id = partition.topic_id
            topic = self._topic_names.get(topic_id) if uses_ids else partition.topic
            sent = None if topic is None else self._sent.get((topic, partition.partition))
            if sent is None or (uses_ids and sent[1].topic_id != topic_id):
                break
            tp, target = sent
            fetched[tp] = (target, partition)
            if (high_watermark := partition.high_watermark) >= 0:
                self._log_offsets[tp] = _LogOffsets(
                    high_watermark, partition.last_stable_offset, partition.log_start_offset
                )
        is_ours = len(fetched) == len(partitions)  # else one is unknown, or repeated
        if self._epoch <= FULL_EPOCH:
            return self._handle_full(view, fetched, is_ours=is_ours)
        session_id = view.session_id
        if not is_ours or session_id not in (NO_SESSION, self._session_id):
            self._drop_response("an incremental response with partitions outside the session")
            return None
        if session_id == NO_SESSION:
            self._session_id, self._epoch = INITIAL
        else:
            self._epoch = self._epoch % MAX_EPOCH + 1
        return fetched

    def _handle_full(
        self,
        view: FetchResponseView,
        fetched: dict[TopicPartition, FetchedTarget],
        *,
        is_ours: bool,
    ) -> dict[TopicPartition, FetchedTarget] | None:
        if not view.partitions and view.throttle_time_ms > 0:
            return None
        if self._is_enabled:
            self._session_id, self._epoch = view.session_id, FULL_EPOCH
        if not is_ours or len(fetched) != len(self._sent):
            self._drop_response("a full response with other partitions than the request")
            return None
        if self._is_enabled and view.session_id != NO_SESSION:
            self._epoch += 1
        return fetched

    def _session_error(self, error_code: int) -> None:
        logger.info(
            "Node %d answered fetch session %s with error %d",
            self.node_id,
            self.next_metadata,
            error_code,
        )
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = NO_SESSION
        self._restart()

    def _drop_response(self, content: str) -> None:
        logger.warning("Node %d sent %s; restarting the fetch session", self.node_id, content)
        self._restart()

    def handle_error(self) -> None:
        """Note that there is no response to the last request: the broker's epoch is unknown."""
        self._restart()

    def _restart(self) -> None:
        if self._is_enabled:
            self._epoch = FULL_EPOCH

    def __repr__(self) -> str:
        return (
            f"<FetchSessionHandler node={self.node_id} next={tuple(self.next_metadata)}"
            f" partitions={len(self._targets)} sent={len(self._sent)}>"
        )
