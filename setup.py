"""Builds the compiled modules of kfast; all other metadata is in pyproject.toml.

Switches, read from the environment:

``KFAST_DEBUG=1``      -O0 -g3, Cython bounds checks and initialisation checks on.
``KFAST_SANITIZE=1``   AddressSanitizer and UndefinedBehaviorSanitizer (see ``make asan``).
``KFAST_COVERAGE=1``   Cython line tracing for coverage.
``KFAST_WERROR=1``     C warnings are errors (CI).
``KFAST_ANNOTATE=1``   writes Cython's annotated HTML next to the generated C.
``KFAST_EXTENSIONS=a,b`` builds only the named modules, none if it is empty.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = Path("src_pyx")
MODULES = (
    "_runtime.wakeup_event",
    "_runtime.access_guard",
    "_runtime.one_time_call",
    "_runtime.memory_account",
    "_runtime.sampled_stat",
    "_native.varint",
    "_native.buffers",
    "_native.crc32c",
    "_native.codecs",
    "_native.frame",
    "_native.fetch_response",
    "_native.record_index",
    "_native.aborted_transactions",
    "_native.batch_faults",
    "_native.chunk_builder",
    "_native.record_batch",
    "_native.text_table",
    "_native.builders",
    "_native.builder_operations",
    "_native.columns",
    "_native.headers",
    "_native.deserialize",
    "_native.wire_ids",
    "_native.arrow_export",
    "_native.arrow_import",
    "_native.avro_decode",
    "_native.protobuf_decode",
    "_native.column_text",
    "_native.text_writer",
    "_native.json_decode",
    "_native.json_rescue",
    "network.receive",
    "network.waker",
)
# Modules in Python that are compiled as they are. The application thread changes in them what it
# shares with others: a signal handler, which may raise, runs between any two instructions of
# bytecode, but not within compiled code.
COMPILED_PYTHON = (
    "consumer.subscription",
    "consumer.read_offsets",
    "consumer.topic_partition_state",
    "consumer.partition_states",
    "consumer.subscription_state",
    "consumer.application_wakeup",
    "consumer.error_mailbox",
    "consumer.fetch.completed_fetch",
    "consumer.fetch.decode_queue",
    "consumer.fetch.memory_gate",
    "consumer.fetch.decode_scheduler",
    "consumer.fetch.buffer",
    "consumer.fetch.collector",
    "application.rests",
)
SHARED = "kfast._native._cython"
"""What Cython needs for memory views, compiled once for all modules."""


def switch(name: str) -> bool:
    return os.environ.get(f"KFAST_{name}", "0") not in {"", "0"}


PROCESSES = os.cpu_count() or 1
DEBUG, SANITIZE, COVERAGE = switch("DEBUG"), switch("SANITIZE"), switch("COVERAGE")

compile_args = ["-O3", "-g0", "-Wall", "-Wextra", "-fno-strict-aliasing", "-fvisibility=hidden"]
# Cython's generated C trips these by construction; they say nothing about the .pyx sources.
compile_args += ["-Wno-unused-function", "-Wno-unused-parameter", "-Wno-cast-function-type"]
compile_args += ["-Wno-missing-field-initializers", "-Wno-sign-compare"]
link_args: list[str] = []
macros: list[tuple[str, str | None]] = []
if DEBUG or SANITIZE:
    compile_args = [a for a in compile_args if a not in {"-O3", "-g0"}]
    compile_args += ["-O1" if SANITIZE else "-O0", "-g3", "-fno-omit-frame-pointer"]
if SANITIZE:
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    compile_args += flags
    if "clang" in os.environ.get("CC", ""):
        compile_args.append("-fno-sanitize=function")
    link_args += flags
if COVERAGE:
    macros.append(("CYTHON_TRACE_NOGIL", "1"))
if switch("WERROR"):
    compile_args.append("-Werror")

directives = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
    # A free-threaded interpreter enables the GIL when it imports these modules. They rely on it:
    # WakeupEvent checks `has_waiter` and `is_set` and then sets one, also without a lock, and a
    # plain store before a plain load may lose a wake-up; SampledStat and AccessGuard replace object
    # fields that another thread may read meanwhile (metrics() while the network thread records),
    # which may free them too early; wakeup() counts ApplicationWakeup's events without a lock.
    # FetchCollector's read of a fetch's chunk and stage without the lock would hold: publish() sets
    # the stage last, and rows of a fetch that was dropped meanwhile are refused by its version.
    "freethreading_compatible": False,
    "linetrace": COVERAGE,
}

python_directives = {
    "language_level": 3,
    "annotation_typing": False,
    "embedsignature": False,
    "freethreading_compatible": False,
    "linetrace": COVERAGE,
}

chosen = os.environ.get("KFAST_EXTENSIONS")
wanted = {*MODULES, *COMPILED_PYTHON} if chosen is None else {*filter(None, chosen.split(","))}
if unknown := wanted.difference(MODULES, COMPILED_PYTHON):
    sys.exit(f"KFAST_EXTENSIONS names unknown modules: {', '.join(sorted(unknown))}")


def extension(name: str, source: str, *more: str) -> Extension:
    return Extension(
        name,
        [source],
        extra_compile_args=[*compile_args, *more],
        extra_link_args=link_args,
        define_macros=macros,
    )


def extensions(modules: tuple[str, ...], folder: Path, ending: str, *more: str) -> list[Extension]:
    return [
        extension(f"kfast.{name}", str(folder / f"{name.replace('.', '/')}{ending}"), *more)
        for name in modules
        if name in wanted
    ]


def compiled(extensions: list[Extension], directives: dict[str, object]) -> list[Extension]:
    result: list[Extension] = cythonize(
        extensions,
        include_path=["src_pyx"],
        build_dir=str(Path("build") / ("cython-debug" if DEBUG else "cython")),
        compiler_directives=directives,
        shared_utility_qualified_name=SHARED,
        nthreads=PROCESSES,
        annotate=switch("ANNOTATE"),
        show_all_warnings=False,
    )
    return result


# Python that was compiled runs in the interpreter's functions, and Cython's own once per column:
# to optimise them takes half a minute and shows nowhere.
quickly = () if DEBUG or SANITIZE else ("-O1",)
native = extensions(MODULES, SOURCES / "kfast", ".pyx")
if wanted:
    native.append(extension(SHARED, f"{SHARED.replace('.', '/')}.c", *quickly))
setup(
    ext_modules=compiled(native, directives)
    + compiled(extensions(COMPILED_PYTHON, Path("kfast"), ".py", *quickly), python_directives),
    options={"build_ext": {"parallel": PROCESSES}},
)
