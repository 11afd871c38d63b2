"""A fetch buffer with memory to account for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.errors import KafkaError

if TYPE_CHECKING:
    from kfast.consumer.fetch.completed_fetch import CompletedFetch


MIB = 1 << 20


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
    buffer.fetch_answered(buffer.fetch_sent(expected), frame, fetches)


@dataclass
class Part:
    """What a collector hands out of a fetch."""

    fetch: CompletedFetch
    count: int
    is_used_up: bool
    rest: int | None = None
    error: KafkaError | None = None


def take(buffer: FetchBuffer, fetch: CompletedFetch) -> None:
    """Hand all rows of the current chunk out."""
    assert fetch.chunk is not None
    buffer.consume([Part(fetch, len(fetch.chunk), True)])
