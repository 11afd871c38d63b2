"""``python -m kfast``: the command line."""

from __future__ import annotations

from kfast.cli import program

if __name__ == "__main__":
    program()
