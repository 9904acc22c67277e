"""A well-behaved MCP server with a tool for each thing a tool can do: a program of its own."""

import asyncio
import base64
import os
import socket
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, Elicit, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.prompts.base import AssistantMessage, Message, UserMessage
from mcp.server.mcpserver.resources import TextResource
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CreateMessageResult,
    EmbeddedResource,
    ImageContent,
    LoggingLevel,
    ResourceLink,
    ResourceListChangedNotification,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
    ToolListChangedNotification,
)
from pydantic import BaseModel

FOLDER = Path(sys.argv[1])
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

server: MCPServer[Any] = MCPServer("friendly", log_level="ERROR")


class Sum(BaseModel):
    total: int


class Name(BaseModel):
    name: str


def note(text: str) -> None:
    with (FOLDER / "notes").open("a") as file:
        file.write(f"{text}\n")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def echo(text: str, times: int = 1) -> str:
    """Say it again."""
    return text * times


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
async def wipe(ctx: Context) -> str:
    """Wipe the disk."""
    note("wiped")
    return "wiped"


@server.tool()
async def parts() -> list[TextContent | ImageContent | EmbeddedResource | ResourceLink]:
    """One part of each kind."""
    return [
        TextContent(type="text", text="hello"),
        ImageContent(type="image", data="AAAA", mime_type="image/png"),
        EmbeddedResource(
            type="resource", resource=TextResourceContents(uri="note://1", text="a note")
        ),
        ResourceLink(type="resource_link", name="page", uri="https://example.com/x"),
    ]


PICTURE = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + b"\0\0\0\x01" * 2 + b"a picture of one pixel"


@server.tool()
async def media() -> list[ImageContent | AudioContent | EmbeddedResource]:
    """A picture, a sound and a file."""
    data = base64.b64encode(PICTURE).decode()
    return [
        ImageContent(type="image", data=data, mime_type="image/png"),
        AudioContent(type="audio", data="AAAA", mime_type="audio/wav"),
        EmbeddedResource(
            type="resource",
            resource=BlobResourceContents(
                uri="file:///plots/a.png", mime_type="image/png", blob=data
            ),
        ),
    ]


@server.tool()
async def count(ctx: Context, to: int) -> str:
    """Count and tell how far."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"counted {number}")
    return "counted"


async def asked_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


@server.tool()
async def greet(answer: Annotated[ElicitationResult[Name], Resolve(asked_name)]) -> str:
    """Ask for a name."""
    if answer.action != "accept":
        return f"no name: {answer.action}"
    return f"hello {answer.data.name}"


@server.tool()
async def visit(ctx: Context, url: str) -> str:
    """Have the user open a page."""
    answer = await ctx.elicit_url("Sign the contract.", url, "page-1")
    return answer.action


async def poem(about: str, kind: str = "text") -> Sample:
    content: Any = TextContent(type="text", text=f"Praise {about}.")
    if kind == "picture":
        content = ImageContent(type="image", data="AAAA", mime_type="image/png")
    return Sample(
        [SamplingMessage(role="user", content=content)],
        max_tokens=int(os.environ.get("MOST", "60")),
        system_prompt="You are a poet.",
        stop_sequences=["THE END"],
    )


@server.tool()
async def praise(
    about: str, said: Annotated[CreateMessageResult, Resolve(poem)], kind: str = "text"
) -> str:
    """Have the client's model praise it."""
    text = said.content.text if isinstance(said.content, TextContent) else "?"
    return f"{said.model} says: {text} ({said.stop_reason})"


@server.tool()
async def hang(ctx: Context) -> str:
    """Never answer, and notice being given up."""
    note("hanging")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        note("given up")
        raise
    return "never"


@server.tool()
async def fail() -> str:
    """Fail."""
    raise ToolError("it cannot be done")


@server.tool()
async def whoami(ctx: Context) -> dict[str, Any]:
    """Everything that says who calls."""
    meta: Any = ctx.request_context.meta or {}
    headers = dict(ctx.headers or {})
    return {
        "user": meta.get("sk-agents/user_id"),
        "key": meta.get("sk-agents/idempotency_key"),
        "header": headers.get("x-user"),
        "token": headers.get("authorization"),
        "secret": os.environ.get("SECRET"),
        "home_key": os.environ.get("TA_API_KEY"),
        "pid": os.getpid(),
    }


@server.tool()
async def learn(ctx: Context, name: str) -> str:
    """Have one more tool from now on."""

    async def learned() -> str:
        return f"I can {name}"

    server.add_tool(learned, name=name, description=f"It can {name}.")
    if ctx.protocol_version == "2026-07-28":
        await ctx.notify_tools_changed()
    else:
        await ctx.session.send_notification(ToolListChangedNotification())
    return "learned"


@server.tool()
async def where(ctx: Context) -> list[str]:
    """The folders that the client says may be worked in."""
    try:
        with warnings.catch_warnings(action="ignore"):
            found = await ctx.session.list_roots()
    except MCPError as error:
        return [f"refused: {error.message}"]
    return [str(root.uri) for root in found.roots]


@server.tool()
async def say(ctx: Context, text: str, level: LoggingLevel = "warning") -> str:
    """Write to the client's log."""
    with warnings.catch_warnings(action="ignore"):
        await ctx.log(level, text)
    return "said"


@server.tool()
async def publish(ctx: Context, name: str) -> str:
    """Have one more resource and one more prompt from now on."""
    server.add_resource(TextResource(uri=f"note://{name}", name=name, text=name))
    server.add_prompt(Prompt.from_function(lambda: name, name=name))
    if ctx.protocol_version == "2026-07-28":
        await ctx.notify_resources_changed()
    else:
        await ctx.session.send_notification(ResourceListChangedNotification())
    return "published"


@server.resource("note://first", title="The first note", mime_type="text/plain")
def first_note() -> str:
    """What was noted first."""
    return "buy milk"


@server.resource("picture://dot", mime_type="image/png")
def dot() -> bytes:
    return DOT


@server.resource("note://{day}/{number}")
def daily_note(day: str, number: str) -> str:
    """A note by its day and number."""
    return f"note {number} of {day}"


@server.prompt(title="Review some code")
def review(code: str, tone: str = "kind") -> str:
    """Have code looked at."""
    return f"Review this in a {tone} way:\n{code}"


@server.prompt()
def talk() -> list[Message]:
    return [UserMessage("Hello!"), AssistantMessage("Hi, what is it?"), UserMessage("Nothing.")]


@server.tool()
async def die() -> str:
    """End the process in the middle of a call."""
    os._exit(3)


def serve_http(*, older: bool = False) -> None:
    app = server.sse_app() if older else server.streamable_http_app()
    port = int(os.environ.get("PORT", "0"))
    listener = socket.create_server(("127.0.0.1", port), reuse_port=True)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[2:] in (["--http"], ["--sse"]):
        serve_http(older=sys.argv[2] == "--sse")
    else:
        server.run("stdio")
