"""The assignors of Apache Kafka's Java client, run as an oracle.

``JavaAssignors`` compiles ``java/AssignorRunner.java`` once and runs it on many groups at a time.
It needs a JDK: a plain Java runtime has no compiler. Lines on its standard input::

    assignor NAME
    topic NAME RACKS;RACKS;...              racks of each partition's replicas, - for none
    member ID INSTANCE RACK GENERATION TOPIC,TOPIC OWNED,OWNED USER_DATA
    run

It answers one line per ``run``: ``assigned ID=t0:0,t1:4 ID=...``, or ``error
CLASS``, since Java's own assignors stumble over some groups.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kfast.consumer.group.assignors import GroupMember
from kfast.types import TopicPartition
from tests.reference.groups import Group, read, show

Answer = dict[str, list[TopicPartition]] | str
"""Partitions by member id, or an error."""

SOURCE = Path(__file__).with_name("java") / "AssignorRunner.java"
TIMEOUT_SECONDS = 240


def find_compiler() -> Path | None:
    """Return a ``javac`` that is at least as new as the source needs, None if there is none."""
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home) / "bin" / "javac"] if home else []
    on_path = shutil.which("javac")
    if on_path:
        candidates.append(Path(on_path))
    for path in candidates:
        try:
            done = subprocess.run(
                [path, "-version"], capture_output=True, text=True, check=False, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        version = done.stdout.split()
        if done.returncode == 0 and len(version) == 2 and int(version[1].split(".")[0]) >= 17:
            return path
    return None


class JavaAssignors:
    """Runs Java's assignors.

    Parameters
    ----------
    compiler : Path
        ``javac``; the ``java`` beside it runs what it made.
    jars : sequence of Path
        Kafka's jars.
    folder : Path
        Takes the compiled class.
    """

    def __init__(self, compiler: Path, jars: Sequence[Path], folder: Path) -> None:
        path = os.pathsep.join(str(jar) for jar in jars)
        subprocess.run(
            [compiler, "-cp", path, "-d", str(folder), str(SOURCE)],
            check=True,
            timeout=TIMEOUT_SECONDS,
        )
        java = compiler.with_name("java")
        self._command = [
            str(java), "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp", f"{folder}{os.pathsep}{path}", "AssignorRunner",
        ]  # fmt: skip

    def run(self, jobs: Sequence[tuple[Group, str]]) -> list[Answer]:
        """Return Java's assignment of each group by the assignor of that name, or its error."""
        lines = [line for group, assignor in jobs for line in _job_lines(group, assignor)]
        done = subprocess.run(
            self._command,
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
            timeout=TIMEOUT_SECONDS,
        )
        answers = done.stdout.splitlines()
        assert len(answers) == len(jobs)
        return [_answer(line) for line in answers]


def _job_lines(group: Group, assignor: str) -> list[str]:
    return [
        f"assignor {assignor}",
        *(
            f"topic {name} {';'.join(','.join(racks) for racks in of)}"
            for name, of in group.topics.items()
        ),
        *(_member_line(member) for member in group.members_for(assignor)),
        "run",
    ]


def _member_line(member: GroupMember) -> str:
    words = (
        "member",
        member.member_id,
        member.group_instance_id or "-",
        member.rack_id or "-",
        str(member.generation_id),
        ",".join(member.topics),
        show(member.owned_partitions),
        "-" if member.user_data is None else member.user_data.hex(),
    )
    return " ".join(words)


def _answer(line: str) -> Answer:
    kind, *words = line.split(" ")
    if kind != "assigned":
        return line
    return {
        member_id: read(partitions)
        for member_id, _, partitions in (word.partition("=") for word in words)
    }
