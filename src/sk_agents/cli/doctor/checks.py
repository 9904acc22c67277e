"""The doctor's checks in their order: machine, configuration, store, models, a running server."""

from __future__ import annotations

import asyncio
import logging
import platform
import re
import shutil
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib import metadata
from pathlib import Path

from sk_agents import __version__
from sk_agents.app import try_agent_routes
from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.authorization.roles import read_role_map
from sk_agents.cli.doctor.findings import Finding, report
from sk_agents.cli.doctor.remote_checks import (
    check_addresses,
    check_server,
    check_services,
    is_teal_server,
)
from sk_agents.cli.options import Exit, ServerAccess
from sk_agents.cli.serve import served_agents
from sk_agents.cli.server_connection import silence_client_log
from sk_agents.config.agent_file import configured_paths
from sk_agents.config.default_agents import UNTAUGHT
from sk_agents.config.foreign_variables import foreign_variables
from sk_agents.config.settings import Settings, environment, export_environment, load_settings
from sk_agents.config.store_url import store_name, store_url
from sk_agents.exceptions import ConfigurationError, StoreError
from sk_agents.http.caller import check_bind_address
from sk_agents.wiring import ServerParts, build_authorizer, build_parts, outbound_addresses

CONFIGURATION = "configuration"
DISTRIBUTION = "teal-agents"
SHOWN_PACKAGES = ("fastapi", "uvicorn", "pydantic", "aiohttp", "apsw")
MB = 1024**2
TOKEN_AUTHORIZERS = ("entra", "oidc")
LITTLE_DISK = 1024 * MB
TOO_LITTLE_DISK = 100 * MB


def run_checks(
    config: Sequence[Path],
    *,
    store: str | None,
    model_timeout: float | None,
    access: ServerAccess | None,
    token_source: str | None,
    as_json: bool,
) -> Exit:
    """Check everything, but no model without a `model_timeout` and no server without `access`; or
    a token alone."""

    async def checks() -> AsyncIterator[Finding]:
        version = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
        yield Finding("python", "ok", version)
        yield check_packages()
        try:
            settings = load_settings(config, store=store)
        except ConfigurationError as error:
            yield _misconfigured("settings", error)
        else:
            if token_source is not None:
                async for finding in _token_checks(settings, token_source):
                    yield finding
                return
            async for finding in _local_checks(config, settings, model_timeout):
                yield finding
        if access is not None:
            async for finding in check_server(access):
                yield finding

    silence_client_log()
    # The findings say it in a line; the log of the server that is tried out would say it again.
    logging.getLogger("sk_agents").setLevel(logging.CRITICAL)
    try:
        return asyncio.run(report(checks(), as_json=as_json))
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


async def _local_checks(
    config: Sequence[Path], settings: Settings, model_timeout: float | None
) -> AsyncIterator[Finding]:
    export_environment(config or configured_paths(settings.service_config))
    for found in foreign_variables(environment(config)):
        yield Finding("variables", "fail" if found.stops else "warn", found.name, found.advice)
    yield _check_authorizer(settings)
    async for finding in _issuer_checks(settings, is_tried=model_timeout is not None):
        yield finding
    try:
        settings, offer = await served_agents(config, settings)
        parts = build_parts(settings, offer.files)
        try_agent_routes(parts, offer.files, settings)
    except ConfigurationError as error:
        yield _misconfigured(CONFIGURATION, error)
        return
    yield _configured(parts)
    for finding in _untaught(parts):
        yield finding
    yield await _check_store(settings, parts)
    if settings.store_module is None:
        yield check_disk(store_url(settings))
    yield await check_port(settings.host, settings.port)
    addresses = outbound_addresses(parts, _authorizer(settings))
    network = parts.clients.models.network
    async for finding in check_addresses(addresses, network, is_tried=model_timeout is not None):
        yield finding
    if model_timeout is None:
        yield Finding("models", "ok", "not called, because of --offline")
        return
    async for finding in check_services(settings, offer.files, parts, seconds=model_timeout):
        yield finding


def check_packages() -> Finding:
    """Whether everything is installed that this package needs without extras."""
    missing = [name for name in _required() if _version(name) is None]
    shown = ", ".join(f"{name} {_version(name)}" for name in SHOWN_PACKAGES)
    detail = f"teal-agents {__version__}, {shown}"
    if missing:
        names = " ".join(missing)
        return Finding("packages", "fail", f"{detail}; missing: {names}", f"pip install {names}")
    return Finding("packages", "ok", detail)


def _required() -> list[str]:
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    plain = (entry for entry in requirements if "extra ==" not in entry)
    return [match[0] for entry in plain if (match := re.match(r"[A-Za-z0-9._-]+", entry))]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


