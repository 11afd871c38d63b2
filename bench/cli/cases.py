"""The cases of the command line's benchmark: what is run, what it is compared with, and the bar.

A contestant is a command; ``{…}`` in its words is filled in. A bar is on the median of the ratios
of one round each, of kfast's seconds to the anchor's, or on a figure of kfast's own.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import Final

from kfast.demo.data import TRADE_COLUMNS

KFAST: Final = (sys.executable, "-m", "kfast")
NUMPY: Final = (sys.executable, "-c", "import numpy")
_FLOOR: Final = (sys.executable, "-m", "bench.cli.floors")
_KCAT: Final = ("kcat", "-C", "-q", "-e", "-b", "{servers}")
_TEMPLATE: Final = "%t\\t%p\\t%o\\t%T\\t%k\\t%s\\n"


@dataclass(slots=True, frozen=True)
class Bar:
    """What the median of a figure of a case may be at most."""

    figure: str
    """Of the row: seconds, memory, CPU, or a ratio of two."""
    most: float


@dataclass(slots=True, frozen=True)
class Case:
    """One row: kfast's command, and the commands it is compared with by their names."""

    number: int
    title: str
    command: tuple[str, ...]
    bars: tuple[Bar, ...]
    anchors: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The first one is what ``ratio`` is to."""
    status: int = 0
    follows_seconds: float = 0
    """How long a command that does not end is left running."""
    prints_seconds: bool = False
    """Whether the anchor measures itself."""
    prepare: tuple[str, ...] = ()
    """A command that is run once before all rounds; what it has written stays for them."""


def _read(*words: str, topic: str = "{topic}") -> tuple[str, ...]:
    return (*KFAST, "read", topic, "-b", "{servers}", *words)


_INGEST: Final = (*KFAST, "ingest", "{large}", "-b", "{servers}", "--to", "{folder}")


_TRADES: Final = json.dumps(TRADE_COLUMNS).replace("{", "{{").replace("}", "}}")

CASES: Final = (
    Case(
        1,
        "the first record: `read T -p 0 -n 1`",
        _read("-p", "0", "-n", "1"),
        (Bar("ratio", 1.6),),
        {"numpy": NUMPY, "kcat": (*_KCAT, "-t", "{topic}", "-p", "0", "-o", "0", "-c", "1")},
    ),
    Case(2, "`--help`", (*KFAST, "--help"), (Bar("ratio", 1.6),), {"numpy": NUMPY}),
    Case(
        2,
        "completion of a topic, which is asked of the cluster",
        (*KFAST, "_complete", "--", "-b", "{servers}", "read", "ben"),
        (Bar("ratio", 2.0),),
        {"numpy": NUMPY},
    ),
    Case(
        3,
        "jsonl, 7 columns",
        _read("-f", "jsonl"),
        (Bar("ratio", 1 / 5),),
        {"kcat": (*_KCAT, "-t", "{topic}", "-J")},
    ),
    Case(
        4,
        "a template of 6 fields",
        _read("-f", _TEMPLATE),
        (Bar("ratio", 1 / 4.7),),
        {"kcat": (*_KCAT, "-t", "{topic}", "-f", _TEMPLATE)},
    ),
    Case(
        5,
        "raw values",
        _read("-f", "raw"),
        (Bar("ratio", 1 / 2.5),),
        {"kcat": (*_KCAT, "-t", "{topic}")},
    ),
    Case(
        6,
        "csv, 5 columns",
        _read("-f", "csv", "-c", "partition,offset,timestamp,key,value", "--key", "hex"),
        (Bar("ratio", 1.9),),
        {"pyarrow": (*_FLOOR, "csv", "{target}", "{records}")},
        prints_seconds=True,
    ),
    Case(
        7,
        "Parquet with zstd, 5 columns",
        _read(
            *("-f", "parquet", "-c", "partition,offset,timestamp,key,value"),
            *("--output", "{target}"),
        ),
        (Bar("ratio", 1.9), Bar("rss_mb", 300)),
        {"pyarrow": (*_FLOOR, "parquet", "{target}", "{records}")},
        prints_seconds=True,
    ),
    Case(
        8,
        "Arrow stream",
        _read("-f", "arrow"),
        (Bar("ratio", 1 / 2.3),),
        {"kcat raw": (*_KCAT, "-t", "{topic}")},
    ),
    Case(
        9,
        "jsonl of ten times as many records",
        _read("-f", "jsonl", topic="{large}"),
        (Bar("rss_mb", 300), Bar("times_case_3", 8.5)),
    ),
    Case(
        10,
        "a port that refuses",
        (*KFAST, "read", "{topic}", "-b", "{refused}"),
        (Bar("seconds", 1.5),),
        status=3,
    ),
    Case(
        11,
        "a topic that is not there",
        _read(topic="{topic}x"),
        (Bar("ratio", 1.5),),
        {"numpy": NUMPY},
        status=5,
    ),
    Case(
        12,
        "a minute out of ten times as many records",
        _read("-o", "@{middle}:1m", topic="{large}"),
        (Bar("ratio", 1.5),),
        {"numpy": NUMPY},
    ),
    Case(13, "`lag` of 20 groups", (*KFAST, "lag", "-b", "{servers}"), (Bar("seconds", 0.4),)),
    Case(
        14,
        "`ingest` of ten times as many to Parquet, against `read` to one file",
        _INGEST,
        (Bar("ratio", 1.15),),
        {"kfast read": _read("-f", "parquet", "--output", "{target}", topic="{large}")},
    ),
    Case(
        14,
        "`ingest` again, of which nothing is new",
        _INGEST,
        (Bar("seconds", 1.0),),
        prepare=_INGEST,
    ),
    Case(
        15,
        "`--follow` without new records",
        _read("--follow", "-f", "raw"),
        (Bar("cpu_share", 0.01), Bar("rss_over_numpy_mb", 80)),
        {"numpy": NUMPY},
        follows_seconds=5.0,
    ),
    Case(
        16,
        "`ingest` of JSON trades into six typed columns, against confluent-kafka, orjson, pyarrow",
        (
            *(*KFAST, "ingest", "{trades}", "-b", "{servers}", "--to", "{folder}", "--value"),
            *("json", "--value-schema", _TRADES, "-c", "partition,offset,value"),
        ),
        (Bar("ratio", 1 / 5),),
        {
            "loop": (
                *(sys.executable, "-m", "bench.cli.parquet_loop", "{servers}", "{trades}"),
                *("{records}", "{target}"),
            )
        },
    ),
)
