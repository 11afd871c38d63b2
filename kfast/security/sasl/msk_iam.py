"""AWS_MSK_IAM: logging in to Amazon MSK with IAM.

On the wire it is OAUTHBEARER; the token is a signed URL that the package
``aws-msk-iam-sasl-signer-python`` makes of the credentials of this machine, a profile, or a role.
It may read files and ask other services, so it runs on the login worker.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kfast._base.optional import optional_package
from kfast.errors import ConfigurationError
from kfast.security import authentication_errors as errors

NAME: Final = "AWS_MSK_IAM"
_SESSION_NAME: Final = "kfast"
_MODULE: Final = "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"

_HOSTS: Final = (
    re.compile(r".+\.kafka\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?"),
    re.compile(r".+\.kafka-serverless\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?"),
)


@dataclass(frozen=True, slots=True)
class MskIamProvider:
    """A token provider: a callable that returns ``(token, expiry in seconds)``."""

    region: str
    profile: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None

    def __call__(self) -> tuple[str, float]:
        """Return a new token and when it expires."""
        token, expiry_ms = self._sign(signer_module())
        return token, expiry_ms / 1000

    def _sign(self, signer: Any) -> Any:
        if self.role_arn:
            return signer.generate_auth_token_from_role_arn(
                self.region, self.role_arn, self.role_session_name or _SESSION_NAME
            )
        try:
            if self.profile:
                return signer.generate_auth_token_from_profile(self.region, self.profile)
            return signer.generate_auth_token(self.region)
        except AttributeError:  # it does not check what the AWS SDK has found
            pass
        raise errors.no_aws_credentials(NAME)


def signer_module() -> Any:
    """Return the module that signs; `MissingDependencyError` if it is missing."""
    return optional_package(_MODULE, "sasl_mechanism=AWS_MSK_IAM")


def region_of(hosts: Sequence[str], environment: Mapping[str, str] = os.environ) -> str:
    """Return the region of the brokers: by their names, or by the environment."""
    for host in hosts:
        for pattern in _HOSTS:
            match = pattern.fullmatch(host.rstrip(".").lower())
            if match is not None:
                return match[1]
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigurationError(
            "sasl_mechanism=AWS_MSK_IAM needs the region of the cluster",
            cause="bootstrap_servers names no host of Amazon MSK",
            hint="set AWS_REGION",
        )
    return region
