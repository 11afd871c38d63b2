"""Parts of error messages: the nearest name for "did you mean ...?", and a topic's partitions.

Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate nearest to a misspelt word, if at most two letters differ.

    Case is ignored, and two letters that are swapped count as one that differs. Words of up to
    three letters may differ in one letter.
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
    """Return a phrase naming the partitions of a topic, for messages."""
    if not partitions:
        return f"{topic} has no partitions"
    last = max(partitions)
    return f"{topic} has partitions 0-{last}" if last else f"{topic} has one partition, 0"


def _edit_distance(a: str, b: str, limit: int) -> int:
    """Return the distance of Levenshtein and Damerau, or any number above ``limit`` if it is."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    above = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        row = [i]
        for j, other in enumerate(b, 1):
            least = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and other == a[i - 2]:
                least = min(least, before[j - 2] + 1)
            row.append(least)
        if min(row) > limit:
            return limit + 1
        before, above = above, row
    return above[-1]
