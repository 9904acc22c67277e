"""The doctor's round: from what is installed to a server that runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sk_agents.cli.doctor.findings import Finding, report
from sk_agents.cli.doctor.machine import check_disk, check_packages, check_port, check_python
from sk_agents.cli.doctor.model_check import check_models
from sk_agents.cli.doctor.server_check import check_server
from sk_agents.cli.exits import Exit
from sk_agents.cli.options import Target
from sk_agents.cli.reaching import quiet_client_logs
from sk_agents.config.agent_file import AgentFile, configured_paths, load_agent_files
from sk_agents.config.settings import Settings, load_settings
from sk_agents.config.store_url import store_url, without_secrets
from sk_agents.exceptions import ConfigurationError, StoreError
from sk_agents.http.caller import check_bind_address
from sk_agents.wiring import House, build_authorizer, build_house, default_offer

CONFIGURATION = "configuration"


@dataclass(frozen=True, slots=True)
class Examination:
    config: Sequence[Path]
    store: str | None = None
    offline: bool = False
    model_timeout: float = 30.0
    target: Target | None = None


def examine(examination: Examination, *, as_json: bool) -> Exit:
    quiet_client_logs()
    # Findings say it in a line; the log of a server that is only tried out would say it again.
    logging.getLogger("sk_agents").setLevel(logging.CRITICAL)
    try:
        return asyncio.run(report(_round(examination), as_json=as_json))
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


async def _round(examination: Examination) -> AsyncIterator[Finding]:
    yield check_python()
    yield check_packages()
    try:
        settings = load_settings(examination.config, store=examination.store)
    except ConfigurationError as error:
        yield _misconfigured("settings", error)
    else:
        async for finding in _local(examination, settings):
            yield finding
    if examination.target is not None:
        async for finding in check_server(examination.target):
            yield finding


async def _local(examination: Examination, settings: Settings) -> AsyncIterator[Finding]:
    yield _check_authorizer(settings)
    try:
        settings, files = await _agents(examination.config, settings)
        house = build_house(settings, files)
    except ConfigurationError as error:
        yield _misconfigured(CONFIGURATION, error)
        return
    yield _configured(house)
    yield await _check_store(settings, house)
    yield check_disk(store_url(settings))
    yield await check_port(settings.host, settings.port)
    if examination.offline:
        yield Finding("models", "ok", "not asked, because of --offline")
        return
    async for finding in check_models(settings, files, house, patience=examination.model_timeout):
        yield finding


async def _agents(
    config: Sequence[Path], settings: Settings
) -> tuple[Settings, Sequence[AgentFile]]:
    """What `serve` would serve.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    if paths := config or configured_paths(settings.service_config):
        return settings, load_agent_files(paths)
    # The plugins of the package's own agents lie beside their files.
    offer = await default_offer(settings)
    return settings.model_copy(update={"plugin_module": None}), offer.files


def _configured(house: House) -> Finding:
    """Models, plugins, rules and the catalog were all read to come here."""
    if not house.agents:
        return Finding(CONFIGURATION, "warn", "no agent is configured", "teal init writes one")
    agents = ", ".join(f"{name} on {served.model}" for name, served in house.agents.items())
    return Finding(CONFIGURATION, "ok", agents)


def _check_authorizer(settings: Settings) -> Finding:
    try:
        authorizer = build_authorizer(settings)
        check_bind_address(settings.host, authorizer, settings.allow_insecure_auth)
    except ConfigurationError as error:
        return _misconfigured("callers", error)
    name = type(authorizer).__name__
    if authorizer.insecure:
        return Finding(
            "callers",
            "warn",
            f"{name} believes everybody, at {settings.host}",
            "for more than development set TA_AUTHORIZER_MODULE and TA_AUTHORIZER_CLASS",
        )
    return Finding("callers", "ok", name)


async def _check_store(settings: Settings, house: House) -> Finding:
    place = without_secrets(store_url(settings))
    try:
        for store in {house.stores.main, house.stores.tasks}:
            async with store:
                await store.ping()
    except (ConfigurationError, StoreError) as error:
        return Finding(
            "store", "fail", f"{place}: {error}", "choose another place with --store or TA_STORE"
        )
    durability = house.stores.main.durability
    if place.startswith(("memory:", "ephemeral:")):
        return Finding(
            "store",
            "warn",
            f"{place} forgets everything with its process",
            "use sqlite:///path or file:///folder to keep conversations",
        )
    return Finding("store", "ok", f"{place} opens and takes writes, durability {durability}")


def _misconfigured(check: str, error: ConfigurationError) -> Finding:
    return Finding(check, "fail", str(error), "teal serve would stop with exit code 78")
