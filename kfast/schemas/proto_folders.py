"""Files that ``.proto`` text imports, in folders of this machine.

The command line and Spark's driver read them; what is decoded with them is given their texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from kfast.errors import ConfigurationError
from kfast.schemas.proto_text import parse_file


def read_imports(text: str, folders: Sequence[str | Path]) -> dict[str, str]:
    """Return the texts of the files that a text imports, and of those that they import, by name.

    A file is that of the first folder that has it; one that none has is left out.

    Raises
    ------
    ConfigurationError
        A text is no ``.proto`` text, a file cannot be read, or an import is no name in a folder.
    """
    texts: dict[str, str] = {}
    waiting = [("", text)]
    while waiting:
        name, text = waiting.pop()
        for import_name in parse_file(text, name).imports:
            if import_name in texts:
                continue
            read = _read(import_name, folders)
            if read is not None:
                texts[import_name] = read
                waiting.append((import_name, read))
    return texts


def _read(name: str, folders: Sequence[str | Path]) -> str | None:
    if "\\" in name or "\0" in name or not {"", ".", "..", "/"}.isdisjoint(name.split("/")):
        raise ConfigurationError(
            f'import "{name[:80]!s}": no name of a file in a folder',
            hint=f'such as import "shop/{PurePosixPath(name).name[:40]}";',
        )
    for folder in folders:
        path = Path(folder, name)
        try:
            return path.read_text(encoding="utf-8-sig")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"the import {path} cannot be read",
                cause=str(error),
                hint="a file of UTF-8 text that can be read",
            ) from error
    return None
