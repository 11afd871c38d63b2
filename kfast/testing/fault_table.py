"""FaultTable: which requests of a fake cluster go wrong, and how.

A rule counts the requests it matches; it applies from the ``nth`` on, ``times`` times. Several
rules may hit one request; they apply in the order added, to its ``ReplyPlan``. Connections are
requests of the pseudo API ``CONNECT``: a rule for it acts when a connection is accepted (``Drop``
and ``NeverAnswer`` make sense there). Protected by the cluster's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from kfast.testing.request_log import LoggedRequest

CONNECT: Final = -1
"""Pseudo API key of a connection being accepted."""

MessageEdit: TypeAlias = Callable[[Any, LoggedRequest], None]
"""Changes a response in place; the second argument is its request."""

FrameEdit: TypeAlias = Callable[[bytes], bytes]
"""Changes the whole answer, size prefix included."""

Pacing: TypeAlias = Callable[[int], Iterable[tuple[int, int]]]
"""Given the number of bytes, yields (chunk size, ms to wait before the chunk)."""


@dataclass(slots=True)
class ReplyPlan:
    """How one request is answered, or one connection accepted: the sum of its faults.

    Attributes
    ----------
    errors : list of (topic, partition, code)
        Injected errors; None as topic or partition means every one.
    top_level_error : int
        Injected error of the response itself.
    throttle_time_ms : int
        Sent to the client; the connection also stays mute for so long after the answer (KIP-219).
    is_quota_exceeded : bool
        With a throttle time: the Fetch answer holds no partitions at all.
    raw_answer : bytes, optional
        Sent in place of any answer; the request is not handled.
    delay_ms : int
        Time between the answer being ready and its first byte.
    is_answered : bool
        False: the request is handled, and nothing is ever sent on this connection again.
    keep_bytes : int, optional
        Only so many bytes of the answer are sent, then the connection closes.
    request_bytes : int, optional
        The connection closes when so many bytes of the request have come.
    is_closing, is_reset : bool
        Close after the answer; with a TCP reset.
    """

    errors: list[tuple[str | None, int | None, int]] = field(default_factory=list)
    top_level_error: int = 0
    throttle_time_ms: int = 0
    is_quota_exceeded: bool = False
    message_edits: list[MessageEdit] = field(default_factory=list)
    frame_edits: list[FrameEdit] = field(default_factory=list)
    raw_answer: bytes | None = None
    delay_ms: int = 0
    is_answered: bool = True
    pacing: Pacing | None = None
    keep_bytes: int | None = None
    request_bytes: int | None = None
    is_closing: bool = False
    is_reset: bool = False

    def error_for(self, topic: str, partition: int | None = None) -> int:
        """Return the injected error of a partition, or of a whole topic; 0 if none."""
        for error_topic, error_partition, code in self.errors:
            if error_topic in {None, topic} and error_partition in {None, partition}:
                return code
        return 0

    def edit_message(self, message: object, request: LoggedRequest) -> None:
        """Apply the message edits in the order the faults were added."""
        for edit in self.message_edits:
            edit(message, request)

    def edit_frame(self, frame: bytes) -> bytes:
        """Apply the frame edits and the cut."""
        for edit in self.frame_edits:
            frame = edit(frame)
        return frame if self.keep_bytes is None else frame[: self.keep_bytes]

    def chunks(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield (chunk size, gap in ms) for an answer of ``size`` bytes."""
        if self.pacing is None:
            yield size, 0
        else:
            yield from self.pacing(size)


class Fault(Protocol):
    """Changes how a request is answered."""

    def apply(self, plan: ReplyPlan) -> None:
        """Write the fault into the plan of the request it hits."""
        ...


@dataclass(slots=True, eq=False)
class FaultRule:
    """Faults, the requests they are for, and how often they have applied.

    Attributes
    ----------
    seen : int
        Matching requests so far.
    hits : int
        How often the faults were applied.
    """

    faults: tuple[Fault, ...]
    api: int | None = None
    node: int | None = None
    connection: int | None = None
    nth: int = 1
    times: int | None = 1
    where: Callable[[LoggedRequest], bool] | None = None
    seen: int = 0
    hits: int = 0

    @property
    def is_early(self) -> bool:
        """Return whether the rule acts before the request is complete."""
        plan = ReplyPlan()
        for fault in self.faults:
            fault.apply(plan)
        return plan.request_bytes is not None

    @property
    def is_used_up(self) -> bool:
        return self.times is not None and self.hits >= self.times

    def hit(self, request: LoggedRequest) -> bool:
        """Count a request that matches; return whether the faults apply to it."""
        if (
            self.is_used_up
            or (self.api is None and request.api_key == CONNECT)
            or self.api not in {None, request.api_key}
            or self.node not in {None, request.node_id}
            or self.connection not in {None, request.connection_id}
            or (self.where is not None and not self.where(request))
        ):
            return False
        self.seen += 1
        if self.seen < self.nth:
            return False
        self.hits += 1
        return True


class FaultTable:
    """All rules of a cluster."""

    def __init__(self) -> None:
        self.rules: list[FaultRule] = []

    def add(
        self,
        *faults: Fault,
        api: int | None = None,
        node: int | None = None,
        connection: int | None = None,
        nth: int = 1,
        times: int | None = 1,
        where: Callable[[LoggedRequest], bool] | None = None,
    ) -> FaultRule:
        """Add a rule.

        Parameters
        ----------
        *faults : Fault
            Applied together.
        api, node, connection : int, optional
            Which requests; None matches every one (but no accepted connections).
        nth : int
            The first matching request hit, counted from now, from 1.
        times : int or None
            How many requests in a row are hit; None means for ever.
        where : callable, optional
            Further condition on the request. A rule with ``DropMidRequest`` sees it before it is
            decoded: ``message`` is None.
        """
        rule = FaultRule(faults, api, node, connection, nth, times, where)
        self.rules.append(rule)
        return rule

    def remove(self, rule: FaultRule) -> None:
        """Take a rule out; it may be gone already."""
        if rule in self.rules:
            self.rules.remove(rule)

    def clear(self) -> None:
        """Take all rules out: the cluster is healthy again."""
        self.rules.clear()

    def plan(self, request: LoggedRequest, *, is_early: bool = False) -> ReplyPlan:
        """Return how a request is to be answered, counting it in every rule."""
        plan = ReplyPlan()
        for rule in self.rules:
            if rule.is_early == is_early and rule.hit(request):
                for fault in rule.faults:
                    fault.apply(plan)
        return plan

    def __repr__(self) -> str:
        return f"<FaultTable {len(self.rules)} rules>"
