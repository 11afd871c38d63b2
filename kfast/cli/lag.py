"""``kfast lag``: how far groups are behind, once or repeatedly, with a threshold for alerts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from kfast.cli.admin import admin_of, described, group_names, settings_of
from kfast.cli.durations import duration_ms
from kfast.cli.exits import ABOVE
from kfast.cli.group_lag import LAG_COLUMNS, LagRow, lags_of, with_time_lags
from kfast.cli.options import Command, Common, Duration
from kfast.cli.rows import Row, format_option, write_rows, write_text
from kfast.errors import ConfigurationError

if TYPE_CHECKING:
    from kfast.internals import ClusterAdmin

SUM_COLUMNS: Final = ("group", "partitions", "lag", "time_lag_ms")
_WATCH: Final = "--watch"
_EVERY: Final = "2s"
_CLEAR: Final = "\x1b[H\x1b[J"


@dataclass(slots=True, frozen=True)
class Threshold:
    """What ``--fail-over`` says: offsets, or ms if ``is_time``."""

    value: int
    is_time: bool

    def is_passed(self, lag: int | None, time_lag_ms: int | None) -> bool:
        """Return whether a lag is above it."""
        measured = time_lag_ms if self.is_time else lag
        return measured is not None and measured > self.value


class _Threshold(click.ParamType):  # type: ignore[type-arg]  # generic since 8.5
    name = "threshold"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Threshold:
        if isinstance(value, Threshold):
            return value
        digits = value.replace("_", "")
        if digits.isascii() and digits.isdecimal():
            return Threshold(int(digits), is_time=False)
        ms = duration_ms(value)
        if ms is None:
            raise ConfigurationError(
                f'--fail-over "{value}" is neither a number nor a length of time',
                hint="--fail-over 10000, or --fail-over 5m",
            )
        return Threshold(ms, is_time=True)


class _Lag(Command):
    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments; ``--watch`` takes the next one only if it is a length of time."""
        words = [*args]
        end = words.index("--") if "--" in words else len(words)
        if _WATCH in words[:end]:
            at = words.index(_WATCH)
            is_given = at + 1 < end and duration_ms(words[at + 1]) is not None
            words[at : at + 1 + is_given] = [f"{_WATCH}={words[at + 1] if is_given else _EVERY}"]
        return super().make_context(info_name, words, parent, **extra)


@dataclass(slots=True, frozen=True)
class _Sum:
    """All partitions of a group; the time lag is that of the oldest."""

    group: str
    partitions: int
    lag: int
    time_lag_ms: int | None

    def cells(self) -> Row:
        return self.group, self.partitions, self.lag, self.time_lag_ms


def _lag(
    common: Common,
    groups: tuple[str, ...],
    is_sum: bool,
    watch: int | None,
    has_time: bool,
    threshold: Threshold | None,
    format: str,
) -> None:
    has_time = has_time or (threshold is not None and threshold.is_time)
    with admin_of(common) as admin:
        is_drawn = False
        if watch is not None:
            from kfast.cli.progress import can_draw  # noqa: PLC0415 - for this option only

            is_drawn = can_draw(1)

        def show() -> int:
            lags = _rows(common, admin, groups, has_time)
            rows: Sequence[LagRow | _Sum] = _summed(lags) if is_sum else lags
            if threshold is not None:
                rows = [row for row in rows if threshold.is_passed(row.lag, row.time_lag_ms)]
            if is_drawn:
                write_text(_CLEAR)
            names = SUM_COLUMNS if is_sum else LAG_COLUMNS
            write_rows(names, [row.cells() for row in rows], format)
            return ABOVE if threshold is not None and rows else 0

        if watch is None:
            click.get_current_context().exit(show())
        common.ends_by_interrupt = True
        while True:
            show()
            time.sleep(watch / 1000)


def _rows(
    common: Common, admin: ClusterAdmin, groups: Sequence[str], has_time: bool
) -> list[LagRow]:
    rows = lags_of(admin, described(admin, group_names(admin, groups), groups))
    return with_time_lags(rows, settings_of(common)) if has_time else rows


def _summed(rows: Sequence[LagRow]) -> list[_Sum]:
    groups: dict[str, list[LagRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return [
        _Sum(
            group,
            len(mine),
            sum(row.lag for row in mine if row.lag is not None),
            max((row.time_lag_ms for row in mine if row.time_lag_ms is not None), default=None),
        )
        for group, mine in groups.items()
    ]


command = _Lag(
    "lag",
    callback=click.pass_obj(_lag),
    help="List committed offsets and lag of groups, of all consumer groups by default. Without a "
    "committed offset the lag is counted from the start of the log.",
    params=[
        click.Argument(["groups"], nargs=-1, metavar="[GROUP...]"),
        click.Option(["is_sum", "--sum"], is_flag=True, help="one row per group"),
        click.Option(
            ["watch", _WATCH],
            type=Duration(),
            metavar="[EVERY]",
            help=f"again and again until Ctrl-C (default every {_EVERY})",
        ),
        click.Option(
            ["has_time", "--time"], is_flag=True, help="how old the first unread records are"
        ),
        click.Option(
            ["threshold", "--fail-over"],
            type=_Threshold(),
            metavar="LAG",
            help="only what is above 10000 offsets, or 5m; exit status 8 if anything is",
        ),
        format_option(),
    ],
    examples=(
        "kfast lag billing",
        "kfast lag --sum --time",
        "kfast lag billing --fail-over 5m -f json",
    ),
)
