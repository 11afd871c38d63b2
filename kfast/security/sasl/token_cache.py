"""TokenCache: the one token of a consumer, and when it is renewed.

Sans-IO but for its source, which is called on the login worker, as is everything here; the time is
the clock's. One token serves all connections. It is renewed in the background before it expires, by
Java's rule::

    proposed  life x (refresh_window_factor +- refresh_window_jitter) after it came
    limits    not later than refresh_buffer_seconds before the expiry
              not before refresh_min_period_seconds of age
              neither, if the life is too short for both

A renewal that fails is tried again with back-off while the old token lives; after that a log-in
asks, and raises. A token without an expiry is asked for by each log-in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kfast._base.clock import ExponentialBackoff
from kfast._base.logs import get_logger
from kfast.errors import KafkaError

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast.config import ConsumerConfig
    from kfast.security.sasl.token_provider import TokenSource
    from kfast.types import OAuthToken

logger = get_logger(__name__)

_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class RefreshRule:
    """When a token is renewed: the ``sasl_login_refresh_*`` settings."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_ms: int = 60_000
    buffer_ms: int = 300_000

    @classmethod
    def of(cls, config: ConsumerConfig) -> RefreshRule:
        """Return the rule of a configuration."""
        return cls(
            config.sasl_login_refresh_window_factor,
            config.sasl_login_refresh_window_jitter,
            config.sasl_login_refresh_min_period_seconds * _MS,
            config.sasl_login_refresh_buffer_seconds * _MS,
        )

    def age_ms(self, life_ms: int, random: float) -> int:
        """Return the age at which a token with a life of so long is renewed."""
        factor = self.window_factor + self.window_jitter * (2 * random - 1)
        proposed_ms = int(life_ms * min(1.0, max(0.0, factor)))
        if self.min_period_ms + self.buffer_ms > life_ms:
            return proposed_ms
        return max(self.min_period_ms, min(proposed_ms, life_ms - self.buffer_ms))


class TokenCache:
    """The token of one consumer. Login worker only, except `drop`."""

    def __init__(
        self, ask: TokenSource, rule: RefreshRule, backoff: ExponentialBackoff, clock: Clock
    ) -> None:
        self._ask = ask
        self._rule = rule
        self._backoff = backoff
        self._clock = clock
        self._token: OAuthToken | None = None
        self._expiry_ms = 0
        self._failures = 0
        self._is_dropped = False
        self.renewals = 0
        """How often a token was replaced in the background. Any thread."""
        self.next_refresh_ms: int | None = None
        """When the token is to be renewed; None while there is none, or it is asked for anyway."""

    def token(self) -> OAuthToken:
        """Return the token for a log-in; `KafkaError` if there is none."""
        now_ms = self._clock.now_ms()
        token = self._token
        is_usable = token is not None and token.expires_at_ms is not None
        if token is None or not is_usable or self._expiry_ms <= now_ms or self._is_dropped:
            return self._renew()
        self.refresh(now_ms)
        return self._token or token

    def drop(self) -> None:
        """Have the next log-in ask for another token: a broker has refused this one. Any thread."""
        self._is_dropped = True

    def refresh(self, now_ms: int) -> None:
        """Renew the token if it is time to; a failure is logged while the old one lives."""
        if self.next_refresh_ms is None or now_ms < self.next_refresh_ms:
            return
        try:
            self._renew()
        except KafkaError as error:
            reason = f"{error.message} ({error.cause})" if error.cause else error.message
        except BaseException as error:  # it would end the login worker
            logger.exception("the renewal of an OAuth token failed")
            reason = f"internal error: {type(error).__name__}"
        else:
            self.renewals += 1
            return
        now_ms = self._clock.now_ms()
        wait_ms = max(1, self._backoff.backoff_ms(self._failures, self._clock))
        self._failures += 1
        left_ms = self._expiry_ms - now_ms
        self.next_refresh_ms = now_ms + wait_ms if left_ms > 0 else None
        logger.warning("the OAuth token expires in %d s: %s", max(0, left_ms) // _MS, reason)

    def _renew(self) -> OAuthToken:
        token = self._ask()
        self._is_dropped = False
        now_ms = self._clock.now_ms()
        self._token = token
        self._failures = 0
        self.next_refresh_ms = None
        if token.expires_at_ms is not None:
            life_ms = max(0, token.expires_at_ms - self._clock.wall_ms())
            self._expiry_ms = now_ms + life_ms
            if life_ms:
                age_ms = self._rule.age_ms(life_ms, self._clock.random())
                self.next_refresh_ms = now_ms + age_ms
        return token

    def __repr__(self) -> str:
        return f"<TokenCache {self._token} next_refresh={self.next_refresh_ms}>"
