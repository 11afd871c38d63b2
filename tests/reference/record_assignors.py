"""Records what Java's assignors make of random groups.

``python -m tests.reference.record_assignors`` writes ``tests/conformance/assignor_vectors.json``,
with which kfast's assignors are compared where there is no Java compiler, too. Needed again only
when the groups or Java's assignors change. Needs a JDK and Kafka's jars.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from kfast.local.jars import DEFAULT_VERSION
from kfast.local.local_kafka import resolve_jars
from tests.reference.groups import Group, faults, owners, random_group
from tests.reference.java_assignors import Answer, JavaAssignors, find_compiler

VECTORS = Path(__file__).resolve().parents[1] / "conformance" / "assignor_vectors.json"

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")

KINDS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "uniform": (NAMES, {"is_uniform": True}),
    "mixed": (NAMES, {"is_uniform": False}),
    "uniform racks": (NAMES, {"is_uniform": True, "has_racks": True}),
    "mixed racks": (NAMES, {"is_uniform": False, "has_racks": True}),
    "large uniform": (NAMES, {"is_uniform": True, "most_members": 90}),
    "large mixed": (NAMES, {"is_uniform": False, "most_members": 90}),
}
"""Per kind of group the assignors to compare, and arguments of ``random_group``."""


def jobs_of(kind: str, seed: str, count: int) -> list[tuple[Group, str]]:
    """Return groups of a kind and the assignors to run on them."""
    names, arguments = KINDS[kind]
    rng = random.Random(f"{seed} {kind}")
    groups = [random_group(rng, **arguments) for _ in range(count)]
    return [(group, name) for group in groups for name in names]


def outcome(group: Group, assignor: str, answer: Answer) -> dict[str, str] | str:
    """Return Java's assignment in short, or what is wrong with it."""
    if isinstance(answer, str):
        return answer
    illegal = faults(group, answer, may_withhold=assignor == "cooperative-sticky")
    return f"illegal: {illegal[0]}" if illegal else owners(group, answer)


def main() -> None:
    """Write the file."""
    compiler = find_compiler()
    if compiler is None:
        raise SystemExit("needs a JDK: no javac found")
    counts = dict(zip(KINDS, (100, 200, 60, 200, 10, 20), strict=True))
    seed = "recorded"
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        java = JavaAssignors(compiler, resolve_jars(), Path(folder))
        for kind, count in counts.items():
            jobs = jobs_of(kind, seed, count)
            results: dict[int, dict[str, Any]] = {}
            for (group, name), answer in zip(jobs, java.run(jobs), strict=True):
                entry = results.setdefault(id(group), {"kind": kind, "group": group.to_json()})
                entry.setdefault("assigned", {})[name] = outcome(group, name, answer)
            lines += [json.dumps(entry, separators=(",", ":")) for entry in results.values()]
    head = json.dumps({"kafka": DEFAULT_VERSION, "seed": seed, "counts": counts})
    VECTORS.write_text(f'{head[:-1]},\n"groups": [\n' + ",\n".join(lines) + "\n]}\n", "utf-8")


if __name__ == "__main__":
    main()
