"""Everything that decides how a request leaves this server, for all parts that send some."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sk_agents.config.settings import Settings, environment
from sk_agents.outbound.certificates import (
    Authorities,
    ClientCertificate,
    read_authorities,
    tls_context,
)
from sk_agents.outbound.proxies import Proxy, ProxyRules, read_proxies

_Wanted = tuple[ClientCertificate | None, bool]


@dataclass(frozen=True, eq=False)
class Network:
    """`certificate` is shown to servers that ask for one, unless a request brings its own.

    Without arguments: no proxy, and the system's authorities.
    """

    proxies: ProxyRules = ProxyRules()
    authorities: Authorities = Authorities()
    certificate: ClientCertificate | None = None
    _contexts: dict[_Wanted, ssl.SSLContext] = field(default_factory=dict, init=False, repr=False)

    def proxy_for(self, url: str) -> Proxy | None:
        """Raises ConfigurationError: the variable that names it cannot be used."""
        return self.proxies.proxy_for(url)

    def check(self, certificate: ClientCertificate | None = None) -> None:
        """Read the files that are named, so that a mistake shows at the start.

        Raises:
            ConfigurationError: one of them cannot be used.
        """
        shown = certificate or self.certificate
        if shown is not None or self.authorities.variables:
            self.context(shown)

    def context(
        self, certificate: ClientCertificate | None = None, *, verify: bool = True
    ) -> ssl.SSLContext:
        """For https. The first call for a certificate reads files.

        Raises:
            ConfigurationError: a file cannot be used.
        """
        wanted = (certificate or self.certificate, verify)
        if wanted not in self._contexts:
            self._contexts[wanted] = tls_context(self.authorities, wanted[0], verify=verify)
        return self._contexts[wanted]

    async def loaded_context(
        self, certificate: ClientCertificate | None = None, *, verify: bool = True
    ) -> ssl.SSLContext:
        """`context`, whose files are read in a thread."""
        known = self._contexts.get((certificate or self.certificate, verify))
        if known is not None:
            return known
        return await asyncio.to_thread(self.context, certificate, verify=verify)

    def anonymous(self) -> Network:
        """The same for addresses that the operator did not choose: no certificate is shown."""
        return Network(self.proxies, self.authorities)


def read_network(
    environ: Mapping[str, str], certificate: ClientCertificate | None = None
) -> Network:
    return Network(read_proxies(environ), read_authorities(environ), certificate)


def configured_network(settings: Settings, config_paths: Sequence[Path] = ()) -> Network:
    """What the environment, the `.env` files and the settings say.

    Raises:
        ConfigurationError: a file that is named cannot be used.
    """
    certificate = None
    if settings.client_cert is not None:
        password = settings.client_key_password
        certificate = ClientCertificate(
            settings.client_cert,
            settings.client_key,
            password.get_secret_value() if password is not None else None,
        )
    if not config_paths and settings.service_config is not None:
        config_paths = [settings.service_config]
    network = read_network(environment(config_paths), certificate)
    network.check()
    return network
