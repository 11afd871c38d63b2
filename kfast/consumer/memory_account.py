"""MemoryAccount: the bytes behind ``buffer_memory_bytes``.

Owns the numbers and nothing else. It has no lock of its own: it is part of `FetchBuffer`, under
whose lock every method is called.

| counts | from | until |
|---|---|---|
| a frame, in full | its reception is admitted | the last of its slices needs it no more |
| a decoded chunk, with what it holds beside the frame | it is published | it was handed out |

A frame is pinned by its smallest slice, so counting slices would count too little. What requests
under way are expected to bring is known too; it does not count as used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

FRAME_SHARE: Final = (4, 5)
"""The part of the cap that frames may take; the rest lets decode threads work ahead."""


def frame_share(buffer_memory_bytes: int) -> int:
    """Return the bytes that frames may take of a cap."""
    part, whole = FRAME_SHARE
    return buffer_memory_bytes * part // whole


class _Admitted(NamedTuple):
    """A frame being received: its size, and the last request sent before it."""

    nbytes: int
    request: int


class FrameHold:
    """The memory of one response frame, shared by the fetches that have a slice of it.

    Parameters
    ----------
    nbytes : int
        Size of the frame.
    slices : int
        Fetches that still need it.
    """

    __slots__ = ("nbytes", "slices")

    def __init__(self, nbytes: int, slices: int) -> None:
        self.nbytes = nbytes
        self.slices = slices

    def __repr__(self) -> str:
        return f"<FrameHold {self.nbytes} bytes, {self.slices} slices left>"


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedAnswer:
    """One Fetch under way, as the account knows it.

    Parameters
    ----------
    number : int
        Counts the requests; a later one has a higher number.
    nbytes : int
        About how large the answer will be.
    """

    number: int
    nbytes: int


class MemoryAccount:
    """What is used, what is on its way, and what still fits.

    Parameters
    ----------
    cap : int
        ``buffer_memory_bytes``.
    chunk_bytes : int
        Most that decoding one chunk normally produces.
    """

    __slots__ = (
        "_chunk_bytes",
        "_decoded_bytes",
        "_expansion",
        "_expected_bytes",
        "_frame_bytes",
        "_receiving",
        "_requests",
        "_requests_sent",
        "cap",
    )

    def __init__(self, cap: int, chunk_bytes: int) -> None:
        self.cap = cap
        self._chunk_bytes = chunk_bytes
        self._frame_bytes = 0
        self._decoded_bytes = 0
        self._receiving: list[_Admitted] = []
        self._requests: dict[int, ExpectedAnswer] = {}
        self._requests_sent = 0
        self._expected_bytes = 0
        self._expansion = 1.0

    # --- requests ---------------------------------------------------------------------------------

    def fetch_sent(self, expected_bytes: int) -> ExpectedAnswer:
        """Note a request and what it is expected to bring."""
        self._requests_sent += 1
        answer = ExpectedAnswer(self._requests_sent, expected_bytes)
        self._requests[answer.number] = answer
        self._expected_bytes += expected_bytes
        return answer

    def fetch_ended(self, answer: ExpectedAnswer) -> None:
        """Note that a request is not under way any more."""
        if self._requests.pop(answer.number, None) is None:
            return
        self._expected_bytes -= answer.nbytes
        # A frame admitted while only requests were under way that have all ended is gone: its
        # connection broke, or it was no Fetch answer.
        if self._receiving:
            oldest = min(self._requests, default=self._requests_sent + 1)
            self._receiving = [frame for frame in self._receiving if frame.request >= oldest]

    @property
    def has_requests(self) -> bool:
        """Whether any request is under way."""
        return bool(self._requests)

    # --- frames -----------------------------------------------------------------------------------

    def admit(self, frame_bytes: int, *, may_overdraw: bool) -> bool:
        """Set bytes aside for a frame if it fits, or if it may overdraw and is the only one."""
        may_overdraw = may_overdraw and not self._receiving
        if self.used + frame_bytes > self.cap and not may_overdraw:
            return False
        self._receiving.append(_Admitted(frame_bytes, self._requests_sent))
        return True

    @property
    def is_receiving(self) -> bool:
        """Whether bytes are set aside for a frame that is not there yet."""
        return bool(self._receiving)

    def fetch_answered(
        self, answer: ExpectedAnswer, frame_bytes: int, slices: int
    ) -> FrameHold | None:
        """Note the frame a request brought, which counts as long as so many slices need it.

        What was set aside for the frame is free again.

        Returns
        -------
        FrameHold or None
            None without slices: the frame is of no use to anybody.
        """
        for frame in self._receiving:
            if frame.nbytes == frame_bytes:
                self._receiving.remove(frame)
                break
        self.fetch_ended(answer)
        if not slices:
            return None
        self._frame_bytes += frame_bytes
        return FrameHold(frame_bytes, slices)

    def release_slice(self, hold: FrameHold) -> bool:
        """Note that a slice does not need its frame any more; return whether bytes got free."""
        hold.slices -= 1
        if hold.slices:
            return False
        self._frame_bytes -= hold.nbytes
        return True

    def frame_room(self) -> int:
        """Return how many bytes of frames may still come; 0 or less means none."""
        frames = self._frame_bytes + self._receiving_bytes
        return min(frame_share(self.cap), self.cap - self._decoded_bytes) - frames

    # --- chunks -----------------------------------------------------------------------------------

    def may_decode_ahead(self, raw_bytes: int) -> bool:
        """Return whether a chunk decoded from a slice fits beside the answers expected."""
        outcome = min(self._chunk_bytes, int(raw_bytes * self._expansion))
        return self.used + max(0, self._expected_bytes) + outcome <= self.cap

    def add_chunk(self, nbytes: int, raw_bytes: int) -> None:
        """Count a decoded chunk, and learn from it how much decoding takes."""
        self._decoded_bytes += nbytes
        if raw_bytes:
            self._expansion += (nbytes / raw_bytes - self._expansion) / 8

    def release_chunk(self, nbytes: int) -> None:
        """Note that a chunk is gone."""
        self._decoded_bytes -= nbytes

    # --- the sum ----------------------------------------------------------------------------------

    @property
    def used(self) -> int:
        """Bytes of frames, frames being received and decoded chunks."""
        return self._frame_bytes + self._decoded_bytes + self._receiving_bytes

    @property
    def _receiving_bytes(self) -> int:
        return sum(frame.nbytes for frame in self._receiving) if self._receiving else 0

    def __repr__(self) -> str:
        return (
            f"<MemoryAccount {self.used} of {self.cap} bytes: frames {self._frame_bytes},"
            f" decoded {self._decoded_bytes}, receiving {self._receiving_bytes}>"
        )
