"""Which columns of a schema are wanted: ``columns=["id", "order.price", "lines[].sku"]``.

A path has the names of fields joined by dots; ``[]`` behind a list's name stands for its items,
``{value}`` behind a map's for its values. A path to a struct, list or map means all of it. The
forms of schemas that have columns to choose from (Avro, Protobuf) walk their own tree and the
selection side by side.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from kfast._base.spelling import did_you_mean
from kfast.errors import ConfigurationError

ITEM: Final = "[]"
VALUE: Final = "{value}"
_STEP: Final = re.compile(r"(?P<name>[^.\[\]{}]+)|\[\]|\{value\}")
_MAX_STEPS: Final = 256


@dataclass(frozen=True, slots=True)
class Selection:
    """The wanted parts of one node, by the name of the child; None if all of it is wanted."""

    parts: dict[str, Selection] | None = None
    path: str = ""

    @property
    def is_all(self) -> bool:
        """Whether everything below is wanted."""
        return self.parts is None

    def wants(self, step: str) -> Selection | None:
        """Return the selection for a child, None if no part of it is wanted."""
        return self if self.parts is None else self.parts.get(step)

    def check(self, steps: Collection[str], node: str) -> None:
        """Refuse a path that leads to no child of this node; ``node`` describes the node."""
        if self.parts is None:
            return
        for step, child in self.parts.items():
            if step in steps:
                continue
            hint: str | None
            if len(steps) == 1 and not set(steps).isdisjoint({ITEM, VALUE}):
                (only,) = steps
                hint = f'write "{self.path}{only}" and what is wanted of it'
            else:
                near = did_you_mean(step, steps)
                hint = f'did you mean "{_joined(self.path, near)}"?' if near else None
            raise ConfigurationError(
                f'columns has "{child.path}", and {self.path or "the root"} is {node}', hint=hint
            )


def select(columns: Sequence[str] | None) -> Selection:
    """Return the selection that a list of paths stands for; None selects everything."""
    if columns is None:
        return Selection()
    if isinstance(columns, str):
        raise ConfigurationError(
            "columns has to be a list of paths", found=repr(columns), hint=f"columns=[{columns!r}]"
        )
    root: dict[str, Selection] = {}
    for path in columns:
        _add(root, path)
    if not root:
        raise ConfigurationError("columns has no path", hint="leave it out to get all columns")
    return Selection(root)


def _add(root: dict[str, Selection], path: str) -> None:
    steps = _steps(path)
    parts, at = root, ""
    for step in steps[:-1]:
        at = _joined(at, step)
        selection = parts.get(step)
        if selection is None:
            selection = parts[step] = Selection({}, at)
        if selection.parts is None:  # all of it is wanted already
            return
        parts = selection.parts
    parts[steps[-1]] = Selection(None, path)


def _steps(path: str) -> list[str]:
    steps: list[str] = []
    at = 0
    while isinstance(path, str) and at < len(path) and len(steps) < _MAX_STEPS:
        if path[at] == "." and steps:
            at += 1
        match = _STEP.match(path, at)
        if match is None or (match["name"] and steps and path[at - 1] != "."):
            break
        steps.append(match[0])
        at = match.end()
    if not steps or at < len(path):
        raise ConfigurationError(
            f"columns has {path!r}, which is no path",
            hint='paths look like "id", "order.price", "lines[].sku" or "tags{value}"',
        )
    return steps


def _joined(path: str, step: str) -> str:
    return f"{path}.{step}" if path and step not in {ITEM, VALUE} else path + step
