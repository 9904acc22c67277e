"""Builds the authorizer that the settings name.

The built-in ones are imported when they are chosen: most servers need one.
"""

from __future__ import annotations

from importlib import import_module

from sk_agents.authorization.dummy_authorizer import DummyAuthorizer
from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.config.class_loader import ConfiguredFactory, build_configured
from sk_agents.config.settings import Settings

SOURCE = "TA_AUTHORIZER_MODULE, TA_AUTHORIZER_CLASS"
BUILT_IN = {
    "entra": ("sk_agents.authorization.entra_authorizer", "EntraAuthorizer"),
    "oidc": ("sk_agents.authorization.oidc_authorizer", "OidcAuthorizer"),
    "keys": ("sk_agents.authorization.key_authorizer", "KeyAuthorizer"),
}


class AuthorizerFactory(ConfiguredFactory[RequestAuthorizer]):
    """Without a configured class: `DummyAuthorizer`, for development."""

    def get_authorizer(self) -> RequestAuthorizer:
        """Raises ConfigurationError: the configured class cannot be loaded or built."""
        return self.get()

    def _build(self, settings: Settings) -> RequestAuthorizer:
        if settings.authorizer in BUILT_IN:
            module, name = BUILT_IN[settings.authorizer]
            authorizer: RequestAuthorizer = getattr(import_module(module), name)(settings)
            return authorizer
        own_module, own_class = settings.authorizer_module, settings.authorizer_class
        if own_module is None or own_class is None:
            return DummyAuthorizer()
        base = RequestAuthorizer
        return build_configured(own_module, own_class, base, settings, source=SOURCE)  # type: ignore[type-abstract]  # a base to check against
