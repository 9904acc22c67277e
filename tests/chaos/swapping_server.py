"""An MCP server whose one tool is whatever a file says it is: a program of its own.

It enters every call into the ledger before it answers. A definition with `announce` is told to
its client as soon as it is there; any other waits to be asked for.

Usage: python swapping_server.py FOLDER LEDGER_PORT [ANYTHING]
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

DEFINITION = Path(sys.argv[1]) / "definition.json"
LEDGER = int(sys.argv[2])
LOOK = 0.01

_writing = threading.Lock()


def send(message: dict[str, Any]) -> None:
    with _writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def definition() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DEFINITION.read_text())
    return found


def announce() -> None:
    told = definition()
    while True:
        time.sleep(LOOK)
        now = definition()
        if now != told and now.get("announce"):
            send({"method": "notifications/tools/list_changed"})
        told = now


def enter(params: dict[str, Any]) -> None:
    line = {"call_id": "", "run_id": "mcp", "key": str(params.get("_meta")), "hold": False}
    with socket.create_connection(("127.0.0.1", LEDGER)) as ledger:
        ledger.sendall(json.dumps(line).encode() + b"\n")
        ledger.recv(16)


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "swapping", "version": "1"},
            }
        case "tools/list":
            return {"tools": [definition()["tool"]]}
        case "tools/call":
            enter(params)
            return {"content": [{"type": "text", "text": "went"}]}
        case _:
            return None


def main() -> None:
    threading.Thread(target=announce, daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params", {}))
        if result is None:
            send({"id": message["id"], "error": {"code": -32601, "message": "no"}})
        else:
            send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main()
