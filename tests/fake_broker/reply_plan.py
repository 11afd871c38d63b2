"""How one request is going to be answered: the sum of all faults that apply to it.

Owns a mutable plan that starts as "answer normally" and that every applying fault changes. Handlers
read the error part, the connection the rest. The order in which the parts take effect: errors and
throttle while the answer is made, message edits, encoding, frame edits, cut, pacing, close.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.fake_broker.request_log import LoggedRequest

MessageEdit = Callable[[Any, LoggedRequest], None]
"""Changes a response object in place, given the request it answers."""

FrameEdit = Callable[[bytes], bytes]
"""Changes the whole answer, size prefix included."""

Pacing = Callable[[int], Iterable[tuple[int, int]]]
"""Given the number of bytes, yields (chunk size, ms to wait before the chunk)."""


@dataclass(slots=True)
class ReplyPlan:
    """What happens to one request, or to one connection when it is accepted.

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
        for wanted_topic, wanted_partition, code in self.errors:
            if wanted_topic in {None, topic} and (
                wanted_partition is None or wanted_partition == partition
            ):
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
