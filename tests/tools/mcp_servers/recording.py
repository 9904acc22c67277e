"""An MCP server that offers everything of the older protocol, and notes what it is sent: a program
of its own. It speaks by hand, so that no library stands between the two."""

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
SCHEMA = {"type": "object", "properties": {}}
TOOLS = [
    {"name": "plain", "inputSchema": SCHEMA},
    {"name": "either", "inputSchema": SCHEMA, "execution": {"taskSupport": "optional"}},
    {"name": "task", "inputSchema": SCHEMA, "execution": {"taskSupport": "required"}},
]
ANSWERS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "serverInfo": {"name": "recording", "version": "1"},
        "capabilities": {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {"listChanged": True},
            "completions": {},
            "logging": {},
            "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
        },
    },
    "tools/list": {"tools": TOOLS},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
    "resources/list": {"resources": [{"uri": "note://1", "name": "one"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": [{"uri": "note://1", "text": "milk"}]},
    "prompts/list": {"prompts": [{"name": "p", "arguments": [{"name": "a"}]}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]},
}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    message = json.loads(line)
    with (FOLDER / "notes").open("a") as notes:
        notes.write(line)
    if "id" not in message:
        continue
    if message.get("method") in ANSWERS or message.get("method") == "logging/setLevel":
        send({"id": message["id"], "result": ANSWERS.get(message["method"], {})})
    elif "method" in message:
        send({"id": message["id"], "error": {"code": -32601, "message": "not found"}})
