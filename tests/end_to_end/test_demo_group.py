"""The demo's consumer group on a fake cluster, with its members in real processes."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from kfast import TopicPartition
from kfast.demo.group import GROUP, MemberProcess, show_group
from kfast.demo.show import Show
from kfast.errors import KafkaError
from tests.end_to_end.groups import cluster_of, committed
from tests.end_to_end.stage import PATIENCE_S, Stage, eventually


def test_two_members_share_a_topic_and_one_takes_over(tmp_path: Path) -> None:
    """G-10, C-01: every record is read once; a member continues where the other has stopped."""
    text = io.StringIO()
    show = Show(Console(file=text, width=100), tmp_path)
    with Stage(cluster_of(partitions=4, records=1000)) as stage:
        config = {"bootstrap.servers": stage.server.bootstrap_servers}
        ends = {TopicPartition("t", number): (0, 1000) for number in range(4)}
        show_group(show, config, "t", ends)
        assert committed(stage.cluster, GROUP) == dict.fromkeys(range(4), 1000)
    said = text.getvalue()
    shared, taken_over = said.split("member-2 is stopped")
    assert len(re.findall(r"^ +\d +member-[12] +[\d,]+ +1,000 +[\d,]+", shared, re.MULTILINE)) == 4
    moved = re.findall(r"^ +(\d) +([\d,]+) +([\d,]+) *$", taken_over, re.MULTILINE)
    assert len(moved) == 2
    assert [stopped for _, stopped, _ in moved] == [goes_on for _, _, goes_on in moved]
    assert "together 4,000 of 4,000\nthe lag is now 0 in 4 partitions\n" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["member-1.log", "member-2.log"]
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ["", ""]


def has_ended(member: MemberProcess) -> bool:
    member.receive_events()
    return member.stopped is not None


def test_a_member_that_fails_is_an_error_with_its_words(tmp_path: Path) -> None:
    with MemberProcess("member-1", tmp_path) as member:
        member.start({"bootstrap.servers": "127.0.0.1:1", "fetch.min.bytez": 1}, "t", 1.0)
        with pytest.raises(KafkaError, match="member-1 has ended") as raised:
            eventually(lambda: has_ended(member))
    assert "did you mean fetch.min.bytes" in str(raised.value)


def test_members_end_with_their_input_even_without_a_broker(tmp_path: Path) -> None:
    """L-01: what the demo has started ends when the demo does, however that ends."""
    with MemberProcess("member-1", tmp_path) as member:
        member.start({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, "t", 1.0)
        member.stop()
        eventually(lambda: has_ended(member))
        assert member.stopped == {}


def test_leaving_the_block_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def note(*args: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **options))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", note)
    with pytest.raises(KeyboardInterrupt), MemberProcess("member-1", tmp_path):
        raise KeyboardInterrupt
    (process,) = started
    assert process.wait(timeout=PATIENCE_S) < 0
    assert process.stdin is not None
    assert process.stdin.closed
