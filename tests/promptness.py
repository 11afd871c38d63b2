"""What "at once" means in tests: far below time-outs of 30 s, also on a busy machine."""

from __future__ import annotations

from typing import Final

PROMPT_S: Final = 10.0
