"""Members of consumer groups in processes of their own, as tests see them.

`Members` starts them and ends whatever is left of them; a `Member` is asked about through its
events (``group_member`` lists them) and told what to do. `Feed` keeps producing meanwhile.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ForeignPartition

from kfast import TopicPartition
from tests.integration.group_ledger import Event, Ledger
from tests.integration.support import PATIENCE_SECONDS, unique, until

ROOT: Final = Path(__file__).resolve().parents[2]
READING_SECONDS: Final = 60.0
"""How long members may take to read what is left; two busy cores have needed half of that."""
QUICK: Final = {
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 200,
    "auto_commit_interval_ms": 300,
    "max_poll_records": 50,
    "retry_backoff_ms": 50,
    "fetch_max_wait_ms": 100,
    "auto_offset_reset": "earliest",
}
CLASSIC_ONLY: Final = frozenset(
    {"session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy"}
)
"""Settings of `QUICK` and of tests that the brokers decide with ``group_protocol="consumer"``."""


@functools.cache
def _environment() -> dict[str, str]:
    """Return the environment of members: bytecode is kept, they start in half the time."""
    folder = tempfile.mkdtemp(prefix="kfast-members-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    own = {
        "PYTHONPATH": str(ROOT),
        "PYTHONPYCACHEPREFIX": folder,
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONWARNINGS": "ignore",
    }
    return {**os.environ, **own}


class Member:
    """A member in a process.

    Parameters
    ----------
    name : str
        For messages.
    command : sequence of str
        The program.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=ROOT,
            env=_environment(),
        )
        self.events: list[Event] = []
        self.errors: list[str] = []
        self.was_disturbed = False
        self._threads = [
            threading.Thread(target=self._read_events, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):
                self.events.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self.errors.extend(self._process.stderr)

    # --- asking -----------------------------------------------------------------------------------

    def all(self, event: str) -> list[Event]:
        """Return the events of one kind so far."""
        return [e for e in list(self.events) if e["event"] == event]

    def count(self, event: str) -> int:
        """Return how many events of one kind there were."""
        return len(self.all(event))

    @property
    def owned(self) -> set[TopicPartition]:
        """The partitions it has, as it told."""
        owned: set[TopicPartition] = set()
        for event in list(self.events):
            if event["event"] == "assigned":
                owned |= {TopicPartition(*tp) for tp in event["partitions"]}
            elif event["event"] in ("revoked", "lost"):
                owned -= {TopicPartition(*tp) for tp in event["partitions"]}
        return owned

    @property
    def generation(self) -> int:
        """The generation of its last assignment, -1 before."""
        return int(next((e["generation"] for e in reversed(self.all("assigned"))), -1))

    @property
    def is_leader(self) -> bool:
        """Whether it leads the generation it joined last."""
        return any(e["leader"] for e in self.all("joined")[-1:])

    def delivered(self, tp: TopicPartition | None = None) -> int:
        """Return how many records it was given, of one partition or of all."""
        return sum(
            last - first + 1
            for event in self.all("delivered")
            for topic, partition, first, last in event["ranges"]
            if tp is None or tp == (topic, partition)
        )

    def until(
        self, condition: Callable[[], Any], what: str, timeout_seconds: float = PATIENCE_SECONDS
    ) -> Any:
        """Wait for a condition; it fails as soon as the program has ended."""

        def look() -> Any:
            found = condition()
            assert found or self.is_running, f"{self.name} ended: {self.tail()}"
            return found

        try:
            return until(look, what, timeout_seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tail()}") from None

    def until_event(self, event: str, count: int = 1) -> Event:
        """Wait for so many events of a kind and return the last of them."""
        self.until(lambda: self.count(event) >= count, f"{self.name}: {count} {event}")
        return self.all(event)[count - 1]

    def tail(self, count: int = 15) -> str:
        """Return what it told last."""
        lines = [json.dumps(event)[:300] for event in list(self.events)[-count:]]
        return "\n".join([f"--- {self.name}", *lines, *self.errors[-20:]])

    # --- telling ----------------------------------------------------------------------------------

    def tell(self, *command: Any) -> None:
        """Have it do something, without waiting."""
        self.was_disturbed |= command[0] == "stall"
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def do(self, *command: Any) -> Event:
        """Have it do something and wait until it is done."""
        before = self.count("done")
        self.tell(*command)
        return self.until_event("done", before + 1)

    def close(self, *args: Any) -> Event:
        """End it in good order; return the event ``closed``."""
        self.tell("close", *args)
        self._process.wait(PATIENCE_SECONDS)
        self._join()
        assert self.count("closed") == 1, self.tail()
        return self.all("closed")[0]

    def kill(self) -> None:
        """End it without notice (SIGKILL)."""
        self._process.kill()
        self._process.wait()
        self._join()

    def pause(self) -> None:
        """Hold the whole process (SIGSTOP)."""
        self.was_disturbed = True
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    def wait(self) -> None:
        """Wait for it to end by itself."""
        self._process.wait(PATIENCE_SECONDS)
        self._join()

    @property
    def is_running(self) -> bool:
        """Whether the process exists."""
        return self._process.poll() is None

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def __repr__(self) -> str:
        return f"<Member {self.name} owns={len(self.owned)}>"


class Members:
    """The members of one group; in a ``with`` statement, which ends them.

    Parameters
    ----------
    servers : str
        The cluster.
    topics : iterable of str
        What they subscribe to unless told otherwise.
    **configs
        Settings of all members.
    """

    def __init__(self, servers: str, *topics: str, **configs: Any) -> None:
        self.group_id = unique("group")
        self.servers = servers
        self._topics = list(topics)
        self._configs = {**QUICK, **configs}
        self.members: dict[str, Member] = {}

    def start(
        self,
        name: str,
        *,
        commit: str = "auto",
        process_ms: int = 0,
        topics: Sequence[str] | None = None,
        pattern: str | None = None,
        **configs: Any,
    ) -> Member:
        """Start a member with kfast."""
        own = {**self._configs, **configs}
        if own.get("group_protocol") == "consumer":
            own = {key: value for key, value in own.items() if key not in CLASSIC_ONLY}
        settings = {
            "topics": self._topics if topics is None else list(topics),
            "pattern": pattern,
            "commit": commit,
            "process_ms": process_ms,
            "configs": {
                "bootstrap_servers": self.servers,
                "group_id": self.group_id,
                "client_id": name,
                **own,
            },
        }
        if pattern is not None:
            settings["topics"] = []
        return self.add(name, "tests.integration.group_member", json.dumps(settings))

    def add(self, name: str, module: str, *args: str) -> Member:
        """Start a program that tells what ``group_member`` tells."""
        assert name not in self.members
        member = Member(name, [sys.executable, "-m", module, *args])
        self.members[name] = member
        return member

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members.values():
            if member.is_running:
                member.kill()
            else:
                member._join()

    # --- waiting ----------------------------------------------------------------------------------

    @property
    def running(self) -> list[Member]:
        """Those that have not ended."""
        return [member for member in self.members.values() if member.is_running]

    def shares(self) -> dict[str, set[TopicPartition]]:
        """Return what every running member has."""
        return {member.name: member.owned for member in self.running}

    def until_shared(
        self,
        partitions: Iterable[TopicPartition],
        among: Sequence[Member] | None = None,
        timeout_seconds: float = PATIENCE_SECONDS,
    ) -> dict[str, set[TopicPartition]]:
        """Wait until every partition has one owner, everybody has some, and nobody has others."""
        wanted = set(partitions)
        members = self.running if among is None else among

        def is_shared() -> bool:
            shares = [member.owned for member in members]
            sizes = sorted(map(len, shares))
            return (
                set().union(*shares) == wanted
                and sum(sizes) == len(wanted)
                and sizes[-1] - sizes[0] <= 1
            )

        try:
            until(is_shared, f"shares of {len(members)} members", timeout_seconds)
        except AssertionError as error:
            tails = "\n".join(member.tail() for member in self.members.values())
            raise AssertionError(f"{error}\n{tails}") from None
        return {member.name: member.owned for member in members}

    def until_read(
        self, ends: Mapping[TopicPartition, int], timeout_seconds: float = READING_SECONDS
    ) -> Ledger:
        """Wait until all records were processed by somebody; return the ledger."""
        reached = Reached(self.members.values())

        def is_read() -> bool:
            if not reached.all(ends):
                return False
            ledger = self.ledger()
            return all(
                len(ledger.processed[tp]) >= end - ledger.starts.get(tp, 0)
                for tp, end in ends.items()
            )

        try:
            until(is_read, "all records processed", timeout_seconds)
        except AssertionError as error:
            tails = "\n".join(member.tail() for member in self.members.values())
            done = {tp: len(found) for tp, found in self.ledger().processed.items()}
            states = "\n".join(
                "\n".join([f"--- {member.name}", *member.do("describe")["result"]])
                for member in self.members.values()
                if member.is_running
            )
            in_log = watermarks(self.servers, ends)
            text = f"{error}\n{done} of {dict(ends)}, in the log {in_log}\n{tails}\n{states}"
            raise AssertionError(text) from None
        return self.ledger()

    def ledger(self) -> Ledger:
        """Return what all members told so far."""
        return Ledger(
            {name: list(member.events) for name, member in self.members.items()},
            disturbed={member.name for member in self.members.values() if member.was_disturbed},
        )


def watermarks(
    servers: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first and the end offset of each partition, as another client is told."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "watermarks"})
    try:
        return {
            tp: consumer.get_watermark_offsets(ForeignPartition(*tp), timeout=PATIENCE_SECONDS)
            for tp in partitions
        }
    finally:
        consumer.close()


class Reached:
    """How far partitions were processed by anybody, looking at each event once.

    A ledger of everything, made anew at every look, would keep the members waiting on a busy
    machine: their events are read by threads of this process.

    Parameters
    ----------
    members : iterable of Member
        Whose events count.
    """

    def __init__(self, members: Iterable[Member]) -> None:
        self._looked = dict.fromkeys(members, 0)
        self._ends: dict[TopicPartition, int] = {}

    def all(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether each of these offsets was reached."""
        for member, looked in self._looked.items():
            events = member.events[looked:]
            self._looked[member] += len(events)
            for event in events:
                for topic, partition, _, last in event.get("ranges", ()):
                    if event["event"] == "processed":
                        tp = TopicPartition(topic, partition)
                        self._ends[tp] = max(last + 1, self._ends.get(tp, 0))
        return all(self._ends.get(tp, 0) >= end for tp, end in ends.items())


class Feed:
    """Produces all the time, a few records to every partition in turn.

    What counts is what is in the log in the end: on a machine with far too much to do the producer
    has been seen to end its flush with nothing left and no error, while the last records of a
    partition were not in the log and never came there.
    """

    def __init__(self, servers: str, partitions: Iterable[TopicPartition], per_second: int) -> None:
        self._partitions = list(partitions)
        self._pause_seconds = len(self._partitions) / per_second
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._servers = servers
        self._failed: list[object] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._end.wait(self._pause_seconds):
            for tp in self._partitions:
                self._producer.produce(
                    tp.topic, b"%d" % number, partition=tp.partition, on_delivery=self._delivered
                )
            number += 1
            self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(error)

    def stop(self) -> dict[TopicPartition, int]:
        """Stop and return where the log of each partition ends."""
        self._end.set()
        self._thread.join()
        left = self._producer.flush(PATIENCE_SECONDS)
        assert left == 0
        assert not self._failed, self._failed[:3]
        found = watermarks(self._servers, self._partitions)
        return {tp: end for tp, (_, end) in found.items()}


@contextmanager
def feeding(
    servers: str, partitions: Iterable[TopicPartition], per_second: int = 400
) -> Iterator[Feed]:
    """Give a feed that has ended at the end."""
    feed = Feed(servers, partitions, per_second)
    try:
        yield feed
    finally:
        feed._end.set()
        feed._thread.join()
