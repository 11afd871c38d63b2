"""Filling a `FetchBuffer`, and taking from it as a collector does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfast.consumer.fetch.buffer import FetchBuffer
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.errors import KafkaError

MIB = 1 << 20
ALWAYS = 60.0


class Rooms:
    """Counts the calls of on_room."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def put(
    buffer: FetchBuffer, *fetches: CompletedFetch, frame: int = 1000, expected: int = 0
) -> None:
    """Have an answer with these fetches come in."""
    buffer.fetch_answered(buffer.memory.fetch_sent(expected), frame, fetches)


def decode_all(buffer: FetchBuffer) -> int:
    count = 0
    while buffer.decoding.decode_one(0):
        count += 1
    return count


@dataclass
class HandedOut:
    """Rows that a collector hands out of a fetch."""

    fetch: CompletedFetch
    count: int
    is_used_up: bool
    rest: int | None = None
    error: KafkaError | None = None


def take(buffer: FetchBuffer, fetch: CompletedFetch) -> None:
    """Hand all rows of the current chunk out."""
    assert fetch.chunk is not None
    buffer.consume([HandedOut(fetch, len(fetch.chunk), True)])
