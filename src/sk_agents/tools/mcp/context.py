"""What MCP servers have for users, not for models: prompts and resources as parts of a message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from sk_agents.exceptions import InvalidInput, NotFound, ToolError, ToolInterrupted, UpstreamFailed
from sk_agents.tools.mcp.servers import Connection, McpSource
from sk_agents.wire.files import PDF_TYPE, PDF_URI
from sk_agents.wire.requests import MAX_ITEMS, MAX_NAME, FillPrompt, Item, ReadResource
from sk_agents.wire.views import (
    FilledPrompt,
    ItemView,
    PromptArgument,
    PromptList,
    PromptView,
    ResourceItems,
    ResourceList,
    ResourceTemplateView,
    ResourceView,
    UnavailableServer,
)

if TYPE_CHECKING:
    import mcp_types

T = TypeVar("T")


class McpContext:
    """By agent, what the servers that it names have. Lists leave out servers that are away."""

    def __init__(self, sources: Mapping[str, McpSource]) -> None:
        self._sources = sources

    async def prompts(self, agent: str, user_id: str) -> PromptList:
        found, unavailable = await self._of_all(agent, lambda one: one.prompts(user=user_id))
        views = [_prompt_view(server, prompt) for server, prompts in found for prompt in prompts]
        return PromptList(prompts=views, unavailable=unavailable)

    async def resources(self, agent: str, user_id: str) -> ResourceList:
        async def both(
            one: Connection,
        ) -> tuple[list[mcp_types.Resource], list[mcp_types.ResourceTemplate]]:
            return await one.resources(user=user_id), await one.templates(user=user_id)

        found, unavailable = await self._of_all(agent, both)
        return ResourceList(
            resources=[_resource_view(server, one) for server, (some, _) in found for one in some],
            templates=[_template_view(server, one) for server, (_, some) in found for one in some],
            unavailable=unavailable,
        )

    async def filled(self, agent: str, user_id: str, wanted: FillPrompt) -> FilledPrompt:
        connection = self._connection(agent, wanted.server)
        prompts = await _asked(connection, connection.prompts(user=user_id))
        prompt = next((one for one in prompts if one.name == wanted.name), None)
        if prompt is None:
            raise NotFound("This server has no prompt of this name.")
        _check_arguments(prompt, wanted.arguments)
        answer = await _asked(
            connection, connection.prompt(wanted.name, wanted.arguments, user=user_id)
        )
        return _filled(answer.messages)

    async def read(self, agent: str, user_id: str, wanted: ReadResource) -> ResourceItems:
        connection = self._connection(agent, wanted.server)
        answer = await _asked(connection, connection.contents(wanted.uri, user=user_id))
        if not answer.contents:
            raise InvalidInput("This resource is empty.")
        if len(answer.contents) > MAX_ITEMS:
            raise InvalidInput(f"This resource has more than {MAX_ITEMS} parts.")
        return ResourceItems(items=[_resource_item(one) for one in answer.contents])

    def _connection(self, agent: str, server: str) -> Connection:
        return self._sources[agent].connection(server)

    async def _of_all(
        self, agent: str, ask: Callable[[Connection], Awaitable[T]]
    ) -> tuple[list[tuple[str, T]], list[UnavailableServer]]:
        connections = self._sources[agent].connections
        answers = await asyncio.gather(*(_tried(ask(one)) for one in connections))
        found: list[tuple[str, T]] = []
        unavailable: list[UnavailableServer] = []
        for connection, (answer, reason) in zip(connections, answers, strict=True):
            name = connection.spec.server.name
            if answer is not None:
                found.append((name, answer))
            else:
                said = connection.reason or reason
                unavailable.append(UnavailableServer(server=name, reason=said))
        return found, unavailable


async def _tried(answer: Awaitable[T]) -> tuple[T | None, str]:
    try:
        return await answer, ""
    except ToolError as error:
        return None, str(error)


async def _asked(connection: Connection, answer: Awaitable[T]) -> T:
    """Raises UpstreamFailed: it cannot be reached; InvalidInput: it refused."""
    try:
        return await answer
    except ToolError as error:
        if connection.status != "up" or isinstance(error, ToolInterrupted):
            raise UpstreamFailed(str(error)) from error
        raise InvalidInput(str(error)) from error


def _check_arguments(prompt: mcp_types.Prompt, given: Mapping[str, str]) -> None:
    known = {one.name: one for one in prompt.arguments or []}
    missing = [name for name, one in known.items() if one.required and not given.get(name)]
    strange = sorted(given.keys() - known.keys())
    if missing:
        raise InvalidInput(f"This prompt also needs: {', '.join(missing)}.")
    if strange:
        raise InvalidInput(f"This prompt has no argument {', '.join(strange)[:200]}.")


def _prompt_view(server: str, prompt: mcp_types.Prompt) -> PromptView:
    return PromptView(
        server=server,
        name=prompt.name,
        title=prompt.title,
        description=prompt.description,
        arguments=[
            PromptArgument(
                name=one.name, description=one.description, required=one.required is True
            )
            for one in prompt.arguments or []
        ],
    )


def _resource_view(server: str, one: mcp_types.Resource) -> ResourceView:
    return ResourceView(
        server=server,
        uri=one.uri,
        name=one.name,
        title=one.title,
        description=one.description,
        mime_type=one.mime_type,
        size=one.size,
    )


def _template_view(server: str, one: mcp_types.ResourceTemplate) -> ResourceTemplateView:
    return ResourceTemplateView(
        server=server,
        uri_template=one.uri_template,
        name=one.name,
        title=one.title,
        description=one.description,
        mime_type=one.mime_type,
    )


def _filled(messages: Iterable[mcp_types.PromptMessage]) -> FilledPrompt:
    """One message of the user. What a prompt has the assistant say is said to be that."""
    messages = list(messages)
    is_dialogue = any(message.role == "assistant" for message in messages)
    texts: list[str] = []
    items: list[ItemView] = []
    for message in messages:
        text = _part(message.content, items)
        if text and is_dialogue:
            text = f"{message.role.capitalize()}: {text}"
        texts.append(text)
    said = "\n\n".join(filter(None, texts))
    if not said.strip():
        raise InvalidInput("This prompt says nothing.")
    if len(items) > MAX_ITEMS:
        raise InvalidInput(f"This prompt has more than {MAX_ITEMS} attachments.")
    return FilledPrompt(user_message=said, items=items)


def _part(block: mcp_types.ContentBlock, items: list[ItemView]) -> str:
    """Its text; what is no text is added to the `items`."""
    match block.type:
        case "text":
            return block.text
        case "image":
            items.append(_image_item(block.data, block.mime_type, "image"))
            return ""
        case "resource":
            items.append(_resource_item(block.resource))
            return ""
        case "resource_link":
            return f"[resource {block.uri} ({block.name})]"
        case _:
            raise InvalidInput("This prompt has a part that cannot be sent to a model: a sound.")


def _resource_item(
    content: mcp_types.TextResourceContents | mcp_types.BlobResourceContents,
) -> ItemView:
    """Raises InvalidInput: it is no text, picture or PDF, or too large."""
    name = content.uri[-MAX_NAME:]
    if hasattr(content, "text"):
        return _checked(ItemView(content_type="text", content=content.text, name=name), name)
    if content.mime_type == PDF_TYPE:
        view = ItemView(content_type="pdf", content=PDF_URI + content.blob, name=name)
        return _checked(view, name)
    return _image_item(content.blob, content.mime_type or "", name)


def _image_item(data: str, mime_type: str, name: str) -> ItemView:
    if not mime_type.startswith("image/"):
        raise InvalidInput(
            f"{name}: is neither text nor a picture nor a PDF, which a message can hold."
        )
    uri = f"data:{mime_type};base64,{data}"
    return _checked(ItemView(content_type="image", content=uri, name=name), name)


def _checked(view: ItemView, name: str) -> ItemView:
    try:
        Item.model_validate(view.model_dump())
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InvalidInput(f"{name}: {reason}.") from None
    return view
