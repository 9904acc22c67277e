"""An operation of a remote service as a tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, StrictBool, field_validator

from sk_agents.engine.log.canonical import digest
from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolContext, ToolResult
from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.tools.attachments import ToolFile, result_of
from sk_agents.tools.base_tool import Tool, ToolStream, tool_spec
from sk_agents.tools.json_schema import SchemaCheck, UnusableSchema
from sk_agents.tools.openapi.clients import RemoteClients
from sk_agents.tools.openapi.operations import ServiceOperation, request_of
from sk_agents.tools.operator_config import HEADER_NAME, StrictModel
from sk_agents.tools.parameters import MOST_TEXT

if TYPE_CHECKING:
    from sk_agents.tools.openapi.http import ServiceAnswer

READING = {"GET", "HEAD"}
# How much longer than the request the tool may take, so that it is the request that gives up.
MARGIN_SECONDS = 5.0
MOST_EXPLANATION = 500
_TEXTS = ("text/", "application/json", "application/xml", "application/yaml")


class RemotePlugin(StrictModel):
    """One entry of the catalog."""

    # The part before the first '-' of a tool's name.
    plugin_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,40}$")]
    openapi_json_path: Annotated[str, Field(min_length=1)]
    server_url: str | None = None
    headers: Annotated[dict[str, str], Field(repr=False)] = {}
    timeout: Annotated[float, Field(gt=0, le=3600)] = 30.0
    max_bytes: Annotated[int, Field(ge=1, le=64 * 1024 * 1024)] = 256 * 1024
    redirect_hosts: tuple[str, ...] = ()
    requires_approval: StrictBool | None = None
    requires_authorization: StrictBool = False
    # The caller's token is for this server. Another one gets it only if the operator says so.
    forward_authorization: StrictBool | None = None

    @field_validator("server_url")
    @classmethod
    def _is_plain_url(cls, url: str | None) -> str | None:
        if url is not None and (origin_of(url) is None or "?" in url or "#" in url):
            raise ValueError("must be an http or https URL without credentials, query or fragment")
        return url

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        if not all(map(HEADER_NAME.fullmatch, headers)):
            raise ValueError("has a name that no header can have")
        return headers


class RemoteTool(Tool):
    """Only what asks and changes nothing (GET, HEAD) is taken for read-only."""

    def __init__(
        self,
        name: str,
        operation: ServiceOperation,
        service: RemotePlugin,
        clients: RemoteClients,
        origin: str,
    ) -> None:
        self.origin = f"{origin}: {operation.place}"
        self.requires_approval = service.requires_approval
        self._operation, self._service, self._clients = operation, service, clients
        reads = operation.method in READING
        schema = operation.schema
        # Of parameters only: a field left out of a body may mean "leave it as it is".
        defaults = {
            entry.argument: entry.schema["default"]
            for entry in operation.parameters
            if isinstance(entry.schema, Mapping) and entry.schema.get("default") is not None
        }
        try:
            self._check = SchemaCheck(schema, defaults)
        except UnusableSchema as error:
            raise ConfigurationError(f"{self.origin}: {error.problem[:MOST_TEXT]}") from None
        spec = tool_spec(
            name=name,
            description=operation.description,
            parameters=schema,
            origin=self.origin,
            effect=Effect.READ_ONLY if reads else Effect.AT_MOST_ONCE,
            # Where the outcome would be unknown, it is the engine that must find out.
            timeout=service.timeout + (MARGIN_SECONDS if reads else 0),
            requires_authorization=service.requires_authorization,
        )
        # What was approved for one service must not run at another.
        goal = [spec.definition_digest, operation.method, operation.server, operation.path]
        self.spec = replace(spec, definition_digest=digest(goal))

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._check.check(arguments)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolStream:
        # Imported with the first call, as aiohttp is.
        from sk_agents.tools.openapi.http import RequestBounds  # noqa: PLC0415

        service = self._service
        headers = dict(service.headers)
        if service.requires_authorization and context.authorization is None:
            raise ToolError("This tool needs the caller to be signed in.")
        is_fixed = any(name.lower() == "authorization" for name in headers)
        if service.forward_authorization and context.authorization is not None and not is_fixed:
            headers["Authorization"] = context.authorization
        reads = self._operation.method in READING
        seconds = service.timeout + (0 if reads else MARGIN_SECONDS)
        bounds = RequestBounds(seconds, service.max_bytes, service.redirect_hosts)
        request = request_of(self._operation, arguments)
        yield _result(await self._clients.send(request, headers, bounds))


def _result(answer: ServiceAnswer) -> ToolResult:
    """The answer as a result.

    Raises:
        ToolError: the service refused, or failed.
    """
    status = f"{answer.status} {answer.reason}".strip()
    is_text = answer.content_type.startswith(_TEXTS) or answer.content_type.endswith(
        ("+json", "+xml")
    )
    if not answer.is_good:
        said = answer.text.strip() if is_text and "html" not in answer.content_type else ""
        said = f": {said[:MOST_EXPLANATION]}" if said else "."
        raise ToolError(f"The service answered {status}{said}")
    if not answer.body:
        return ToolResult(f"The service answered {status}.")
    if answer.content_type.startswith("image/") or (not is_text and b"\0" in answer.body):
        if answer.is_cut:
            return ToolResult(f"The service answered with {answer.content_type}, and too much.")
        return result_of(ToolFile(answer.body, answer.content_type))
    note = f"\n[cut: the first {len(answer.body)} bytes]" if answer.is_cut else ""
    return ToolResult(answer.text + note)


def origin_of(url: str) -> tuple[str, str, int] | None:
    """Scheme, host and port; `None` for what is no URL of a service."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        return None
    return parts.scheme, parts.hostname.lower(), port
