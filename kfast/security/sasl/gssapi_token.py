"""GSSAPI (RFC 4752): Kerberos, through the system's library and the ``gssapi`` package.

::

    client   token of the security context              each step may ask the KDC: it is `Work`
    server   token of the security context              ... until the context is established
    client   empty, if its last step gave no token
    server   wrapped: layers (bits), maximum size (3 bytes)
    client   wrapped: 1 (no layer), 0 0 0, authorization id
    server   empty

The ticket comes from the ticket cache, or from a keytab with a principal; no ``kinit`` is run. The
broker authenticates itself too (mutual authentication). Layers that sign or encrypt are not
supported: TLS does that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kfast._base.optional import optional_package
from kfast.security import authentication_errors as errors
from kfast.security.sasl.mechanism import Work
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from kfast.client.cluster import Node
    from kfast.errors import AuthenticationError

NAME: Final = "GSSAPI"

NO_LAYER: Final = 1
_LAYERS_BYTES: Final = 4
_ANSWER: Final = bytes((NO_LAYER, 0, 0, 0))


def gssapi_package() -> Any:
    """Return the package; `MissingDependencyError` if it is missing."""
    return optional_package("gssapi", "sasl_mechanism=GSSAPI")


def security_context(target: str, principal: str | None = None, keytab: str | None = None) -> Any:
    """Return a ``gssapi.SecurityContext`` of an initiator to ``service@host``; it may block."""
    gssapi = gssapi_package()
    server = gssapi.Name(target, gssapi.NameType.hostbased_service)
    name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
    store = {"client_keytab": keytab} if keytab else None
    credentials = None
    if name is not None or store is not None:
        credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
    return gssapi.SecurityContext(
        name=server,
        creds=credentials,
        usage="initiate",
        mech=gssapi.MechType.kerberos,
        flags=gssapi.RequirementFlag.mutual_authentication
        | gssapi.RequirementFlag.out_of_sequence_detection,
    )


class GssapiMechanism:
    """One log-in; ``make_context`` returns a security context to ``target`` (``service@host``)."""

    name = NAME

    def __init__(self, node: Node, target: str, make_context: Callable[[], Any]) -> None:
        self.user: str | None = None
        self.is_complete = False
        self._node = node
        self._target = target
        self._make_context = make_context
        self._context: Any = None
        self._is_established = False
        self._has_answered_layers = False

    def first(self) -> Work:
        """Return the context's first token."""
        return Work(lambda: self._step(None))

    def answer(self, token: Secret[bytes]) -> Secret[bytes] | Work | None:
        """Continue the context, then choose no layer, then take the end."""
        if not self._is_established:
            return Work(lambda: self._step(token))
        if not self._has_answered_layers:
            return Work(lambda: self._answer_layers(token))
        if self.is_complete or token.reveal():
            raise errors.out_of_order(self._node, NAME, self.user)
        self.is_complete = True
        return None

    def refused(self, text: str | None) -> AuthenticationError:
        """Return the error for a ticket that the broker refused."""
        return errors.ticket_refused(self._node, self.user, text)

    def _step(self, token: Secret[bytes] | None) -> Secret[bytes]:
        reason = None
        try:
            if self._context is None:
                self._context = self._make_context()
            answer = self._context.step(None if token is None else token.reveal())
            self._is_established = bool(self._context.complete)
            if self._is_established:
                self.user = str(self._context.initiator_name)
        except Exception as error:  # the classes are those of an optional package
            reason = words_of(error)
        if reason is not None and token is None:
            raise errors.no_ticket(self._node, self._target, reason)
        if reason is not None:
            raise errors.untrusted_server(self._node, NAME, self.user, reason)
        return Secret(bytes(answer) if answer else b"")

    def _answer_layers(self, token: Secret[bytes]) -> Secret[bytes]:
        reason = None
        try:
            layers = self._context.unwrap(token.reveal()).message
            if len(layers) != _LAYERS_BYTES:
                reason = "its offer of security layers is malformed"
            elif not layers[0] & NO_LAYER:
                reason = "it demands a security layer, which is not supported"
            else:
                answer = self._context.wrap(_ANSWER + (self.user or "").encode(), False).message
        except Exception as error:  # as above
            reason = words_of(error)
        if reason is not None:
            raise errors.untrusted_server(self._node, NAME, self.user, reason)
        self._has_answered_layers = True
        return Secret(bytes(answer))


def words_of(error: Exception) -> str:
    """Return the words of a GSSAPI error: its minor message says more than the major one."""
    for code in ("min_code", "maj_code"):
        describe = getattr(error, "get_all_statuses", None)
        value = getattr(error, code, None)
        if describe is None or not value:
            continue
        try:
            statuses = describe(value, code == "maj_code")
        except Exception:
            continue
        if statuses:
            return ", ".join(str(status) for status in statuses)
    return type(error).__name__ if isinstance(error, ImportError) else str(error)
