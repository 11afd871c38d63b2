"""Show: the output of the demos, with headings, code, tables and progress bars.

Prints through rich, which is imported where it is needed. Without a terminal a progress bar is
printed once, when it is complete.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import kfast

if TYPE_CHECKING:
    from rich.console import Console

_WIDE: Final = 32
_NUMBER: Final = re.compile(r"[\d,.]+x?")


class Show:
    """Prints to a console; ``folder`` is the demo's temporary folder."""

    def __init__(self, console: Console, folder: Path) -> None:
        self._console = console
        self.folder = folder

    def heading(self, text: str) -> None:
        """Print the heading of a part."""
        self._console.print()
        self._console.rule(f"[bold]{text}", align="left")

    def text(self, text: str) -> None:
        """Print a sentence."""
        self._console.print(text, markup=False)

    def code(self, *lines: str) -> None:
        """Print code that a user would write."""
        for line in lines:
            self._console.print(f"    {line}", style="cyan", markup=False)

    @contextmanager
    def local_kafka(self, security: str = "PLAINTEXT") -> Iterator[kfast.LocalKafka]:
        """Run a local broker, showing the progress of its start."""
        began = time.perf_counter()
        with self._console.status("starting Apache Kafka") as status:
            kafka = kfast.LocalKafka(progress=status.update, security=security).start()
        with kafka:
            seconds = time.perf_counter() - began
            security_note = "" if security == "PLAINTEXT" else f" with {security}"
            where = kafka.bootstrap_servers
            self.text(f"Apache Kafka{security_note} runs at {where}, after {seconds:.1f} s")
            yield kafka

    @contextmanager
    def local_registry(self) -> Iterator[kfast.LocalRegistry]:
        """Run a local schema registry, showing the progress of its start."""
        began = time.perf_counter()
        with self._console.status("starting Apicurio Registry") as status:
            registry = kfast.LocalRegistry(progress=status.update).start()
        with registry:
            seconds = time.perf_counter() - began
            self.text(f"Apicurio Registry runs at {registry.url}, after {seconds:.1f} s")
            yield registry

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar; yield the function that sets its number of records."""
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - optional

        began = time.perf_counter()
        with Progress(
            TextColumn("{task.description:<44}"),
            BarColumn(24),
            TextColumn("{task.completed:>12,.0f} records {task.fields[rate]:>14}"),
            console=self._console,
        ) as bar:
            task = bar.add_task(title, total=max(total, 1), rate="")

            def report(done: int) -> None:
                seconds = time.perf_counter() - began
                rate = f"{done / seconds:,.0f}/s" if done and seconds else ""
                bar.update(task, completed=done, rate=rate)

            yield report

    @contextmanager
    def waiting(self, status: str) -> Iterator[None]:
        """Show a status on a terminal for the length of the block."""
        with self._console.status(status):
            yield

    def table(self, title: str, header: list[str], rows: list[list[Any]]) -> None:
        """Print a table; long cells are truncated."""
        from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - optional
        from rich.table import Table  # noqa: PLC0415 - optional
        from rich.text import Text  # noqa: PLC0415 - optional

        table = Table(header_style="bold", box=SIMPLE_HEAD)
        for name, cell in zip(header, rows[0] if rows else header, strict=True):
            is_number = isinstance(cell, int | float) or bool(_NUMBER.fullmatch(str(cell)))
            table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(_cell(cell)) for cell in row))
        self._console.print(f"\n{title}", style="italic", markup=False)
        self._console.print(table)

    @staticmethod
    def columns_of(batch: kfast.PartitionRecords) -> list[list[Any]]:
        """Return a row per column of a batch: name, type, first values."""
        values: Any = batch.values
        columns: dict[str, Any] = {
            "batch.offsets": batch.offsets,
            "batch.timestamps": batch.timestamps,
            "batch.keys": batch.keys,
        }
        if isinstance(values, np.ndarray) and values.dtype.names:
            names = values.dtype.names
            columns.update({f'batch.values["{name}"]': values[name] for name in names})
        else:
            columns["batch.values"] = values
        if len(batch.headers) and batch[0].headers:
            columns["batch.headers"] = batch.headers
        return [[name, _type_of(column), _start_of(column)] for name, column in columns.items()]


def _type_of(column: Any) -> str:
    if isinstance(column, np.ndarray):
        return f"{column.dtype}[{len(column):,}]"
    return f"{type(column).__name__}[{len(column):,}]"


def _start_of(column: Any) -> str:
    first = ", ".join(_cell(column[row]) for row in range(min(3, len(column))))
    return _cell(f"{first}, ..." if len(column) > 3 else first, 28)


def _cell(value: Any, width: int = _WIDE) -> str:
    if isinstance(value, float | np.floating):
        text = f"{value:.2f}"
    elif isinstance(value, bytes):
        text = value.decode("utf-8", "replace") if value.isascii() else value.hex(" ")
    else:
        text = str(value)
    return text if len(text) <= width else f"{text[: width - 3]}..."
