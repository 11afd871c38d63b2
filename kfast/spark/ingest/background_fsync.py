"""EarlyKeeping: a file goes to the disk while it is still being written.

Owns the call under way that does so. A task that ends with flushing its file waits for the disk
with nothing else to do; flushed piece by piece meanwhile, little is left at the end. It promises
nothing about the file until `finish` has returned.

Used by the thread that writes the file. Nothing outlives `finish` or `give_up`.
"""

from __future__ import annotations

from kfast.table.store import TableStore
from kfast.threads.background_call import BackgroundCall


class EarlyKeeping:
    """Keeps one file.

    Parameters
    ----------
    store : TableStore
        Where the file is.
    path : str
        Its name there.
    """

    def __init__(self, store: TableStore, path: str) -> None:
        self._store = store
        self._path = path
        self._call: BackgroundCall | None = None

    def begin(self) -> None:
        """Start to keep what was written so far, unless that is still being done.

        Raises
        ------
        OSError
            What was written before could not be kept.
        """
        if self._store.keeps_at_once or (self._call is not None and self._call.is_running):
            return
        if self._call is not None:
            self._call.end()
        self._call = BackgroundCall(
            f"kfast-keep-{self._path}", lambda: self._store.keep(self._path)
        )

    def finish(self) -> None:
        """Keep the whole file, which is closed now.

        Raises
        ------
        OSError
            It could not be kept, or some of it could not before. A system may tell that only once,
            so the earlier error counts.
        """
        if self._call is not None:
            self._call.end()
        self._store.keep(self._path)

    def give_up(self) -> None:
        """Wait until nothing is done with the file; it will be removed."""
        if self._call is not None:
            self._call.wait()

    def __repr__(self) -> str:
        return f"<EarlyKeeping {self._path}>"
