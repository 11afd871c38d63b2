"""SASL: mechanisms, and the log-in of a connection with one of them.

``make_logins`` is the one place that chooses a mechanism, ``make_tokens`` the one that chooses
where its token comes from. Imported only by consumers whose security protocol has SASL.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kfast._base.clock import Clock, ExponentialBackoff
from kfast.security.sasl.gssapi_token import GssapiMechanism, security_context
from kfast.security.sasl.login import LoginFacts, SaslLogins, StepRunner
from kfast.security.sasl.mechanism import MechanismFactory, Work
from kfast.security.sasl.oauthbearer import OAuthBearerMechanism
from kfast.security.sasl.plain import PasswordSource, PlainMechanism
from kfast.security.sasl.sasl_settings import SaslSettings
from kfast.security.sasl.scram import NONCE_BYTES, ScramMechanism
from kfast.security.sasl.token_cache import RefreshRule, TokenCache
from kfast.security.sasl.token_provider import TokenSource, completed, token_source
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from kfast.client.cluster import Node
    from kfast.config import ConsumerConfig
    from kfast.security.sasl.oidc import ClientCredentials, Endpoint
    from kfast.types import OAuthToken

TokenRequest = Callable[["Endpoint", "ClientCredentials"], "OAuthToken"]
"""Requests a token from its endpoint; blocks, and raises `KafkaError`."""


def make_tokens(
    config: ConsumerConfig, settings: SaslSettings, request_token: TokenRequest, clock: Clock
) -> TokenCache | None:
    """Return the token that a consumer logs in with; None for a mechanism without one."""
    if settings.provider is None and settings.endpoint is None:
        return None
    return TokenCache(
        _token_source(settings, config, request_token),
        RefreshRule.of(config),
        ExponentialBackoff(
            config.sasl_login_retry_backoff_ms, config.sasl_login_retry_backoff_max_ms
        ),
        clock,
    )


def make_logins(
    settings: SaslSettings, runner: StepRunner, tokens: TokenCache | None, clock: Clock
) -> SaslLogins:
    """Return the log-ins of a consumer's connections."""
    look_for_change: Work | None = None
    if settings.password is not None and settings.password.is_callable:
        source = PasswordSource(settings.password)
        settings = replace(settings, password=Secret(source))
        look_for_change = Work(source.look_for_change)
    facts = LoginFacts(settings.mechanism, settings.is_named, settings.is_encrypted)
    make_mechanism = _factory(settings, tokens, clock)
    return SaslLogins(
        facts, runner, make_mechanism, clock.random, tokens, look_for_change=look_for_change
    )


def _factory(settings: SaslSettings, tokens: TokenCache | None, clock: Clock) -> MechanismFactory:
    name, user, password = settings.mechanism, settings.user, settings.password
    if tokens is not None:
        return lambda node: OAuthBearerMechanism(
            node, tokens.token, clock.wall_ms, name, tokens.drop
        )
    if password is None:
        return lambda node: _gssapi(settings, node)
    if name == "PLAIN":
        return lambda node: PlainMechanism(node, user, password)
    return lambda node: ScramMechanism(
        node,
        name,
        user,
        password,
        secrets.token_urlsafe(NONCE_BYTES),
        is_delegation_token=settings.is_delegation_token,
    )


def _gssapi(settings: SaslSettings, node: Node) -> GssapiMechanism:
    host = settings.service_host or node.host.rstrip(".")
    target = settings.target or f"{settings.service}@{host}"
    return GssapiMechanism(
        node, target, lambda: security_context(target, settings.principal, settings.keytab)
    )


def _token_source(
    settings: SaslSettings, config: ConsumerConfig, request_token: TokenRequest
) -> TokenSource:
    endpoint, credentials = settings.endpoint, settings.credentials
    if endpoint is None or credentials is None:
        argument = config.sasl_oauthbearer_config or Secret("")
        return token_source(settings.provider, argument, settings.mechanism)

    def source() -> OAuthToken:
        token = completed(request_token(endpoint, credentials))
        return replace(token, extensions=settings.extensions or {})

    return source
