"""The ledger of a group: what its members told, partition by partition, and what must hold.

A *stint* is the time one member owns one partition. Checked of every stint: records are delivered
only within it, in order and without gaps, from the position it began with. Between stints: nobody
begins before a member that was told to give up has done so; after a clean end the next stint begins
exactly where the last one stopped; after an unclean one (killed, lost, or revoked with a commit
that the coordinator refused) between the last commit and there. In all: everything produced was
delivered, and everything produced was processed.

A member that was held or kept away from poll() may have been expelled without knowing yet: what it
does until it is told, such as running the step of a generation that is over, counts as unclean.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from kfast import TopicPartition

Event = Mapping[str, Any]


@dataclass(slots=True, eq=False)
class Stint:
    """One member's time with one partition.

    Attributes
    ----------
    start, end : float
        When it was assigned, and when revocation or loss was told.
    is_clean : bool
        Whether it ended by revocation, and no commit of it was refused.
    first, next, committed : int
        The position it began with, the one after what was delivered, and the last commit within;
        -1 while unknown (other clients).
    generation : int
        The generation it was assigned in; -1 when unknown.
    """

    member: str
    tp: TopicPartition
    start: float
    first: int
    next: int
    committed: int
    generation: int = -1
    end: float | None = None
    is_clean: bool = False


@dataclass(slots=True)
class Ledger:
    """Everything the members of one group told.

    Parameters
    ----------
    events : Mapping of str to iterable of Event
        By member, in order.
    starts : Mapping, optional
        The position a partition begins with when nothing is committed; default 0.
    disturbed : set of str
        Members that may have been expelled without their knowledge.
    """

    events: Mapping[str, Iterable[Event]]
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    disturbed: Set[str] = frozenset()
    stints: dict[TopicPartition, list[Stint]] = field(init=False)
    processed: dict[TopicPartition, set[int]] = field(init=False)
    delivered: dict[TopicPartition, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.stints = defaultdict(list)
        self.processed = defaultdict(set)
        self.delivered = defaultdict(list)
        for member, events in self.events.items():
            self._read(member, events)
        for stints in self.stints.values():
            stints.sort(key=lambda stint: stint.start)

    def _read(self, member: str, events: Iterable[Event]) -> None:
        owned: dict[TopicPartition, Stint] = {}
        revoked: list[Stint] = []
        is_refused = False  # the last auto-commit failed
        for event in events:
            match event["event"]:
                case "assigned":
                    for topic, partition, position in event["positions"]:
                        tp = TopicPartition(topic, partition)
                        assert tp not in owned, f"{member} was assigned {tp} twice"
                        stint = Stint(
                            member,
                            tp,
                            event["t"],
                            position,
                            position,
                            position,
                            event.get("generation", -1),
                        )
                        owned[tp] = stint
                        self.stints[tp].append(stint)
                case "revoked" | "lost":
                    revoked.clear()
                    for topic, partition in event["partitions"]:
                        stint = owned.pop(TopicPartition(topic, partition))
                        stint.end = event["t"]
                        stint.is_clean = event["event"] == "revoked" and not is_refused
                        revoked.append(stint)
                case "refused":
                    for stint in revoked:
                        stint.is_clean = False
                case "log" if event["message"].startswith("auto-commit failed"):
                    is_refused = True
                case "delivered":
                    for topic, partition, first, last in event["ranges"]:
                        tp = TopicPartition(topic, partition)
                        assert tp in owned, f"{member} delivered {tp} without having it: {event}"
                        stint = owned[tp]
                        if stint.first < 0:
                            stint.first = stint.next = stint.committed = first
                        assert first == stint.next, f"{member}, {tp}: {first} after {stint.next}"
                        stint.next = last + 1
                        self.delivered[tp] += range(first, last + 1)
                case "processed":
                    for topic, partition, first, last in event["ranges"]:
                        self.processed[TopicPartition(topic, partition)].update(
                            range(first, last + 1)
                        )
                case "committed":
                    is_refused = False
                    for topic, partition, offset in event["offsets"]:
                        held = owned.get(TopicPartition(topic, partition))
                        if held is not None:
                            assert offset <= held.next, f"{member} committed ahead: {event} {held}"
                            held.committed = offset

    def check(self, ends: Mapping[TopicPartition, int]) -> None:
        """Check everything; ``ends`` says how much was produced."""
        for tp, stints in sorted(self.stints.items()):
            self._check_changes(tp, stints)
        for tp, end in ends.items():
            start = self.starts.get(tp, 0)
            produced = set(range(start, end))
            assert set(self.delivered[tp]) == produced, f"{tp}: delivered"
            assert self.processed[tp] == produced, f"{tp}: processed"

    def _check_changes(self, tp: TopicPartition, stints: list[Stint]) -> None:
        low = high = self.starts.get(tp, 0)
        stints = list(self._timely(stints))
        before: Stint | None = None
        for stint, following in zip(stints, [*stints[1:], None], strict=True):
            is_clean = stint.is_clean
            if is_clean and following is not None:
                assert stint.end is not None
                if stint.end >= following.start:
                    assert stint.member in self.disturbed, f"two owners: {stint} {following}"
                    is_clean = False
            if stint.first < 0:
                continue  # the client could not say where it began, and it read nothing
            assert low <= stint.first <= high, (
                f"begins outside [{low}, {high}]: {stint}\nafter {before}:\n{self._end_of(before)}"
            )
            before = stint
            high = stint.next
            low = high if is_clean else stint.committed

    def _end_of(self, stint: Stint | None) -> str:
        """Return what the member of a stint said around its end, for a failure's message."""
        if stint is None or stint.end is None:
            return "(nothing)"
        end = stint.end
        events = self.events[stint.member]
        return "\n".join(str(event) for event in events if -2 < event["t"] - end < 1)

    def _timely(self, stints: list[Stint]) -> Iterator[Stint]:
        """Leave out what expelled members began under generations that were over."""
        newest = -1
        for stint in stints:
            if stint.member in self.disturbed and stint.generation < newest:
                continue
            newest = max(newest, stint.generation)
            yield stint

    def duplicates(self, tp: TopicPartition) -> int:
        """Return how many records of a partition were delivered more than once."""
        return len(self.delivered[tp]) - len(set(self.delivered[tp]))
