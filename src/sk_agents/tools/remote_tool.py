"""An operation of a remote service as a tool."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from sk_agents.engine.canonical import canonical_json, digest
from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolChunk, ToolContext, ToolResult
from sk_agents.exceptions import ConfigurationError, InvalidInput, ToolError
from sk_agents.tools.member import Tool, tool_spec
from sk_agents.tools.remote_clients import RemoteClients
from sk_agents.tools.remote_operation import Operation, request_of
from sk_agents.tools.schema import MOST_PROBLEMS, MOST_TEXT

if TYPE_CHECKING:
    from sk_agents.tools.remote_http import Answer

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
    forward_authorization: bool = True


class RemoteTool(Tool):
    """Only what asks and changes nothing (GET, HEAD) is taken for read-only."""

    def __init__(
        self, name: str, operation: Operation, service: Service, clients: RemoteClients, origin: str
    ) -> None:
        self.origin = f"{origin}: {operation.place}"
        self.requires_approval = service.requires_approval
        self.requires_authorization = service.requires_authorization
        self._operation, self._service, self._clients = operation, service, clients
        reads = operation.method in READING
        schema = operation.schema
        self._validator = _validator(schema, self.origin)
        self._defaults = self._usable_defaults()
        spec = tool_spec(
            name=name,
            description=operation.description,
            parameters=schema,
            origin=self.origin,
            effect=Effect.READ_ONLY if reads else Effect.AT_MOST_ONCE,
            # Where the outcome would be unknown, it is the engine that must find out.
            timeout=service.timeout + (MARGIN_SECONDS if reads else 0),
        )
        # What was approved for one service must not run at another.
        goal = [spec.definition_digest, operation.method, operation.server, operation.path]
        self.spec = replace(spec, definition_digest=digest(goal))

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        filled = {**self._defaults, **deepcopy(dict(arguments))}
        try:
            canonical_json(filled)
            problems = [*self._unknown(filled), *self._wrong(filled)]
        except (InvalidInput, ValueError, TypeError, ArithmeticError, RecursionError):
            raise ToolError("The arguments cannot be checked, nothing was run.") from None
        if problems:
            raise ToolError(self._advice(problems))
        return filled

    async def run(
        self, arguments: dict[str, Any], context: ToolContext
    ) -> AsyncGenerator[ToolChunk | ToolResult]:
        # Imported with the first call, as aiohttp is.
        from sk_agents.tools.remote_http import Bounds  # noqa: PLC0415

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

    def _usable_defaults(self) -> dict[str, Any]:
        """Those of parameters only: a field left out of a body may mean "leave it as it is"."""
        defaults = {
            entry.argument: entry.schema["default"]
            for entry in self._operation.parameters
            if isinstance(entry.schema, Mapping) and entry.schema.get("default") is not None
        }
        broken = {
            str(error.path[0]) for error in self._validator.iter_errors(defaults) if error.path
        }
        return {name: value for name, value in defaults.items() if name not in broken}

    def _unknown(self, arguments: Mapping[str, Any]) -> Iterable[str]:
        known = self.spec.parameters["properties"]
        for name in arguments:
            if name not in known:
                near = get_close_matches(name[:64], known, n=1)
                yield f"{ascii(name[:64])}: is unknown" + (f"; is it {near[0]}?" if near else "")

    def _wrong(self, arguments: Mapping[str, Any]) -> Iterable[str]:
        for error in self._validator.iter_errors(arguments):
            place = ".".join(map(str, error.absolute_path))
            if place or error.validator != "additionalProperties":
                yield f"{place}: {error.message}" if place else error.message

    def _advice(self, problems: list[str]) -> str:
        listed = [f"- {problem[:MOST_TEXT]}" for problem in problems[:MOST_PROBLEMS]]
        if len(problems) > MOST_PROBLEMS:
            listed.append(f"- and {len(problems) - MOST_PROBLEMS} more")
        required = self.spec.parameters["required"]
        names = [
            f"{name} (required)" if name in required else name
            for name in self.spec.parameters["properties"]
        ]
        expected = ", ".join(names) or "none"
        return "\n".join(
            ["The arguments are not valid, nothing was run:", *listed, f"Arguments: {expected}."]
        )


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
