"""The demo's consumer group: two members in two processes, one is stopped, the other takes over.

Owns the two processes (``demo.member``) and what is shown of them. The members read slowly while
there are two of them, so that there is something left to take over on a fast machine too; then the
remaining one reads the rest at full speed. Everything shown comes from the group coordinator or
from a member's events; nothing waits longer than ``_TIMEOUT_SECONDS``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import kfast
from kfast.demo.contestants import Ends
from kfast.demo.show import Show
from kfast.errors import KafkaError

GROUP: Final = "demo"
MEMBER_CONFIG: Final[Mapping[str, object]] = {
    "group.id": GROUP,
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky",
    "auto.commit.interval.ms": 200,
    "heartbeat.interval.ms": 200,  # its response starts a rebalance: the demo should not wait
    "session.timeout.ms": 6_000,
}
_SECONDS_AT_PACE: Final = 60
"""Time one member would need for the topic at its pace: longer than the demo runs."""
_TIMEOUT_SECONDS: Final = 30
_CHECK_SECONDS: Final = 0.02


class MemberProcess:
    """A member in a process of its own, as of the events received; ``name`` is its client id.

    Attributes
    ----------
    assigned : dict of int to int
        Its partitions, and the position of each when it was assigned.
    count : int
        Records it has read.
    stopped : dict of int to int, or None
        After its end: its partitions and their committed offsets.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.assigned: dict[int, int] = {}
        self.count = 0
        self.stopped: dict[int, int] | None = None
        self._errors = folder / f"{name}.log"
        self._incomplete = b""
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kfast.demo.member"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for the demo, which ends its members
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def start(self, config: Mapping[str, object], topic: str, pace: float) -> None:
        """Let it join the group and read, ``pace`` records per second."""
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        task = {"config": {**config, "client.id": self.name}, "topic": topic, "pace": pace}
        self._send(json.dumps(task))

    def read_at_full_speed(self) -> None:
        """Let it read without a pace from now on."""
        self._send("full-speed")

    def stop(self) -> None:
        """Let it commit, leave its group and exit; `receive_events` until it is ``stopped``."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None

    def receive_events(self) -> None:
        """Apply the events that it has sent; `KafkaError` if it has exited by itself."""
        assert self._process.stdout is not None
        while self.stopped is None:
            try:
                received = os.read(self._process.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                return
            if not received:
                raise self._failure()
            *lines, self._incomplete = (self._incomplete + received).split(b"\n")
            for line in lines:
                self._apply(json.loads(line))

    def _apply(self, event: Mapping[str, Any]) -> None:
        if "assigned" in event:
            self.assigned.update(event["assigned"])
        elif "revoked" in event:
            for partition in event["revoked"]:
                self.assigned.pop(partition, None)
        elif "count" in event:
            self.count = event["count"]
        else:
            self.assigned.clear()
            self.stopped = dict(event["stopped"])

    def _failure(self) -> KafkaError:
        self._process.kill()
        status = self._process.wait()
        lines = self._errors.read_text(encoding="utf-8", errors="replace").splitlines()
        return KafkaError(
            f"{self.name} has ended", cause="\n".join(lines[-10:]) or f"exit status {status}"
        )

    def __repr__(self) -> str:
        return f"<MemberProcess {self.name} {sorted(self.assigned)} {self.count} records>"


def show_group(show: Show, config: Mapping[str, object], topic: str, ends: Ends) -> None:
    """Let two members share a topic, stop one, and show assignments, committed offsets and lag.

    The group commits offsets, so that the cluster must be the demo's own. ``ends`` has all
    partitions of the topic, with their first and end offsets.
    """
    total = sum(end - start for start, end in ends.values())
    show.code(
        f'with kfast.KafkaConsumer("{topic}", group_id="{GROUP}", ...) as consumer:',
        "    while running:",
        "        process(consumer.poll(timeout_ms=50))  # auto-commits the records before",
        "consumer.committed(partitions), consumer.end_offsets(partitions)  # the group's lag",
    )
    with ExitStack() as stack:
        observer = stack.enter_context(
            kfast.KafkaConsumer(config={**config, "group.id": GROUP, "enable.auto.commit": False})
        )
        first, second = members = [
            stack.enter_context(MemberProcess(name, show.folder))
            for name in ("member-1", "member-2")
        ]
        for member in members:
            member.start({**config, **MEMBER_CONFIG}, topic, max(1.0, total / _SECONDS_AT_PACE))
        _until(
            lambda: len(first.assigned) == len(second.assigned) == len(ends) // 2, members, "share"
        )
        _until(lambda: _is_committed(observer, ends), members, "commit")
        show.table(
            "Each member is a process and is assigned half of the partitions",
            ["partition", "read by", "committed", "end", "lag"],
            _progress(observer, members, ends),
        )
        second.stop()
        began = time.perf_counter()
        _until(lambda: second.stopped is not None, [second], "stop")
        _until(lambda: len(first.assigned) == len(ends), [first], "take over")
        seconds = time.perf_counter() - began
        assert second.stopped is not None
        show.table(
            f"{second.name} is stopped: {first.name} has its partitions {seconds:.1f} s later",
            ["partition", f"{second.name} stopped at", f"{first.name} continues at"],
            [
                [number, f"{at:,}", f"{first.assigned[number]:,}"]
                for number, at in sorted(second.stopped.items())
            ],
        )
        first.read_at_full_speed()
        with show.progress(f"{first.name} reads the rest", total - second.count) as report:
            _until(lambda: _has_read(members, total, report), [first], "read everything")
        first.stop()
        _until(lambda: first.stopped is not None, [first], "stop")
        committed = observer.committed(list(ends))
        lag = sum(end - at.offset for tp, (_, end) in ends.items() if (at := committed[tp]))
    show.text(
        f"{first.name} has read {first.count:,} records and {second.name} {second.count:,}, "
        f"together {first.count + second.count:,} of {total:,}"
    )
    show.text(f"the lag is now {lag:,} in {len(committed)} partitions")


def _is_committed(observer: kfast.KafkaConsumer, ends: Ends) -> bool:
    return all(at is not None and at.offset for at in observer.committed(list(ends)).values())


def _progress(
    observer: kfast.KafkaConsumer, members: Sequence[MemberProcess], ends: Ends
) -> list[list[Any]]:
    """Return a row per partition: its member, committed offset, end offset and lag."""
    committed = observer.committed(list(ends))
    end_offsets = observer.end_offsets(list(ends))
    rows = []
    for tp, end in sorted(end_offsets.items()):
        at = committed[tp]
        offset = 0 if at is None else at.offset
        names = [member.name for member in members if tp.partition in member.assigned]
        rows.append(
            [tp.partition, ", ".join(names), f"{offset:,}", f"{end:,}", f"{end - offset:,}"]
        )
    return rows


def _has_read(members: Sequence[MemberProcess], total: int, report: Callable[[int], None]) -> bool:
    first, second = members
    report(first.count)
    return first.count + second.count >= total


def _until(condition: Callable[[], bool], members: Sequence[MemberProcess], action: str) -> None:
    """Receive the members' events until a condition is true."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        for member in members:
            member.receive_events()
        if condition():
            return
        if time.monotonic() > deadline:
            raise KafkaError(
                f"the group did not {action} in {_TIMEOUT_SECONDS} s", cause=f"{members}"
            )
        time.sleep(_CHECK_SECONDS)
