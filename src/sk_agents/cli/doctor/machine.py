"""What the doctor looks at on the machine itself: packages, disk, port."""

from __future__ import annotations

import asyncio
import platform
import re
import shutil
import socket
import sys
from importlib import metadata
from pathlib import Path

from sk_agents import __version__
from sk_agents.cli.doctor.findings import Finding
from sk_agents.cli.options import Target
from sk_agents.cli.reaching import link_of
from sk_agents.client import ClientError
from sk_agents.client.link import Request

DISTRIBUTION = "teal-agents"
OLDEST_PYTHON = (3, 11)
SHOWN = ("fastapi", "uvicorn", "pydantic", "aiohttp", "apsw")
LITTLE = 1024**3
TOO_LITTLE = 100 * 1024**2
MB = 1024**2
PATIENCE = 2.0


def check_python() -> Finding:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < OLDEST_PYTHON:
        return Finding("python", "fail", detail, "Python 3.11 or newer is needed")
    return Finding("python", "ok", detail)


def check_packages() -> Finding:
    """Whether everything is installed that this package asks for without extras."""
    missing = [name for name in _required() if _version(name) is None]
    shown = ", ".join(f"{name} {_version(name)}" for name in SHOWN)
    detail = f"teal-agents {__version__}, {shown}"
    if missing:
        names = ", ".join(missing)
        return Finding("packages", "fail", f"{detail}; missing: {names}", f"pip install {names}")
    return Finding("packages", "ok", detail)


def check_disk(store: str) -> Finding:
    scheme, _, rest = store.partition("://")
    if scheme not in {"sqlite", "file"}:
        return Finding("disk", "ok", "this store keeps nothing on this machine's disk")
    folder = Path(rest)
    while not folder.is_dir():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    detail = f"{free // MB} MB free in {folder}"
    hint = "make room, or keep conversations elsewhere with --store"
    if free < TOO_LITTLE:
        return Finding("disk", "fail", detail, hint)
    return Finding("disk", "warn", detail, hint) if free < LITTLE else Finding("disk", "ok", detail)


async def check_port(host: str, port: int) -> Finding:
    """A port that is taken is no fault if one of our servers has it."""
    place = f"{host} port {port}"
    try:
        address = (await asyncio.get_running_loop().getaddrinfo(host, port))[0]
        with socket.create_server(address[4][:2], family=address[0]):
            return Finding("port", "ok", f"{place} is free")
    except OSError as error:
        if await _is_ours(host, port):
            return Finding("port", "ok", f"a Teal server is running at {place}")
        hint = "teal serve --port 0 picks a free one"
        return Finding("port", "warn", f"{place} cannot be taken: {error.strerror}", hint)


async def _is_ours(host: str, port: int) -> bool:
    name = f"[{host}]" if ":" in host else host
    target = Target(f"http://{name}:{port}")
    try:
        async with asyncio.timeout(PATIENCE), link_of(target, give_up_after=0) as link:
            answer = await link.call(Request("GET", "/health/live"))
    except (ClientError, TimeoutError, ValueError):
        return False
    return isinstance(answer, dict) and answer.get("alive") is True


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
