"""What an agent file says about the MCP servers its agent uses.

Strict: an unknown key stops start-up, because a misspelt one could open a gate.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    Field,
    StrictBool,
    ValidationError,
    field_validator,
    model_validator,
)

from sk_agents.engine.log.canonical import digest
from sk_agents.exceptions import ConfigurationError
from sk_agents.tools.builtin.workspace import Workspaces
from sk_agents.tools.operator_config import (
    HEADER_NAME,
    StrictModel,
    filled_headers,
    filled_value,
    problems_of,
)

logger = logging.getLogger(__name__)

_UNCLEAN = re.compile(r"[^A-Za-z0-9_]")
_STDIO_FIELDS = {"command", "args", "env", "cwd"}
_OAUTH_FIELDS = {"auth_server", "scopes", "oauth_client_id", "oauth_client_secret", "canonical_uri"}
_HTTP_FIELDS = {
    *("url", "headers", "timeout", "sse_read_timeout", "verify_ssl", "user_id_header", "oauth"),
    *_OAUTH_FIELDS,
}

NO_TOKENS = (
    "oauth needs encryption keys, since users' tokens are only kept encrypted: set "
    "TA_ENCRYPTION_KEYS (`teal encryption-key` makes a key), or TA_STORE=memory: to keep nothing"
)

# What runs packages and images that it fetches when they are first asked for.
DOWNLOADERS = {"npx", "npm", "pnpm", "bunx", "uvx", "uv", "pipx", "docker", "podman"}

Seconds = Annotated[float, Field(gt=0, le=3600)]
LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class ToolGovernance(StrictModel):
    """What the operator says about one tool, whatever its server claims."""

    requires_hitl: StrictBool | None = None
    cost: Literal["low", "medium", "high"] | None = None
    data_sensitivity: Literal["public", "proprietary", "confidential", "sensitive"] | None = None


class McpServer(StrictModel):
    """One entry of `mcp_servers`."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,40}$")]
    transport: Literal["stdio", "http", "sse"] = "stdio"
    command: Annotated[str, Field(min_length=1)] | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: Annotated[str, Field(min_length=1)] | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    timeout: Seconds = 30.0
    sse_read_timeout: Seconds = 300.0
    verify_ssl: StrictBool = True
    trust_level: Literal["trusted", "sandboxed", "untrusted"] = "untrusted"
    tool_governance_overrides: dict[str, ToolGovernance] = {}
    request_timeout: Seconds = 60.0
    start_timeout: Seconds | None = None
    protocol_version: str | None = None
    log_level: LogLevel = "info"
    roots: StrictBool = True
    sampling: Literal["ask", "off"] = "ask"
    user_id_header: str | None = None
    user_id_source: Literal["auth", "env"] | None = None
    user_id_env_var: Annotated[str, Field(min_length=1)] | None = None
    oauth: StrictBool | None = None
    auth_server: str | None = None
    scopes: tuple[str, ...] = ()
    oauth_client_id: str | None = None
    oauth_client_secret: str | None = None
    canonical_uri: str | None = None

    @field_validator("command")
    @classmethod
    def _is_one_program(cls, command: str | None) -> str | None:
        if command is not None and command.split() != [command] and not Path(command).is_file():
            raise ValueError("must be one program; its arguments go into args")
        return command

    @field_validator("url", "auth_server", "canonical_uri")
    @classmethod
    def _is_plain_url(cls, url: str | None) -> str | None:
        parts = urlsplit(url) if url is not None else None
        if parts is not None and (
            parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc
        ):
            raise ValueError("must be an http or https URL without credentials")
        return url

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        if not all(map(HEADER_NAME.fullmatch, headers)):
            raise ValueError("has a name that no header can have")
        return headers

    @field_validator("user_id_header")
    @classmethod
    def _is_header(cls, name: str | None) -> str | None:
        if name is not None and not HEADER_NAME.fullmatch(name):
            raise ValueError("is a name that no header can have")
        return name

    @field_validator("protocol_version")
    @classmethod
    def _is_known_version(cls, version: str | None) -> str | None:
        if version is not None:
            _mode(version)
        return version

    @model_validator(mode="after")
    def _fields_fit_the_transport(self) -> Self:
        if self.transport == "sse" and self.protocol_version is not None:
            raise ValueError("protocol_version cannot be used with transport sse")
        needed, foreign = ("command", _HTTP_FIELDS), ("url", _STDIO_FIELDS)
        field_name, others = needed if self.transport == "stdio" else foreign
        if getattr(self, field_name) is None:
            raise ValueError(f"{field_name} is missing, which transport {self.transport} needs")
        strays = sorted(others & self.model_fields_set)
        if strays:
            raise ValueError(f"{', '.join(strays)} cannot be used with transport {self.transport}")
        if self.oauth is False and _OAUTH_FIELDS & self.model_fields_set:
            raise ValueError("oauth is false, but there are fields for it")
        if self.signs_in and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("headers.Authorization and oauth exclude each other")
        if self.oauth_client_secret is not None and self.oauth_client_id is None:
            raise ValueError("oauth_client_secret needs oauth_client_id")
        if self.user_id_source == "env" and self.user_id_env_var is None:
            raise ValueError("user_id_source env needs user_id_env_var")
        return self

    @property
    def signs_in(self) -> bool:
        """Whether each user signs in there."""
        return self.oauth is True or any(getattr(self, name) for name in _OAUTH_FIELDS)

    @property
    def downloads(self) -> bool:
        """Whether its program may have to fetch the server first."""
        return self.command is not None and Path(self.command).name in DOWNLOADERS

    @property
    def is_trusted(self) -> bool:
        """Nothing is sandboxed yet, so what is to be sandboxed is not trusted."""
        return self.trust_level == "trusted"

    @property
    def mode(self) -> str:
        """How the version is agreed on, in the library's words: asked for, unless it is named."""
        return "auto" if self.protocol_version is None else _mode(self.protocol_version)

    @property
    def prefix(self) -> str:
        """How the names of its tools begin. The one hyphen parts server and tool."""
        return f"mcp_{_UNCLEAN.sub('_', self.name)}-"


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """A server as it is reached: references to the environment are filled in."""

    server: McpServer = field(repr=False)
    folder: Path
    fixed_user: str | None = None
    workspaces: Workspaces | None = None

    @property
    def identity(self) -> str:
        """Of what is behind the name: another program or address is another server."""
        server = self.server
        place = [server.command, *server.args, str(self.folder)] if server.command else [server.url]
        return digest([server.name, server.transport, *place])

    @property
    def key(self) -> str:
        """Agents whose servers have the same key share one connection."""
        spaces = self.workspaces
        shared = [str(spaces.path), spaces.shared_by] if spaces is not None else None
        return digest([self.identity, self.server.model_dump(mode="json"), self.fixed_user, shared])


