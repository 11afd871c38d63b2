"""Faults of hostile or broken servers: frames that are no answers, or that are damaged."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kfast.testing.fault_table import FrameEdit, ReplyPlan

TLS_ALERT: Final = bytes.fromhex("15030300020246")
"""What a TLS server says to a plaintext request: fatal alert 70, protocol version."""

_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class EditFrame:
    """Change the encoded answer, its size prefix included."""

    edit: FrameEdit

    def apply(self, plan: ReplyPlan) -> None:
        plan.frame_edits.append(self.edit)


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
