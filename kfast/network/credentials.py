"""CredentialWatch: finds out that credentials which were refused have changed.

Network thread only. Used while a node is left alone after a refusal: renewed certificates, a token
that was renewed in the background, or another password are a reason to try again at once. Files are
looked at here, a password callable is asked on the login worker, both at most once a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfast.security.sasl.login import PendingStep, SaslLogins

CHECK_MS: Final = 1_000


class CredentialWatch:
    """The credentials of one consumer; ``files_version`` changes with files of TLS."""

    def __init__(self, logins: SaslLogins | None, files_version: Callable[[], int]) -> None:
        self._logins = logins
        self._files_version = files_version
        self._refused: tuple[int, int] | None = None
        self._step: PendingStep | None = None
        self.next_check_ms = 0
        """When `have_changed` looks again."""

    def refused(self) -> None:
        """Note that the credentials of now were refused."""
        self._refused = self._version()

    def have_changed(self, now_ms: int) -> bool:
        """Return whether the credentials are others than those that were refused last."""
        if self._step is not None and self._step.is_done:
            step, self._step = self._step, None
            if step.result() is not None:
                return True
        if now_ms < self.next_check_ms:
            return False
        self.next_check_ms = now_ms + CHECK_MS
        logins = self._logins
        if logins is not None and logins.look_for_change is not None and self._step is None:
            self._step = logins.runner.submit(logins.look_for_change)
        return self._refused is not None and self._refused != self._version()

    def forget(self) -> None:
        """Begin anew: no node refuses any more."""
        self._refused = None
        if self._step is not None:
            self._step.cancel()
            self._step = None

    def _version(self) -> tuple[int, int]:
        tokens = None if self._logins is None else self._logins.tokens
        return self._files_version(), 0 if tokens is None else tokens.renewals

    def __repr__(self) -> str:
        return f"<CredentialWatch refused={self._refused} step={self._step}>"
