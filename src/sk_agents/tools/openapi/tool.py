"""An operation of a remote service as a tool."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sk_agents.engine.log.canonical import digest
from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolChunk, ToolContext, ToolResult
from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.tools.member import Tool, tool_spec
from sk_agents.tools.openapi.clients import RemoteClients
from sk_agents.tools.openapi.operation import Operation, request_of
from sk_agents.tools.schema import MOST_TEXT
from sk_agents.tools.schema_check import SchemaCheck

if TYPE_CHECKING:
    from sk_agents.tools.openapi.http import Answer

READING = {"GET", "HEAD"}
# How much longer than the request the tool may take, so that it is the request that gives up.
MARGIN_SECONDS = 5.0
MOST_EXPLANATION = 500
_TEXTS = ("text/", "application/json", "application/xml", "application/yaml")


@dataclass(frozen=True, slots=True)
class Service:
    """What the operator says about one remote service."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 30.0
    max_bytes: int = 256 * 1024
    redirect_hosts: tuple[str, ...] = ()
    requires_approval: bool | None = None
    requires_authorization: bool = False
    forward_authorization: bool = False


class RemoteTool(Tool):
    """Only what asks and changes nothing (GET, HEAD) is taken for read-only."""

    def __init__(
        self, name: str, operation: Operation, service: Service, clients: RemoteClients, origin: str
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
        self._check = SchemaCheck(schema, _validator(schema, self.origin), defaults)
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

    async def run(
        self, arguments: dict[str, Any], context: ToolContext
    ) -> AsyncGenerator[ToolChunk | ToolResult]:
        # Imported with the first call, as aiohttp is.
        from sk_agents.tools.openapi.http import Bounds  # noqa: PLC0415

        service = self._service
        headers = dict(service.headers)
        if service.requires_authorization and context.authorization is None:
            raise ToolError("This tool needs the caller to be signed in.")
        is_fixed = any(name.lower() == "authorization" for name in headers)
        if service.forward_authorization and context.authorization is not None and not is_fixed:
            headers["Authorization"] = context.authorization
        reads = self._operation.method in READING
        seconds = service.timeout + (0 if reads else MARGIN_SECONDS)
        bounds = Bounds(seconds, service.max_bytes, service.redirect_hosts)
        request = request_of(self._operation, arguments)
        yield ToolResult(_content(await self._clients.send(request, headers, bounds)))


def _validator(schema: Mapping[str, Any], origin: str) -> Any:
    # Only servers with remote tools need it. It brings no types.
    import jsonschema  # type: ignore[import-untyped]  # noqa: PLC0415

    draft = jsonschema.Draft202012Validator
    try:
        draft.check_schema(schema)
    except jsonschema.SchemaError as error:
        place = ".".join(map(str, error.absolute_path))
        raise ConfigurationError(f"{origin}: {place}: {error.message[:MOST_TEXT]}") from None
    # Patterns are left to the service: matching some of them takes for ever.
    return jsonschema.validators.extend(draft, {"pattern": _unchecked})(schema)


def _unchecked(*_: object) -> None:
    """No error."""


def _content(answer: Answer) -> str:
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
        return f"The service answered {status}."
    if not is_text and b"\0" in answer.body:
        return f"The service answered with {answer.content_type}, which is not text."
    note = f"\n[cut: the first {len(answer.body)} bytes]" if answer.is_cut else ""
    return answer.text + note
