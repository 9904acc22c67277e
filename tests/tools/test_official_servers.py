"""MCP servers that others wrote, and the protocol's own tests of clients: every tool, resource and
prompt of each. They need an environment of their own, which `make chaos` installs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.turns import Completed, Completion, Question
from sk_agents.exceptions import InvalidInput
from sk_agents.tools.mcp.context import McpContext
from sk_agents.tools.mcp.servers import McpSource
from sk_agents.wire.requests import FillPrompt, ReadResource
from tests.patience import seconds
from tests.tools.calls import CONTEXT, result
from tests.tools.mcp_servers.running import Running, held_port, running, until

ROOT = Path(__file__).parents[2]
PLACE = Path(sys.prefix) / ".mcp-servers"
PACKAGES = PLACE / "node_modules" / "@modelcontextprotocol"

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(not PACKAGES.is_dir(), reason="MCP servers are not installed: make chaos"),
]

# What each tool is called with; `{}` of a path stands for the test's folder.
Calls = dict[str, dict[str, Any]]
REPO = {"repo_path": "{}"}
ADA = {"name": "Ada", "entityType": "person", "observations": ["writes"]}
KNOWS = {"from": "Ada", "to": "Ada", "relationType": "knows"}
NOTE = {"path": "{}/note.txt"}
THOUGHT = {"thought": "so", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
TOOLS: dict[str, Calls] = {
    "everything": {
        "echo": {"message": "hello"},
        "get_annotated_message": {"messageType": "error", "includeImage": True},
        "get_env": {},
        "get_resource_links": {"count": 2},
        "get_resource_reference": {"resourceType": "Text", "resourceId": 1},
        "get_structured_content": {"location": "New York"},
        "get_sum": {"a": 1, "b": 2},
        "get_tiny_image": {},
        "gzip_file_as_resource": {
            "name": "x.gz",
            "data": "data:text/plain;base64,aGk=",
            "outputType": "resource",
        },
        "toggle_simulated_logging": {},
        "toggle_subscriber_updates": {},
        "trigger_long_running_operation": {"duration": 1, "steps": 2},
        "trigger_elicitation_request": {},
        "trigger_sampling_request": {"prompt": "Praise the sea.", "maxTokens": 60},
        "trigger_url_elicitation": {"url": "https://example.com/"},
    },
    "filesystem": {
        "create_directory": {"path": "{}/folder"},
        "write_file": {**NOTE, "content": "hello"},
        "read_file": NOTE,
        "read_text_file": NOTE,
        "read_media_file": NOTE,
        "read_multiple_files": {"paths": ["{}/note.txt"]},
        "edit_file": {**NOTE, "edits": [{"oldText": "hello", "newText": "bye"}]},
        "list_directory": {"path": "{}"},
        "list_directory_with_sizes": {"path": "{}"},
        "directory_tree": {"path": "{}"},
        "search_files": {"path": "{}", "pattern": "*.txt"},
        "get_file_info": NOTE,
        "list_allowed_directories": {},
        "move_file": {"source": "{}/note.txt", "destination": "{}/moved.txt"},
    },
    "memory": {
        "create_entities": {"entities": [ADA]},
        "create_relations": {"relations": [KNOWS]},
        "add_observations": {"observations": [{"entityName": "Ada", "contents": ["reads"]}]},
        "read_graph": {},
        "search_nodes": {"query": "Ada"},
        "open_nodes": {"names": ["Ada"]},
        "delete_observations": {"deletions": [{"entityName": "Ada", "observations": ["reads"]}]},
        "delete_relations": {"relations": [KNOWS]},
        "delete_entities": {"entityNames": ["Ada"]},
    },
    "sequential-thinking": {"sequentialthinking": THOUGHT},
    "time": {
        "get_current_time": {"timezone": "Europe/Oslo"},
        "convert_time": {
            "source_timezone": "Europe/Oslo",
            "time": "12:00",
            "target_timezone": "Asia/Tokyo",
        },
    },
    "git": {
        "git_status": REPO,
        "git_add": {**REPO, "files": ["new.txt"]},
        "git_diff_unstaged": REPO,
        "git_diff_staged": REPO,
        "git_commit": {**REPO, "message": "second"},
        "git_log": REPO,
        "git_show": {**REPO, "revision": "HEAD"},
        "git_branch": {**REPO, "branch_type": "local"},
        "git_create_branch": {**REPO, "branch_name": "other"},
        "git_checkout": {**REPO, "branch_name": "other"},
        "git_diff": {**REPO, "target": "HEAD~1"},
        "git_reset": REPO,
    },
}
PROMPTS = {
    "simple-prompt": {},
    "args-prompt": {"city": "Oslo"},
    "completable-prompt": {"department": "Engineering", "name": "Alice"},
    "resource-prompt": {"resourceType": "Text", "resourceId": "1"},
}
# Those of the suite that are about what is done here: see docs/mcp.md for the others.
SCENARIOS = """
initialize tools_call elicitation-sep1034-client-defaults sse-retry
auth/metadata-default auth/metadata-var1 auth/metadata-var2 auth/metadata-var3
auth/scope-from-www-authenticate auth/scope-from-scopes-supported auth/scope-omitted-when-undefined
auth/scope-step-up auth/scope-retry-limit auth/token-endpoint-auth-basic
auth/token-endpoint-auth-post auth/token-endpoint-auth-none auth/pre-registration
auth/resource-mismatch auth/offline-access-scope auth/offline-access-not-supported
""".split()
FASTMCP = """
import sys
from fastmcp import FastMCP

