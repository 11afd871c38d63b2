"""protoc, Google's compiler of ``.proto`` files, as oracle (package grpcio-tools)."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from google.type import date_pb2
from grpc_tools import protoc


def own_files() -> Path:
    """Return the folder with Google's own ``.proto`` files."""
    return Path(str(importlib.resources.files("grpc_tools") / "_proto"))


def common_files() -> Path:
    """Return the folder with the ``.proto`` files that APIs of Google share."""
    return Path(date_pb2.__file__).parents[2]


def descriptor_set(files: Mapping[str, str], *names: str) -> bytes | None:
    """Return the FileDescriptorSet of files, by default main.proto, and of what they import.

    None if protoc refuses them.
    """
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
        made = Path(folder, "made.desc")
        code = protoc.main(
            [
                "protoc",
                f"-I{folder}",
                f"-I{own_files()}",
                "--include_imports",
                f"--descriptor_set_out={made}",
                *(names or ["main.proto"]),
            ]
        )
        return made.read_bytes() if code == 0 else None
