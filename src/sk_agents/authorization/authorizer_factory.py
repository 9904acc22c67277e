"""Builds the authorizer that `TA_AUTHORIZER_MODULE` and `TA_AUTHORIZER_CLASS` name."""

from __future__ import annotations

from sk_agents.authorization.dummy_authorizer import DummyAuthorizer
from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.config.class_loader import ConfiguredFactory, build_configured
from sk_agents.config.settings import Settings

SOURCE = "TA_AUTHORIZER_MODULE, TA_AUTHORIZER_CLASS"


class AuthorizerFactory(ConfiguredFactory[RequestAuthorizer]):
    """With nothing configured, the authorizer for development that believes everybody."""

    def get_authorizer(self) -> RequestAuthorizer:
        """Raises LoadError: the configured class cannot be loaded or built."""
        return self.get()

    def _build(self, settings: Settings) -> RequestAuthorizer:
        module, name = settings.authorizer_module, settings.authorizer_class
        if module is None or name is None:
            return DummyAuthorizer()
        base = RequestAuthorizer
        return build_configured(module, name, base, settings, source=SOURCE)  # type: ignore[type-abstract]  # a base to check against
