"""A member of a consumer group as a program of its own: ``python -m ... SETTINGS`` (JSON).

It polls until told otherwise and prints one JSON object per line, always with ``t`` (the machine's
monotonic clock) and ``event``:

| event | further fields |
|---|---|
| joined | generation, member_id, leader: a generation was entered |
| assigned | partitions (the added ones), positions, generation |
| revoked, lost | partitions |
| refused | partitions: those just revoked, whose commit the coordinator refused |
| delivered | ranges: ``[topic, partition, first, last]`` per batch, as poll() returned them |
| processed | the same ranges, once the work on them is done |
| committed | offsets: ``[topic, partition, offset]``, after the broker's answer |
| error | type, message, call: what a call raised |
| log | level, message: warnings |
| done | command, and what it returned |
| closed | took: how long close() took, in seconds |

Commands come as JSON lists on the standard input and run between two polls; see `_COMMANDS`. The
program dies with its parent: at the end of the input.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from kfast import ConsumerRecords, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kfast.consumer.group.membership import CloseOperation
from kfast.errors import FencedInstanceIdError, KafkaError, RebalanceInProgressError

JOINED_LOGGER: Final = "kfast.consumer.group.classic.membership"
_POLL_MS: Final = 50


def say(event: str, **fields: object) -> None:
    """Print one event, in one write: the program may be killed at any time."""
    line = json.dumps({"event": event, "t": time.monotonic(), **fields}, default=str) + "\n"
    os.write(1, line.encode())


def plain(partitions: Any) -> list[list[object]]:
    """Return partitions as JSON has them."""
    return [list(tp) for tp in sorted(partitions)]


def offsets_of(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[list[object]]:
    """Return committed offsets as JSON has them."""
    return [[tp.topic, tp.partition, at.offset] for tp, at in sorted(offsets.items())]


class LogEvents(logging.Handler):
    """Turns kfast's log into events: who leads a generation, and all warnings."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print what matters."""
        if record.name == JOINED_LOGGER and str(record.msg).startswith("Joined group"):
            _, generation, member_id, _, leader = record.args  # type: ignore[misc]
            say("joined", generation=generation, member_id=member_id, leader=bool(leader))
        if record.levelno >= logging.WARNING:
            say("log", level=record.levelname, message=record.getMessage())


class CommitEvents:
    """An interceptor that tells of commits."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """Change nothing."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell what was committed."""
        say("committed", offsets=offsets_of(offsets))

    def close(self) -> None:
        """Do nothing."""


class Program:
    """One member.

    Parameters
    ----------
    settings : Mapping
        ``topics`` or ``pattern``; ``configs`` of the consumer; ``process_ms`` of work per poll;
        ``commit``: ``"auto"``, ``"batch"`` (after the work on each), ``"revoked"`` or ``"none"``.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._process_seconds = settings["process_ms"] / 1000
        self._commit = settings["commit"]
        self.consumer = KafkaConsumer(
            interceptor_classes=[CommitEvents()],
            enable_auto_commit=self._commit == "auto",
            **settings["configs"],
        )
        self._subscribe(settings["topics"], settings.get("pattern"))
        self._commands: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._is_running = True

    def _subscribe(self, topics: list[str], pattern: str | None = None) -> None:
        self._is_subscribed = bool(topics or pattern)
        if self._is_subscribed:
            self.consumer.subscribe(topics, pattern=pattern, listener=self)

    # --- the rebalance listener -------------------------------------------------------------------

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Tell where each added partition begins."""
        positions = [[*tp, self.consumer.position(tp)] for tp in assigned]
        generation = self.consumer.group_metadata().generation_id
        say("assigned", partitions=plain(assigned), positions=positions, generation=generation)

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Tell, and commit if that is the place to do it."""
        say("revoked", partitions=plain(revoked))
        if self._commit in ("batch", "revoked"):
            try:
                self.consumer.commit()
            except RebalanceInProgressError:
                say("refused", partitions=plain(revoked))
                raise

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        """Tell."""
        say("lost", partitions=plain(lost))

    # --- the loop ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Poll until told to end."""
        threading.Thread(target=self._listen, daemon=True).start()
        while self._is_running:
            while not self._commands.empty():
                self._obey(*self._commands.get())
            if self._is_subscribed:
                self._attempt("poll", self._poll)
            else:
                time.sleep(_POLL_MS / 1000)

    def _listen(self) -> None:
        for line in sys.stdin:
            self._commands.put(json.loads(line))
        os._exit(0)

    def _poll(self) -> None:
        records = self.consumer.poll(_POLL_MS)
        ranges = []
        for tp, batch in records.items():
            first, last = int(batch.offsets[0]), int(batch.offsets[-1])
            assert batch.offsets.tolist() == list(range(first, last + 1)), tp
            ranges.append([tp.topic, tp.partition, first, last])
        if not ranges:
            return
        say("delivered", ranges=ranges)
        time.sleep(self._process_seconds)
        say("processed", ranges=ranges)
        if self._commit == "batch":
            self.consumer.commit()  # all, also what a rebalance kept from being committed before

    def _attempt(self, call: str, action: Callable[[], object]) -> object:
        try:
            return action()
        except KafkaError as error:
            say("error", type=type(error).__name__, message=error.message, call=call)
            if isinstance(error, FencedInstanceIdError):
                self._is_running = False
            return None

    # --- commands ---------------------------------------------------------------------------------

    def _obey(self, command: str, *args: Any) -> None:
        found = self._attempt(command, lambda: _COMMANDS[command](self, *args))
        say("done", command=command, result=found)

    def stall(self, seconds: float) -> None:
        """Stay away from poll()."""
        time.sleep(seconds)

    def subscribe(self, topics: list[str]) -> None:
        """Subscribe to other topics."""
        self._subscribe(topics)

    def unsubscribe(self) -> None:
        """Leave the group."""
        self._is_subscribed = False
        self.consumer.unsubscribe()

    def enforce_rebalance(self) -> None:
        """Have the group rebalance."""
        self.consumer.enforce_rebalance("a test wants it")

    def commit(self) -> None:
        """Commit what was delivered."""
        self.consumer.commit()

    def describe(self) -> list[str]:
        """Tell what the consumer's own objects say of themselves, for a failure's message."""
        runtime = self.consumer._runtime
        fetcher = runtime._managers.fetcher
        nodes = fetcher._planner.nodes.values()
        return [
            *map(repr, runtime.subscriptions.states()),
            *(f"{node!r} {node.session!r} sent={node.session._sent}" for node in nodes),
            repr(fetcher),
            repr(runtime.fetch_buffer),
            *map(repr, runtime.fetch_buffer.heads()),
        ]

    def close(self, operation: CloseOperation = "default") -> None:
        """End in good order."""
        self._is_running = False
        begun = time.monotonic()
        try:
            self.consumer.close(operation=operation)
        except RebalanceInProgressError as error:
            # Of the commit in on_partitions_revoked; the consumer is closed all the same.
            say("error", type=type(error).__name__, message=str(error), call="close")
        say("closed", took=time.monotonic() - begun)


_COMMANDS: Final[dict[str, Callable[..., object]]] = {
    name: getattr(Program, name)
    for name in (
        "stall",
        "subscribe",
        "unsubscribe",
        "enforce_rebalance",
        "commit",
        "describe",
        "close",
    )
}


def main() -> None:
    """Run the member described by the first argument."""
    log = logging.getLogger("kfast")
    log.setLevel(logging.INFO)
    log.addHandler(LogEvents())
    program = Program(json.loads(sys.argv[1]))
    program.run()
    program.consumer.close()


if __name__ == "__main__":
    main()
