"""Builds the authorizer that the settings name.

The built-in ones are imported when they are chosen: most servers need one.
"""

from __future__ import annotations

from importlib import import_module

from sk_agents.authorization.dummy_authorizer import DummyAuthorizer
from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.config.class_loader import ConfiguredFactory, build_configured
from sk_agents.config.settings import Settings, variable
from sk_agents.exceptions import ConfigurationError

SOURCE = "TA_AUTHORIZER_MODULE, TA_AUTHORIZER_CLASS"
BUILT_IN = {
    "entra": ("sk_agents.authorization.entra_authorizer", "EntraAuthorizer"),
    "oidc": ("sk_agents.authorization.oidc_authorizer", "OidcAuthorizer"),
    "keys": ("sk_agents.authorization.key_authorizer", "KeyAuthorizer"),
}


# By which authorizer a setting is read; `TA_ROLES` is by each but the one that believes everyone.
_MEANT = {"entra_": "entra", "oidc_": "oidc", "keys_file": "keys", "roles": "entra, oidc or keys"}


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
            _check_nothing_was_meant(settings)
            return DummyAuthorizer()
        base = RequestAuthorizer
        return build_configured(own_module, own_class, base, settings, source=SOURCE)  # type: ignore[type-abstract]  # a base to check against


def _check_nothing_was_meant(settings: Settings) -> None:
    """Behind a proxy on the same machine a server that was to check tokens would let everyone in.

    Raises:
        ConfigurationError: a setting of an authorizer is set, and none was chosen.
    """
    if settings.authorizer is not None:
        return
    for field in sorted(settings.model_fields_set):
        meant = next((one for start, one in _MEANT.items() if field.startswith(start)), None)
        if meant is not None and getattr(settings, field) is not None:
            raise ConfigurationError(
                f"{variable(field)} is set, and TA_AUTHORIZER is not, so every caller would be let "
                f"in: set TA_AUTHORIZER={meant}, or TA_AUTHORIZER=dummy if that is meant"
            )
