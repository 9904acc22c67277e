"""Access keys for scripts and small teams, made by `teal keys add`."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import ClassVar

from sk_agents.authorization.access_keys import AccessKey, KeysFile, default_keys_file
from sk_agents.authorization.request_authorizer import Principal, RequestAuthorizer
from sk_agents.authorization.token_authorizer import bearer_token
from sk_agents.config.settings import Settings
from sk_agents.exceptions import AuthorizerUnavailable, ConfigurationError, Unauthenticated
from sk_agents.wire.views import SignInView

logger = logging.getLogger(__name__)


class KeyAuthorizer(RequestAuthorizer):
    """The file is looked at for each request, so a new or revoked key counts at the next one."""

    is_immediate: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        self._file = KeysFile(settings.keys_file or default_keys_file(os.environ))
        if not self._file.path.exists():
            # It may be made later; a misspelt path would let nobody in, without a word.
            logger.warning(
                "there are no access keys yet: `teal keys add` makes one",
                extra={"file": str(self._file.path)},
            )

    async def authorize_request(self, auth_header: str) -> Principal:
        text = bearer_token(auth_header)
        try:
            key = self._file.find(text, datetime.now(UTC))
        except ConfigurationError as error:
            raise AuthorizerUnavailable(str(error)) from error
        if key is None:
            raise Unauthenticated("This access key is unknown, revoked or expired.")
        return Principal(
            key.name, name=key.name, roles=frozenset(key.roles), groups=frozenset(key.groups)
        )

    async def ping(self) -> None:
        try:
            self._file.keys()
        except ConfigurationError as error:
            raise AuthorizerUnavailable(str(error)) from error

    def credentials(self) -> Mapping[str, str]:
        return {key.key_id: _described(key) for key in self._file.keys()}

    async def sign_in(self) -> SignInView:
        return SignInView(method="key")


def _described(key: AccessKey) -> str:
    until = f"until {key.expires_at.isoformat()}" if key.expires_at else "without an end"
    # Only where there are some: the audit must not note a change of keys that nobody changed.
    groups = f", groups: {', '.join(key.groups)}" if key.groups else ""
    return f"{key.name}, {until}, roles: {', '.join(key.roles) or 'none'}{groups}"
