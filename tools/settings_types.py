"""``python -m tools.settings_types``: kfast/settings/types.py, out of the table of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kfast.settings.names import ALIASES, SETTINGS

TARGET: Final = Path(__file__).resolve().parents[1] / "kfast" / "settings" / "types.py"

_HEAD: Final = '''\
"""ConsumerSettings: the types of all settings, for type checkers.

Made by ``python -m tools.settings_types`` out of the table of settings; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict


class ConsumerSettings(TypedDict, total=False):
    """Every setting of a consumer by keyword, with the other names it is known by.

    For functions that hand settings on: ``def open(**settings: Unpack[ConsumerSettings])``. The
    values are described by `kfast.ConsumerConfig.describe`; one that is read from a file may also
    be text.

    Examples
    --------
    >>> def open_topic(topic: str, **settings: Unpack[kfast.ConsumerSettings]):
    ...     return kfast.KafkaConsumer(topic, **settings)
    """

'''


def types_text() -> str:
    """Return what the file has to contain."""
    lines = [_HEAD]
    lines += [_field(name, row.annotation) for name, row in SETTINGS.items()]
    lines.append("\n    # Other clients' names\n")
    for name, alias in ALIASES.items():
        annotation = SETTINGS[alias.name].annotation
        is_bool = any(isinstance(value, bool) for value in alias.values)
        lines.append(_field(name, "bool" if is_bool else annotation))
    return "".join(lines)


def _field(name: str, annotation: str) -> str:
    line = f"    {name}: {annotation}\n"
    if len(line) <= 101:
        return line
    head, _, choices = annotation.partition("[")
    inner = "".join(f"        {each},\n" for each in choices.removesuffix("]").split(", "))
    return f"    {name}: {head}[\n{inner}    ]\n"


if __name__ == "__main__":
    TARGET.write_text(types_text(), encoding="utf-8")
