"""``python -m bench``: kfast and its peers against a real broker on this machine.

Without arguments a short run of a few minutes: 100-byte values, uncompressed and lz4, three
repetitions, then idle cost, latency, and the memory used for a backlog. Results are written as JSON
and markdown. ``python -m bench e2e connect --contestants tls`` compares reading over TLS, and the
time of a consumer that connects and logs in; ``python -m bench e2e --contestants typed --codecs
none --records 1000000 --repetitions 5`` JSON and Avro into typed columns.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from bench import report
from bench.data import CODECS, TopicSpec, parse_list
from bench.e2e import backlog, connecting, idle, latency
from bench.e2e.contestants import CONTESTANTS, DEFAULT, TLS, TYPED
from bench.e2e.harness import EndToEndOptions, kinds, protocols, run_end_to_end
from kfast.errors import KafkaError
from kfast.local.local_kafka import LocalKafka

PARTS = ("e2e", "idle", "latency", "backlog")
"""Of a run that names none; there is one more."""
_CONNECT = "connect"
_SETS = {"all": list(CONTESTANTS), "tls": list(TLS), "typed": list(TYPED)}
_SLOW_JAVA = "-XX:TieredStopAtLevel=1"


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    made.add_argument(
        "parts",
        nargs="*",
        default=list(PARTS),
        metavar="PART",
        help=f"{', '.join(PARTS)} (these), {_CONNECT}",
    )
    made.add_argument("--values", default="100", help="value sizes, such as 10,100,1000")
    made.add_argument("--codecs", default="none,lz4", help=", ".join(CODECS))
    made.add_argument(
        "--records", type=int, default=4_000_000, help="records of 100 bytes per topic"
    )
    made.add_argument("--partitions", type=int, default=6)
    made.add_argument("--repetitions", type=int, default=3)
    made.add_argument(
        "--contestants",
        default=",".join(DEFAULT),
        help=f'"all", "tls", "typed" or some of {", ".join(CONTESTANTS)}',
    )
    made.add_argument("--idle-partitions", type=int, default=1000)
    made.add_argument("--backlog-mb", type=int, default=200, help="size of the backlog")
    made.add_argument("--backlog-partitions", default="6,1000", help="partitions, one topic each")
    made.add_argument("--clients", default="kfast,confluent", help=f"{', '.join(idle.CLIENTS)}")
    made.add_argument("--seconds", type=float, default=10.0, help="length of idle and latency runs")
    made.add_argument("--connections", type=int, default=100, help="to make one after another")
    made.add_argument("--heap", default="512m", help="Java heap of the broker")
    made.add_argument("--output", type=Path, help="JSON file; .md is written beside it")
    return made


def topics(
    kind: str, values: str, codecs: list[str], records: int, partitions: int
) -> tuple[TopicSpec, ...]:
    """Return the topics of a kind to read.

    Those of text have fewer records if their values are longer than 200 bytes.
    """
    if kind != "text":
        return tuple(
            TopicSpec(kind, codec=codec, records=records, partitions=partitions) for codec in codecs
        )
    sizes = [int(size) for size in values.split(",")]
    return tuple(
        TopicSpec("text", size, codec, records * 200 // max(size, 200), partitions)
        for size in sizes
        for codec in codecs
    )


def main(argv: list[str] | None = None) -> int:
    """Run and report; the exit status."""
    line = parser()
    options = line.parse_args(argv)
    try:
        contestants = _SETS.get(options.contestants) or parse_list(options.contestants, CONTESTANTS)
        security = protocols(contestants)
        codecs = parse_list(options.codecs, CODECS)
        clients = parse_list(options.clients, idle.CLIENTS)
        parts = parse_list(",".join(options.parts), (*PARTS, _CONNECT))
        if _CONNECT in parts:
            security += (connecting.SECURITY,)
        if security[1:] and _SLOW_JAVA in os.environ.get("JDK_JAVA_OPTIONS", ""):
            raise ValueError(f"TLS with {_SLOW_JAVA}: the broker encrypts 15 times slower")
        size = (options.records, options.partitions)
        wanted = [t for k in kinds(contestants) for t in topics(k, options.values, codecs, *size)]
    except ValueError as error:
        line.error(str(error))
    result: dict[str, Any] = {"arguments": vars(options) | {"output": str(options.output)}}
    result["machine"] = report.machine()
    try:
        with LocalKafka(heap=options.heap, progress=report.progress, security=security) as kafka:
            if "e2e" in parts:
                chosen = EndToEndOptions(tuple(contestants), tuple(wanted), options.repetitions)
                result["end_to_end"] = run_end_to_end(kafka, chosen, report.progress)
            if _CONNECT in parts:
                report.progress(f"{options.connections} connections")
                result["connecting"] = connecting.run_connecting(kafka, options.connections)
            if "idle" in parts:
                report.progress(
                    f"idle on {options.idle_partitions} partitions: {', '.join(clients)}"
                )
                result["idle"] = idle.run_idle(
                    kafka, clients, options.idle_partitions, options.seconds
                )
            if "latency" in parts:
                report.progress(f"latency at 200 messages per second: {', '.join(clients)}")
                result["latency"] = latency.run_latency(
                    kafka, [*clients, *latency.LIMITS], 200, options.seconds, options.repetitions
                )
            if "backlog" in parts:
                result["backlog"] = []
                for count in map(int, options.backlog_partitions.split(",")):
                    report.progress(
                        f"{options.backlog_mb} MB in {count} partitions: {', '.join(clients)}"
                    )
                    result["backlog"] += backlog.run_backlog(
                        kafka, clients, options.backlog_mb, count, options.seconds
                    )
    except KafkaError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    report.save(result, "", options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
