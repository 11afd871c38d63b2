"""What can go wrong with a request, one small class per fault.

Owns values only: a fault knows how to write itself into a ``ReplyPlan``; *when* it applies is the
business of ``FaultTable``. Faults that change partitions of a response are in ``fetch_faults``.
All of them are frozen, so that one fault can be used in several rules.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from tests.fake_broker.reply_plan import FrameEdit, MessageEdit, ReplyPlan

HTTP_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"400 Bad Request"
)
"""What a web server says to a Kafka request."""

TLS_ALERT: Final = bytes.fromhex("15030300020246")
"""What a TLS server says to a plaintext request: fatal alert 70, protocol version."""

_SIZE: Final = struct.Struct(">i")


class Fault(Protocol):
    """One thing that goes wrong."""

    def apply(self, plan: ReplyPlan) -> None:
        """Write the fault into the plan of the request it hits."""
        ...


@dataclass(frozen=True, slots=True)
class PartitionError:
    """Answer an error code for some or all partitions (for Metadata: topics, if no partition)."""

    code: int
    topic: str | None = None
    partition: int | None = None

    def apply(self, plan: ReplyPlan) -> None:
        plan.errors.append((self.topic, self.partition, self.code))


@dataclass(frozen=True, slots=True)
class TopLevelError:
    """Answer an error code of the response itself, and nothing else in it."""

    code: int

    def apply(self, plan: ReplyPlan) -> None:
        plan.top_level_error = self.code


@dataclass(frozen=True, slots=True)
class EditResponse:
    """Change the response object before it is encoded."""

    edit: MessageEdit

    def apply(self, plan: ReplyPlan) -> None:
        plan.message_edits.append(self.edit)


@dataclass(frozen=True, slots=True)
class EditFrame:
    """Change the encoded answer, its size prefix included."""

    edit: FrameEdit

    def apply(self, plan: ReplyPlan) -> None:
        plan.frame_edits.append(self.edit)


@dataclass(frozen=True, slots=True)
class Throttle:
    """Tell the client to wait and mute the connection for so long (KIP-219).

    With ``is_empty`` a Fetch is answered without partitions, as when the quota is used up.
    """

    throttle_time_ms: int
    is_empty: bool = False

    def apply(self, plan: ReplyPlan) -> None:
        plan.throttle_time_ms = self.throttle_time_ms
        plan.is_quota_exceeded = self.is_empty


@dataclass(frozen=True, slots=True)
class Drop:
    """Handle the request, then close the connection after ``after_bytes`` of the answer."""

    after_bytes: int = 0
    is_reset: bool = False

    def apply(self, plan: ReplyPlan) -> None:
        plan.keep_bytes = self.after_bytes
        plan.is_closing = True
        plan.is_reset = self.is_reset


@dataclass(frozen=True, slots=True)
class DropMidRequest:
    """Close the connection when ``after_bytes`` of the request (size prefix included) are in.

    The request is neither logged nor handled. Fewer than 12 bytes count as 12, which is what it
    takes to see which API is asked.
    """

    after_bytes: int = 12
    is_reset: bool = False

    def apply(self, plan: ReplyPlan) -> None:
        plan.request_bytes = self.after_bytes
        plan.is_closing = True
        plan.is_reset = self.is_reset


@dataclass(frozen=True, slots=True)
class Delay:
    """Hold the answer back."""

    delay_ms: int

    def apply(self, plan: ReplyPlan) -> None:
        plan.delay_ms += self.delay_ms


@dataclass(frozen=True, slots=True)
class NeverAnswer:
    """Blackhole: this request and all later ones on its connection stay unanswered."""

    def apply(self, plan: ReplyPlan) -> None:
        plan.is_answered = False


@dataclass(frozen=True, slots=True)
class Trickle:
    """Send the answer in small chunks, each after a wait; by default one byte per second."""

    chunk_bytes: int = 1
    interval_ms: int = 1000

    def apply(self, plan: ReplyPlan) -> None:
        plan.pacing = self._chunks

    def _chunks(self, size: int) -> Iterator[tuple[int, int]]:
        for start in range(0, size, self.chunk_bytes):
            yield min(self.chunk_bytes, size - start), self.interval_ms


@dataclass(frozen=True, slots=True)
class Split:
    """Send the answer as separate chunks without waits; the last size repeats to the end."""

    sizes: tuple[int, ...]

    def apply(self, plan: ReplyPlan) -> None:
        plan.pacing = self._chunks

    def _chunks(self, size: int) -> Iterator[tuple[int, int]]:
        sent = index = 0
        while sent < size:
            chunk = min(max(self.sizes[min(index, len(self.sizes) - 1)], 1), size - sent)
            yield chunk, 0
            sent += chunk
            index += 1


@dataclass(frozen=True, slots=True)
class WrongCorrelationId:
    """Answer with another correlation id."""

    shift: int = 1

    def apply(self, plan: ReplyPlan) -> None:
        plan.frame_edits.append(self._edit)

    def _edit(self, frame: bytes) -> bytes:
        if len(frame) < 8:  # another fault has left nothing to change
            return frame
        (correlation_id,) = _SIZE.unpack_from(frame, 4)
        return frame[:4] + _SIZE.pack((correlation_id + self.shift) & 0x7FFF_FFFF) + frame[8:]


@dataclass(frozen=True, slots=True)
class ClaimFrameSize:
    """Send the answer behind a size prefix that lies: negative, huge, too small."""

    size: int

    def apply(self, plan: ReplyPlan) -> None:
        plan.frame_edits.append(lambda frame: _SIZE.pack(self.size) + frame[4:])


@dataclass(frozen=True, slots=True)
class TruncateBody:
    """Drop the last bytes of the answer; the size prefix is made to fit."""

    drop_bytes: int

    def apply(self, plan: ReplyPlan) -> None:
        plan.frame_edits.append(self._edit)

    def _edit(self, frame: bytes) -> bytes:
        body = frame[4 : max(4, len(frame) - self.drop_bytes)]
        return _SIZE.pack(len(body)) + body


@dataclass(frozen=True, slots=True)
class FlipByte:
    """Invert all bits of one byte of the answer; negative positions count from its end."""

    position: int

    def apply(self, plan: ReplyPlan) -> None:
        plan.frame_edits.append(self._edit)

    def _edit(self, frame: bytes) -> bytes:
        damaged = bytearray(frame)
        damaged[self.position] ^= 0xFF
        return bytes(damaged)


@dataclass(frozen=True, slots=True)
class Answer:
    """Send arbitrary bytes in place of an answer; the request is not handled."""

    data: bytes
    is_closing: bool = True

    def apply(self, plan: ReplyPlan) -> None:
        plan.raw_answer = self.data
        plan.is_closing = self.is_closing
