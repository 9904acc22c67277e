"""The envelope of an agent file: which API serves it and under which name.

What is inside `spec` belongs to the surface that serves the file; this module does not know it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sk_agents.config.strict_yaml import read_yaml
from sk_agents.exceptions import ConfigurationError

logger = logging.getLogger(__name__)

# Looked for in the current directory, as the public project does; there need not be one.
USUAL_PATH = Path("agents/config.yaml")
# First path segments that belong to the server itself.
RESERVED_NAMES = frozenset(
    {
        "agents",
        "approvals",
        "assets",
        "chat",
        "chats",
        "docs",
        "favicon.ico",
        "grants",
        "health",
        "metrics",
        "oauth",
        "openapi.json",
        "redoc",
        "robots.txt",
        "static",
    }
)
# Both become one segment of a route's path.
URL_SEGMENT = re.compile(r"[^/\\?#%{}\x00-\x1f\x7f]{1,128}")


@dataclass(frozen=True)
class ApiVersion:
    """One row of the table of APIs: where the name stands and which kinds there are."""

    name_field: str
    kinds: tuple[str | None, ...]
    fields: frozenset[str]


_FIELDS = frozenset(
    {"apiVersion", "kind", "version", "description", "input_type", "output_type", "spec"}
)
# Published files of the two newer versions say `Agent`, `Chat` or nothing at all.
API_VERSIONS: Mapping[str, Mapping[str, ApiVersion]] = {
    "skagents": {
        "v1": ApiVersion("service_name", ("Sequential", "Chat"), _FIELDS | {"service_name"}),
        "v2alpha1": ApiVersion("name", ("Agent", "Chat", None), _FIELDS | {"name", "metadata"}),
    },
    "tealagents": {
        "v1alpha1": ApiVersion("name", ("Agent", "Chat", None), _FIELDS | {"name", "metadata"}),
    },
}


@dataclass(frozen=True)
class AgentFile:
    """One agent as its file describes it; `document` is the whole file."""

    path: Path
    api_version: str
    kind: str | None
    name: str
    version: str
    description: str | None
    document: Mapping[str, Any] = field(repr=False)


def load_agent_files(paths: Iterable[Path]) -> list[AgentFile]:
    """Read every file and folder named, in order.

    Raises:
        ConfigurationError: a file is unusable, a folder has none, or two agents share an address.
    """
    agents = [agent for path in paths for agent in _load(path)]
    taken: dict[tuple[str, str], Path] = {}
    for agent in agents:
        first = taken.setdefault((agent.name, agent.version), agent.path)
        if first != agent.path:
            raise ConfigurationError(
                f"{agent.path}: '{agent.name}' version {agent.version} is also in {first}"
            )
    return list({agent.path: agent for agent in agents}.values())


def configured_paths(service_config: Path | None) -> list[Path]:
    """What to serve when the command names nothing: `TA_SERVICE_CONFIG`, else the usual file."""
    if service_config is not None:
        return [service_config]
    return [USUAL_PATH] if USUAL_PATH.is_file() else []


def read_agent_file(path: Path) -> AgentFile:
    return _parse(path, _mapping(path, read_yaml(path)))


def agent_paths(folder: Path) -> list[Path]:
    """The YAML files in a folder and the `config.yaml` of each folder in it."""
    return sorted({*folder.glob("*.yaml"), *folder.glob("*.yml"), *folder.glob("*/config.yaml")})


def _load(path: Path) -> list[AgentFile]:
    path = path.absolute()
    if not path.is_dir():
        return [read_agent_file(path)]
    agents = []
    for found in agent_paths(path):
        document = read_yaml(found)
        if isinstance(document, dict) and "apiVersion" not in document:
            # Catalogs of plugins lie beside agent files.
            logger.warning("%s has no apiVersion: not an agent file, skipped", found)
        else:
            agents.append(_parse(found, _mapping(found, document)))
    if not agents:
        raise ConfigurationError(f"{path}: no agent file in this folder")
    return agents


def _parse(path: Path, document: Mapping[str, Any]) -> AgentFile:
    api = _api_version(path, document.get("apiVersion"))
    kind = document.get("kind")
    if kind not in api.kinds:
        choices = " or ".join(kind for kind in api.kinds if kind)
        raise _fault(path, "kind", f"must be {choices}")
    name = _name(path, api.name_field, document.get(api.name_field))
    unknown = sorted(str(key) for key in document.keys() - api.fields)
    if unknown:
        logger.warning("%s: unknown keys are ignored: %s", path, ", ".join(unknown))
    return AgentFile(
        path=path,
        api_version=document["apiVersion"],
        kind=kind,
        name=name,
        version=_version(path, document.get("version")),
        description=_description(path, document),
        document=document,
    )


def _api_version(path: Path, value: Any) -> ApiVersion:
    if value is None:
        raise _fault(path, "apiVersion", "is missing")
    group, _, version = value.partition("/") if isinstance(value, str) else ("", "", "")
    versions = API_VERSIONS.get(group)
    if versions is None or version not in versions:
        known = ", ".join(f"{g}/{v}" for g, versions in API_VERSIONS.items() for v in versions)
        raise _fault(path, "apiVersion", f"'{value}' is not known; known are {known}")
    return versions[version]


def _name(path: Path, field_name: str, value: Any) -> str:
    if value is None:
        raise _fault(path, field_name, "is missing")
    name = _url_segment(path, field_name, value)
    if name.lower() in RESERVED_NAMES:
        raise _fault(path, field_name, f"'{name}' is reserved for the server's own paths")
    return name


def _version(path: Path, value: Any) -> str:
    if value is None:
        raise _fault(path, "version", "is missing")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _fault(path, "version", "must be text or a number")
    return _url_segment(path, "version", str(value))


def _url_segment(path: Path, field_name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _fault(path, field_name, "must be text")
    unfit = value in {".", ".."} or value != value.strip()
    if unfit or not URL_SEGMENT.fullmatch(value):
        raise _fault(path, field_name, "must be usable as one part of a URL's path")
    return value


def _description(path: Path, document: Mapping[str, Any]) -> str | None:
    metadata = document.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise _fault(path, "metadata", "must be a mapping")
    in_metadata = (metadata or {}).get("description")
    text = document.get("description") if in_metadata is None else in_metadata
    if text is not None and not isinstance(text, str):
        name = "description" if in_metadata is None else "metadata.description"
        raise _fault(path, name, "must be text")
    return text


def _mapping(path: Path, document: Any) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: must be a mapping with an apiVersion")
    return document


def _fault(path: Path, field_name: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{path}: {field_name} {reason}", path=str(path), field=field_name)