server = FastMCP("fast")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.resource("note://{name}")
def note(name: str) -> str:
    return f"about {name}"


@server.prompt
def greet(name: str) -> str:
    return f"Say hello to {name}"


if sys.argv[1] == "stdio":
    server.run(show_banner=True)
else:
    server.run(transport=sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]))
"""


def entry(name: str, folder: Path) -> dict[str, Any]:
    program = PLACE / "bin" / f"mcp-server-{name}"
    if program.exists():
        return {"name": name, "command": str(program)}
    script = str(PACKAGES / f"server-{name}" / "dist" / "index.js")
    more = {"everything": ["stdio"], "filesystem": [str(folder)]}.get(name, [])
    node = str(PLACE / "bin" / "node")
    command: dict[str, Any] = {"name": name, "command": node, "args": [script, *more]}
    if name == "memory":
        command["env"] = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    return command


def source_of(at: Running) -> McpSource:
    return McpSource(list(at.servers.connections))


def filled_in(value: Any, folder: Path) -> Any:
    match value:
        case str():
            return value.replace("{}", str(folder), 1)
        case list():
            return [filled_in(one, folder) for one in value]
        case dict():
            return {key: filled_in(one, folder) for key, one in value.items()}
    return value


def make_repository(folder: Path) -> None:
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    (folder / "first.txt").write_text("first")
    (folder / "new.txt").write_text("new")
    for command in (
        ["init", "-q"],
        ["config", "user.name", "Ada"],
        ["config", "user.email", "ada@example.com"],
        ["add", "first.txt"],
        [*who, "commit", "-qm", "first"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True, timeout=seconds(20))


async def ask(question: Question) -> Any:
    return question.choices[0] if question.choices else {"name": "Ada"}


async def complete(wanted: Completion) -> Completed:
    assert "Praise the sea." in wanted.messages[-1].content
    return Completed("O sea!", "stop", "bard-1")


@pytest.mark.parametrize("name", TOOLS)
async def test_every_tool_resource_and_prompt_of_an_official_server(
    tmp_path: Path, name: str
) -> None:
    if name == "git":
        make_repository(tmp_path)
    context = replace(CONTEXT, ask=ask, complete=complete)
    async with running(tmp_path, entry(name, tmp_path)) as at:
        prefix = f"mcp_{name.replace('-', '_')}-"
        offered = [spec.name for spec in at.box.specs() if "resource" not in spec.name]
        known = {f"{prefix}{tool}" for tool in TOOLS[name] if "resource" not in tool}
        assert known == set(offered)
        for tool, arguments in TOOLS[name].items():
            told = await result(at.box, prefix + tool, filled_in(arguments, tmp_path), context)
            assert told.content
            assert tool != "trigger_sampling_request" or "O sea!" in told.content
        source = source_of(at)
        servers = McpContext({"a": source})
        listed = await servers.resources("a", "u")
        for one in listed.resources:
            wanted = ReadResource(server=name, uri=one.uri)
            if one.mime_type == "application/gzip":
                with pytest.raises(InvalidInput, match="neither text nor a picture"):
                    await servers.read("a", "u", wanted)
                continue
            assert (await servers.read("a", "u", wanted)).items
        for template in listed.templates:
            uri = template.uri_template.replace("{resourceId}", "1")
            assert (await result(at.box, f"{prefix}read_resource", {"uri": uri})).content
        for prompt in (await servers.prompts("a", "u")).prompts:
            fill = FillPrompt(server=name, name=prompt.name, arguments=PROMPTS[prompt.name])
            assert (await servers.filled("a", "u", fill)).user_message


async def test_fetch_server_reads_a_page_of_this_machine(tmp_path: Path) -> None:
    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"<html><body><p>A page about fjords.</p></body></html>"
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n"
        writer.write(head + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(page, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    given = {**entry("fetch", tmp_path), "args": ["--ignore-robots-txt", "--allow-private-ips"]}
    async with server, running(tmp_path, given) as at:
        told = await result(at.box, "mcp_fetch-fetch", {"url": url})
        assert "fjords" in told.content
        servers = McpContext({"a": source_of(at)})
        wanted = FillPrompt(server="fetch", name="fetch", arguments={"url": url})
        assert "fjords" in (await servers.filled("a", "u", wanted)).user_message


@asynccontextmanager
async def fastmcp(folder: Path, way: str) -> AsyncIterator[dict[str, Any]]:
    script, python = folder / "fast.py", str(PLACE / "bin" / "python")
    script.write_text(FASTMCP)
    if way == "stdio":
        yield {"name": "fast", "command": python, "args": [str(script), "stdio"]}
        return
    with held_port() as port:
        pass
    process = await asyncio.create_subprocess_exec(
        python, str(script), way, str(port), stdout=DEVNULL, stderr=DEVNULL
    )
    path, transport = ("sse", "sse") if way == "sse" else ("mcp", "http")
    try:
        url = f"http://127.0.0.1:{port}/{path}"
        yield {"name": "fast", "transport": transport, "url": url}
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("way", ["stdio", "http", "sse"])
async def test_fastmcp_server_over_each_transport(tmp_path: Path, way: str) -> None:
    async with fastmcp(tmp_path, way) as given, running(tmp_path, given) as at:
        await until(lambda: at.status["status"] == "up")
        assert (await result(at.box, "mcp_fast-add", {"a": 1, "b": 2})).content == "3"
        read = await result(at.box, "mcp_fast-read_resource", {"uri": "note://milk"})
        assert "about milk" in read.content
        servers = McpContext({"a": source_of(at)})
        wanted = FillPrompt(server="fast", name="greet", arguments={"name": "Ada"})
        assert (await servers.filled("a", "u", wanted)).user_message == "Say hello to Ada"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_protocol_s_own_tests_of_clients_pass(tmp_path: Path, scenario: str) -> None:
    command = f"{sys.executable} -m tests.tools.official.conformance_client"
    ended = subprocess.run(
        [
            *(str(PLACE / "bin" / "node"), str(PACKAGES / "conformance" / "dist" / "index.js")),
            *("client", "--command", command, "--scenario", scenario),
            *("--output-dir", str(tmp_path), "--timeout", str(round(seconds(30) * 1000))),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=seconds(100),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