def read_mcp_servers(
    entries: Sequence[Mapping[str, Any]],
    *,
    path: Path,
    field_name: str,
    environ: Mapping[str, str],
    workspaces: Workspaces | None = None,
    keeps_tokens: bool = False,
) -> list[ServerSpec]:
    """The servers of one agent, checked. Programs are told of the `workspaces`, its folders.
    `keeps_tokens`: there is a place for what users get when they sign in.

    Raises:
        ConfigurationError: naming the file and the field.
    """
    specs: dict[str, ServerSpec] = {}
    for number, entry in enumerate(entries):
        place = f"{path}: {field_name}[{number}]"
        server = _parsed(entry, place)
        if server.signs_in and not keeps_tokens:
            raise ConfigurationError(f"{place}: {NO_TOKENS}")
        if server.prefix in specs:
            other = specs[server.prefix].server.name
            raise ConfigurationError(f"{place}.name: '{server.name}' is too like '{other}'")
        spec = _filled(server, place, path.parent, environ)
        if server.transport == "stdio" and server.roots:
            spec = replace(spec, workspaces=workspaces)
        specs[server.prefix] = spec
    return list(specs.values())


def _mode(version: str) -> str:
    # Only a file that names a version pays for the library that knows them.
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS  # noqa: PLC0415

    if version in HANDSHAKE_PROTOCOL_VERSIONS:
        return "legacy"
    if version in MODERN_PROTOCOL_VERSIONS:
        return version
    known = ", ".join([*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS])
    raise ValueError(f"must be one of {known}")


def _parsed(entry: Mapping[str, Any], place: str) -> McpServer:
    try:
        server = McpServer.model_validate(entry)
    except ValidationError as error:
        where, reason = next(problems_of(error))
        if error.errors()[0]["type"] == "extra_forbidden":
            reason = "is not known here"
        raise ConfigurationError(f"{place}{where}: {reason}") from None
    return server


def _filled(server: McpServer, place: str, folder: Path, environ: Mapping[str, str]) -> ServerSpec:
    env = {
        name: filled_value(value, f"{place}.env.{name}", environ)
        for name, value in server.env.items()
    }
    headers = filled_headers(server.headers, f"{place}.", environ)
    user = None
    if server.user_id_source == "env":
        user = filled_value(f"${{{server.user_id_env_var}}}", f"{place}.user_id_env_var", environ)
    secret = server.oauth_client_secret
    if secret is not None:
        secret = filled_value(secret, f"{place}.oauth_client_secret", environ)
    filled = server.model_copy(
        update={"env": env, "headers": headers, "oauth_client_secret": secret}
    )
    return ServerSpec(filled, folder / server.cwd if server.cwd else folder, user)
