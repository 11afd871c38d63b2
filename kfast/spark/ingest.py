"""``python -m kfast.spark.ingest``: brings Kafka topics into a table of files, exactly once.

The command line is ``ingest_cli``'s. The name ``kfast.spark.ingest`` is a function's too: the
package looks that up when asked (``kfast.spark.__getattr__``), and so it stays under ``python -m``,
which binds no name. ``import kfast.spark.ingest`` does bind this module to the name, in place of
the function, as importing any submodule does. So that no program depends on who imported what
before, the module can be called then: its class is changed, as the language allows for modules.
"""

from __future__ import annotations

import sys
from types import ModuleType

from kfast.spark.ingest_cli import main
from kfast.spark.ingest_query import ingest

__all__ = ["main"]


class _CallableModule(ModuleType):
    """A module that is called as the function ``kfast.spark.ingest`` is."""

    __call__ = staticmethod(ingest)


sys.modules[__name__].__class__ = _CallableModule

if __name__ == "__main__":
    sys.exit(main())
