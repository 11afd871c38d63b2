"""Wording that several messages share: "did you mean ...?", and which partitions there are.

Owns nothing; pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate nearest to a misspelt word, if at most two letters differ.

    Letter case does not count as a difference. Words of up to three letters may differ in one.
    """
    limit = 2 if len(word) > 3 else 1
    best: str | None = None
    for candidate in candidates:
        distance = _edit_distance(word.casefold(), candidate.casefold(), limit)
        if distance <= limit:
            if distance == 0:
                return candidate
            best, limit = candidate, distance - 1
    return best


def partition_range(topic: str, partitions: Collection[int]) -> str:
    """Return which partitions a topic has, as a message says it."""
    if not partitions:
        return f"{topic} has no partitions"
    last = max(partitions)
    return f"{topic} has partitions 0-{last}" if last else f"{topic} has one partition, 0"


def _edit_distance(a: str, b: str, limit: int) -> int:
    """Return the Levenshtein distance, or any number above ``limit`` once it must exceed that."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (letter != other))
        if min(row) > limit:
            return limit + 1
    return row[-1]
