"""Folders as users write them: which text is a path of this machine, and which is a URL.

Owns the rules, for tables and for checkpoints. A text that is neither is refused with the spelling
that is right: it never becomes a relative folder.

======================================================  ==========================================
text                                                    is
======================================================  ==========================================
``/data/x``, ``data/x``, ``~/x``                        a path, which is made absolute
``file:/data/x``, ``file:///data/x``,                   the path ``/data/x``
``file://localhost/data/x``
``s3://bucket/x``                                       a URL of the filesystem ``s3``
``s3:/bucket/x``, ``dbfs:/x``, ``file://host/x``,       refused
``file:x``, ``C:\\x``, ``C:/x``, ``\\\\server\\x``
======================================================  ==========================================

Pure, but for the process's current folder and the user's home.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from kfast.errors import ConfigurationError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_THIS_MACHINE: Final = ("", "localhost")
_OTHER_SPELLINGS: Final = {"dbfs": "/dbfs/", "s3n": "s3://"}
"""What to write in place of a scheme and its slashes."""


def scheme_of(text: str) -> str:
    """Return the scheme of a folder's URL in lower case, "file" for a path."""
    match = _SCHEME.fullmatch(text)
    return match[1].lower() if match else "file"


def is_local(text: str) -> bool:
    """Return whether a folder is written as one of this machine."""
    return scheme_of(text) == "file"


def local_path(text: str) -> Path:
    """Return the absolute path of a local folder, given as a path or a ``file`` URL.

    Raises ``ConfigurationError`` for what is no path of this machine.
    """
    path = text
    if match := _SCHEME.fullmatch(text):
        path = match[2]
        if path.startswith("//"):
            host, slash, rest = path[2:].partition("/")
            if host.lower() not in _THIS_MACHINE:
                raise _refused(text, f"{host} is another machine", f"write file:///{host}/{rest}")
            path = slash + rest
        if not path.startswith("/"):
            raise _refused(text, "a file URL has an absolute path", "write file:///folder")
    if not path.strip():
        raise ConfigurationError("the folder has no name", hint="give a path or a URL")
    if path[0].isspace():
        raise _refused(text, "it begins with a space", f"write {path.strip()}")
    if path.startswith("\\"):
        raise _refused(text, "it is a path of Windows", "mount the folder, and give its path here")
    if "://" in path and not path.startswith("/"):
        raise _refused(text, "it is neither a path nor a URL", "write s3://bucket/folder")
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise _refused(text, str(error), f"write ./{path} for a folder of that name") from None


def checked_url(text: str, schemes: Collection[str]) -> str:
    """Return a URL that is not of this machine, its scheme in lower case.

    Raises ``ConfigurationError`` if it is no ``scheme://bucket/folder`` of one of ``schemes``, the
    supported ones.
    """
    scheme, _, path = text.partition(":")
    rest = path.replace("\\", "/").lstrip("/")
    if len(scheme) == 1:
        hint = f"write the path as this machine has it, such as /mnt/{scheme.lower()}/{rest}"
        raise _refused(text, "it has a drive letter of Windows", hint)
    if (instead := _OTHER_SPELLINGS.get(scheme.lower())) is not None:
        raise _refused(text, f"{scheme} is not supported", f"write {instead}{rest}")
    if scheme.lower() not in schemes:
        name = "" if path.startswith("//") else f" (./{text} if that is its name)"
        raise ConfigurationError(
            f"{text}: {scheme} cannot create a file exclusively",
            cause="without that a batch could be published twice",
            hint=f"use a local or mounted folder{name}, or one of {', '.join(schemes)}",
        )
    if not path.startswith("//"):
        raise _refused(text, f"two slashes follow {scheme}:", f"write {scheme}://{rest}")
    if path.startswith("///") or not rest:
        raise _refused(text, "it names no bucket", f"write {scheme}://bucket/{rest}")
    return f"{scheme.lower()}:{path}"


def _refused(text: str, cause: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"{text} is not a folder kfast can use", cause=cause, hint=hint)