async def _issuer_checks(settings: Settings, *, is_tried: bool) -> AsyncIterator[Finding]:
    if is_tried and settings.authorizer in TOKEN_AUTHORIZERS:
        # PyJWT and aiohttp are slow to load, and most configurations do without.
        from sk_agents.cli.doctor.token_checks import check_issuers  # noqa: PLC0415

        if (authorizer := _authorizer(settings)) is not None:
            async for finding in check_issuers(authorizer):
                yield finding


def _authorizer(settings: Settings) -> RequestAuthorizer | None:
    """`None`: it cannot be built, which is a finding already."""
    try:
        return build_authorizer(settings)
    except ConfigurationError:
        return None


async def _token_checks(settings: Settings, source: str) -> AsyncIterator[Finding]:
    from sk_agents.cli.doctor.token_checks import check_token  # noqa: PLC0415  # as above

    try:
        authorizer = build_authorizer(settings)
    except ConfigurationError as error:
        yield _misconfigured("callers", error)
        return
    async for finding in check_token(authorizer, source):
        yield finding


def _check_authorizer(settings: Settings) -> Finding:
    try:
        authorizer = build_authorizer(settings)
        check_bind_address(settings.host, authorizer, settings.allow_insecure_auth)
        read_role_map(settings.roles)
    except ConfigurationError as error:
        return _misconfigured("callers", error)
    try:
        authorizer.credentials()
    except ConfigurationError as error:
        return Finding("callers", "fail", str(error), "teal serve would let nobody in (503)")
    name = type(authorizer).__name__
    if authorizer.insecure:
        return Finding(
            "callers",
            "warn",
            f"{name} checks no tokens, at {settings.host}",
            "for more than development set TA_AUTHORIZER to entra, oidc or keys",
        )
    return Finding("callers", "ok", name)


def _configured(parts: ServerParts) -> Finding:
    """Models, plugins, rules and the catalog were all read before this."""
    if not parts.agents:
        return Finding(CONFIGURATION, "warn", "no agent is configured", "teal init writes one")
    agents = ", ".join(f"{name} on {served.model}" for name, served in parts.agents.items())
    return Finding(CONFIGURATION, "ok", agents)


def _untaught(parts: ServerParts) -> Iterator[Finding]:
    for name, served in parts.agents.items():
        if served.is_untaught:
            hint = f"name another model in {served.file.path}"
            yield Finding(f"tools of {name}", "warn", f"{served.model} {UNTAUGHT}", hint)


async def _check_store(settings: Settings, parts: ServerParts) -> Finding:
    place = store_name(settings)
    try:
        for store in {parts.stores.main, parts.stores.tasks}:
            async with store:
                await store.ping()
                if store is parts.stores.main:
                    parts.stores.check_durability()
    except (ConfigurationError, StoreError) as error:
        hint = "choose another place with --store or TA_STORE"
        return Finding("store", "fail", f"{place}: {error}", hint)
    if place.startswith(("memory:", "ephemeral:")):
        hint = "use sqlite:///path or file:///folder to keep conversations"
        return Finding("store", "warn", f"{place} loses everything when the server stops", hint)
    durability = parts.stores.main.durability
    if durability == "D0":
        hint = "have its server keep an append-only file (appendonly yes)"
        return Finding("store", "warn", f"{place} loses everything when its server stops", hint)
    how = "encrypted" if settings.encrypts else "in plain text"
    said = f"{place} can be opened and written, durability {durability}, {how}"
    return Finding("store", "ok", said)


def check_disk(store: str) -> Finding:
    scheme, _, rest = store.partition("://")
    if scheme not in {"sqlite", "file"}:
        return Finding("disk", "ok", "this store keeps nothing on this machine's disk")
    folder = Path(rest)
    while not folder.is_dir():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    detail = f"{free // MB} MB free in {folder}"
    if free >= LITTLE_DISK:
        return Finding("disk", "ok", detail)
    hint = "free some space, or keep conversations elsewhere with --store"
    return Finding("disk", "fail" if free < TOO_LITTLE_DISK else "warn", detail, hint)


async def check_port(host: str, port: int) -> Finding:
    """A port that a Teal server has is not a fault."""
    place = f"{host} port {port}"
    try:
        address = (await asyncio.get_running_loop().getaddrinfo(host, port))[0]
        with socket.create_server(address[4][:2], family=address[0]):
            return Finding("port", "ok", f"{place} is free")
    except OSError as error:
        name = f"[{host}]" if ":" in host else host
        if await is_teal_server(ServerAccess(f"http://{name}:{port}")):
            return Finding("port", "ok", f"a Teal server is running at {place}")
        hint = "teal serve --port 0 picks a free one"
        return Finding("port", "warn", f"{place} cannot be used: {error.strerror}", hint)


def _misconfigured(check: str, error: ConfigurationError) -> Finding:
    return Finding(check, "fail", str(error), "teal serve would stop with exit code 78")
