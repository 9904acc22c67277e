"""Which authorities' certificates count, and the certificate that this server shows.

If `SSL_CERT_FILE`, `REQUESTS_CA_BUNDLE` or `SSL_CERT_DIR` is set, the authorities named there are
trusted and no others; otherwise those of the system.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sk_agents.exceptions import ConfigurationError

# The first that is set. The second one is the requests library's and may also name a folder.
FILE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
FOLDER_VARIABLE = "SSL_CERT_DIR"


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """PEM files; without `key`, the certificate's file holds both."""

    path: Path
    key: Path | None = None
    password: str | None = field(default=None, repr=False)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Raises ConfigurationError: the files cannot be used."""
        try:
            # Without a password the library would ask for one at the terminal.
            context.load_cert_chain(self.path, self.key, password=lambda: self.password or "")
        except (OSError, ValueError) as error:
            names = " and ".join(str(path) for path in (self.path, self.key) if path is not None)
            raise ConfigurationError(
                f"the client certificate in {names} cannot be used: {_reason(error)}"
            ) from None


@dataclass(frozen=True, slots=True)
class Authorities:
    """Whom to trust: a file, folders, or the system's store if there is neither."""

    file: Path | None = None
    folders: tuple[Path, ...] = ()
    variables: tuple[str, ...] = ()

    def load_into(self, context: ssl.SSLContext) -> None:
        """Raises ConfigurationError: a file or folder cannot be used."""
        if self.file is None and not self.folders:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
            return
        for place in filter(None, (self.file, *self.folders)):
            try:
                if place.is_dir():
                    context.load_verify_locations(capath=place)
                else:
                    context.load_verify_locations(cafile=place)
            except (OSError, ValueError) as error:
                names = " and ".join(self.variables)
                raise ConfigurationError(
                    f"{names}: {place} holds no usable certificates: {_reason(error)}"
                ) from None

    def __str__(self) -> str:
        if not self.variables:
            return "the system's authorities"
        places = ", ".join(str(place) for place in (self.file, *self.folders) if place)
        return f"the authorities in {places} ({', '.join(self.variables)})"


def read_authorities(environ: Mapping[str, str]) -> Authorities:
    file, folders, variables = None, [], []
    for name in FILE_VARIABLES:
        if value := environ.get(name, "").strip():
            file, variables = Path(value).expanduser(), [name]
            break
    if value := environ.get(FOLDER_VARIABLE, "").strip():
        # Several folders, as OpenSSL takes them.
        folders = [Path(folder).expanduser() for folder in value.split(":") if folder]
        variables.append(FOLDER_VARIABLE)
    return Authorities(file, tuple(folders), tuple(variables))


def tls_context(
    authorities: Authorities, certificate: ClientCertificate | None, *, verify: bool = True
) -> ssl.SSLContext:
    """For connections that this server opens. Reads files: call it in a thread.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if verify:
        authorities.load_into(context)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        certificate.load_into(context)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, PermissionError):
        return "it may not be read"
    if isinstance(error, ssl.SSLError):
        words = (error.reason or "").replace("_", " ").lower()
        return words or "not in PEM format"
    return type(error).__name__
