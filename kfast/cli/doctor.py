"""``kfast doctor``: what works between here and a cluster, step by step, and what to do if not.

Each check is one line: its mark (passed, failed, left out), how long it took, and what it found; a
failed one has cause and hint below. Connections are made by the code of consumers, so the errors
are theirs. The exit status is that of the first failed check.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any, Final

import click

from kfast._base.clock import SystemClock
from kfast.cli.admin import settings_of
from kfast.cli.common_settings import shown as shown_setting
from kfast.cli.exits import command_hint, exit_code
from kfast.cli.options import Command, Common
from kfast.cli.rows import (
    JSON_FORMATS,
    format_option,
    is_coloured,
    write_object,
    write_rows,
    write_text,
)
from kfast.columns.table_text import shown, size_text
from kfast.config import ConsumerConfig
from kfast.errors import (
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    MissingDependencyError,
)
from kfast.internals import (
    NO_LEADER,
    ClusterAdmin,
    ConnectionProbe,
    Node,
    advertised_address_dead,
    failure_kind,
)
from kfast.settings.sources import DEFAULT_ORIGIN
from kfast.types import TopicPartition

CHECK_COLUMNS: Final = ("name", "ok", "ms", "message", "try")
CODECS: Final = {
    "gzip": ("isal", "zlib"),
    "snappy": ("cramjam",),
    "lz4": ("lz4",),
    "zstd": ("zstandard",),
}
"""Packages of each codec, the first of which is there."""
_MARKS: Final = {True: "✓", False: "✗", None: "\u2013"}
_COLOURS: Final = {True: "32", False: "31", None: "2"}
_SKEW_MS: Final = 1_000
"""How far in the future a timestamp may be: clocks differ."""
_POLL_MS: Final = 200
_TAIL: Final = 100
"""How far before the end a record is looked for: the last ones may be control records."""


@dataclass(slots=True)
class Check:
    """One check; ``ok`` is None for one that was left out."""

    name: str
    ok: bool | None = True
    ms: int = 0
    message: str = ""
    error: KafkaError | None = None

    @property
    def hint(self) -> str | None:
        """What to do."""
        return None if self.error is None else command_hint(self.error)

    def cells(self) -> tuple[str | bool | int | None, ...]:
        """Return the cells of `CHECK_COLUMNS`."""
        return self.name, self.ok, self.ms, self.message, self.hint


class _Checks:
    """The checks so far; each is printed when it is done, if it is for people."""

    def __init__(self, common: Common, *, is_shown: bool) -> None:
        self.all: list[Check] = []
        self._common = common
        self._is_shown = is_shown
        self._is_terminal = os.isatty(1)

    @contextlib.contextmanager
    def run(self, name: str) -> Iterator[Check]:
        """Run a check: a `KafkaError` of its body fails it and goes no further."""
        check = Check(name)
        begun = time.monotonic()
        try:
            yield check
        except KafkaError as error:
            self._fail(check, error)
        check.ms = round((time.monotonic() - begun) * 1000)
        self.add(check)

    def _fail(self, check: Check, error: KafkaError) -> None:
        if isinstance(error, KafkaConnectionError):
            self._common.explain(error)
        check.ok, check.error, check.message = False, error, error.message

    def fail(self, name: str, ms: int, error: KafkaError) -> None:
        """Add a check that has failed."""
        check = Check(name, ms=ms)
        self._fail(check, error)
        self.add(check)

    def skip(self, name: str, why: str) -> None:
        """Add a check that was left out."""
        self.add(Check(name, None, 0, why))

    def add(self, check: Check) -> None:
        """Add a check that is done."""
        self.all.append(check)
        if self._is_shown:
            write_text(self._line(check))

    def _line(self, check: Check) -> str:
        mark = _MARKS[check.ok]
        if is_coloured(self._is_terminal):
            mark = f"\x1b[{_COLOURS[check.ok]}m{mark}\x1b[0m"
        ms = "" if check.ok is None else f"{check.ms} ms"
        lines = [f"{mark} {self._safe(check.name):<28} {ms:>8}  {self._safe(check.message)}"]
        if check.error is not None:
            for label, text in (
                ("cause", check.error.cause),
                ("found", check.error.found),
                ("try", check.hint),
            ):
                if text:
                    lines.append(f"    {label}: {self._safe(text)}")
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def _safe(self, text: str) -> str:
        return shown(text) if self._is_terminal else text

    @property
    def first_failure(self) -> KafkaError | None:
        """The error of the first failed check."""
        return next((check.error for check in self.all if check.error is not None), None)


def _doctor(common: Common, topic: str | None, group: str | None, format: str) -> None:
    checks = _Checks(common, is_shown=format == "table")
    _examine(checks, common, topic, group)
    failure = checks.first_failure
    rows = [check.cells() for check in checks.all]
    if format in JSON_FORMATS:
        listed = [dict(zip(CHECK_COLUMNS, row, strict=True)) for row in rows]
        write_object({"ok": failure is None, "checks": listed}, format)
    elif format != "table":
        write_rows(CHECK_COLUMNS, rows, format)
    click.get_current_context().exit(0 if failure is None else exit_code(failure))


def _examine(checks: _Checks, common: Common, topic: str | None, group: str | None) -> None:
    config = _check_settings(checks, common)
    _check_codecs(checks)
    if config is None:
        checks.skip("connection", "the settings cannot be used")
        return
    try:
        probe = ConnectionProbe(config, SystemClock())
    except KafkaError as error:
        checks.fail("tls files", 0, error)
        return
    with probe:
        reached = _check_servers(checks, probe, config)
        if reached is None:
            checks.skip("cluster", "no bootstrap server can be used")
            return
        with ClusterAdmin(config) as admin:
            if not _check_metadata(checks, admin):
                return
            _check_brokers(checks, probe, reached, admin.cluster.brokers)
            readable = _check_topic(checks, admin, topic)
            _check_group(checks, admin, group)
            _check_record(checks, admin, settings_of(common), readable)
            _check_clock(checks, admin, readable)


def _check_settings(checks: _Checks, common: Common) -> ConsumerConfig | None:
    configs = []
    with checks.run("settings") as check:
        configs.append(ConsumerConfig(settings_of(common)))
        check.message = _origins(common)
    return configs[0] if configs else None


def _origins(common: Common) -> str:
    return ", ".join(
        f"{entry.key}={shown_setting(entry)} ({entry.origin})"
        for name, entry in sorted(common.loaded().entries.items())
        if name == "bootstrap_servers" or entry.origin != DEFAULT_ORIGIN
    )


def _check_codecs(checks: _Checks) -> None:
    with checks.run("codecs") as check:
        missing = [
            name
            for name, packages in CODECS.items()
            if not any(importlib.util.find_spec(package) for package in packages)
        ]
        if missing:
            raise MissingDependencyError(
                f"no package for {', '.join(missing)}", hint="pip install --force-reinstall kfast"
            )
        check.message = ", ".join(CODECS)


# --- connections ----------------------------------------------------------------------------------


def _check_servers(checks: _Checks, probe: ConnectionProbe, config: ConsumerConfig) -> Node | None:
    """Probe all bootstrap servers; return one that works."""
    reached = None
    refusal = None
    for number, (host, port) in enumerate(config.bootstrap_servers):
        node = Node(-1 - number, host, port)
        if refusal is not None:  # another wrong password might lock the account
            checks.skip(f"kafka {node.address}", "the log-in was refused")
            continue
        works = True
        for step in probe.probe(node):
            name = f"{step.name} {host if step.name == 'dns' else node.address}"
            if step.error is not None:
                checks.fail(name, step.ms, step.error)
                works = False
                refusal = step.error if step.name == "sasl" else None
            else:
                checks.add(Check(name, True, step.ms, step.outcome))
        if works and reached is None:
            reached = node
    return reached


def _check_metadata(checks: _Checks, admin: ClusterAdmin) -> bool:
    with checks.run("metadata") as check:
        topics = admin.topic_metadata()
        cluster = admin.cluster
        visible = [name for name, topic in topics.items() if not topic.is_internal]
        check.message = (
            f"cluster {cluster.cluster_id or 'without an id'}: "
            f"{_count(cluster.brokers, 'broker')}, {_count(visible, 'topic')}"
        )
    return check.ok is True


def _check_brokers(
    checks: _Checks, probe: ConnectionProbe, reached: Node, brokers: Mapping[int, Node]
) -> None:
    """Probe every broker at the address it advertises."""
    for node_id, node in sorted(brokers.items()):
        begun = time.monotonic()
        last = probe.probe(node)[-1]
        ms = round((time.monotonic() - begun) * 1000)
        name = f"broker {node_id} {node.address}"
        error = last.error
        if error is None:
            checks.add(Check(name, True, ms, "its advertised address can be reached"))
            continue
        if failure_kind(error) is not None and node[1:3] != reached[1:3]:
            error = advertised_address_dead(reached, node, error)
        checks.fail(name, ms, error)


# --- topic, group, records ------------------------------------------------------------------------


def _check_topic(checks: _Checks, admin: ClusterAdmin, topic: str | None) -> list[TopicPartition]:
    """Return the partitions of the topic that have a leader."""
    if topic is None:
        checks.skip("topic", "none is named: kfast doctor TOPIC")
        return []
    readable: list[TopicPartition] = []
    with checks.run(f"topic {topic}") as check:
        metadata = admin.topic_metadata({topic}).get(topic)
        if metadata is None:
            raise admin.unknown_topic_error(topic)
        leaderless = sorted(
            number
            for number, partition in metadata.partitions.items()
            if partition.leader_id == NO_LEADER
        )
        readable = [
            TopicPartition(topic, number)
            for number in sorted(metadata.partitions)
            if number not in leaderless
        ]
        if leaderless:
            raise LeaderNotAvailableError(
                f"{topic} has {_count(leaderless, 'partition')} without a leader",
                found=", ".join(map(str, leaderless[:10])),
                hint=f"kfast topics describe {topic}",
            )
        check.message = f"{_count(readable, 'partition')}, each with a leader"
    return readable


def _check_group(checks: _Checks, admin: ClusterAdmin, group: str | None) -> None:
    if group is None:
        checks.skip("group", "none is named: -g GROUP")
        return
    with checks.run(f"group {group}") as check:
        description = admin.describe_groups([group])[group]
        if isinstance(description, KafkaError):
            raise description
        check.message = f"coordinator is broker {description.coordinator}; " + (
            f"{description.state}, {_count(description.members, 'member')}"
            if description.exists
            else "the group does not exist yet"
        )


def _check_record(
    checks: _Checks,
    admin: ClusterAdmin,
    settings: dict[str, object],
    partitions: list[TopicPartition],
) -> None:
    if not partitions:
        checks.skip("record", "no topic to read from")
        return
    note = None
    with checks.run("record") as check:
        starts = admin.beginning_offsets(partitions)
        ends = admin.end_offsets(starts)
        if not ends:
            raise admin.unknown_topic_error(partitions[0].topic)
        filled = next((tp for tp, end in ends.items() if end > starts[tp]), None)
        if filled is None:
            check.ok, check.message = None, "the topic is empty"
        else:
            note = _read_one(settings, filled, max(starts[filled], ends[filled] - _TAIL))
            check.ok = None if note is None else True
            check.message = note or f"{filled} has no record among its last {_TAIL} offsets"


def _read_one(settings: dict[str, object], tp: TopicPartition, offset: int) -> str | None:
    """Read one record; None if only control records are behind the offset."""
    from kfast import KafkaConsumer  # noqa: PLC0415 - loads NumPy

    own: dict[str, Any] = {"auto.offset.reset": "earliest", "fetch.max.wait.ms": _POLL_MS}
    with KafkaConsumer(config={**own, **settings}) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, offset)
        end = consumer.end_offsets([tp])[tp]
        deadline = time.monotonic() + ConsumerConfig(settings).default_api_timeout_ms / 1000
        while consumer.position(tp) < end and time.monotonic() < deadline:
            for batch in consumer.poll(timeout_ms=_POLL_MS).values():
                if len(batch):
                    return f"{tp} offset {int(batch.offsets[0])}, {size_text(batch.nbytes)} came"
    return None


def _check_clock(checks: _Checks, admin: ClusterAdmin, partitions: list[TopicPartition]) -> None:
    if not partitions:
        checks.skip("clock", "no topic whose timestamps could be compared")
        return
    with checks.run("clock") as check:
        newest = [hit.timestamp for hit in admin.newest(partitions).values() if hit is not None]
        ahead_ms = max(newest, default=0) - time.time_ns() // 1_000_000
        if not newest:
            check.ok, check.message = None, "there are no timestamps to compare"
        elif ahead_ms > _SKEW_MS:
            raise KafkaError(
                f"the newest record is {ahead_ms / 1000:.1f} s ahead of this machine's clock",
                cause="the clock of its producer or broker, or of this machine, is wrong",
                hint="compare the clocks: timedatectl, chronyc tracking",
            )
        else:
            check.message = "no record is ahead of this machine's clock"


def _count(things: Sized, name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


command = Command(
    "doctor",
    callback=click.pass_obj(_doctor),
    help="Check settings, names, connections, TLS, log-in, every broker's advertised address, and "
    "a topic and a group if they are named. The exit status is that of the first failed check.",
    params=[
        click.Argument(["topic"], required=False, metavar="[TOPIC]"),
        click.Option(["group", "-g", "--group"], metavar="GROUP", help="a group to be used"),
        format_option(),
    ],
    examples=(
        "kfast doctor -b kafka1:9092",
        "kfast doctor orders -g billing -F client.properties",
        "kfast doctor -f json",
    ),
)
