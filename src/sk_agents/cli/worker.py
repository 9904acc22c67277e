"""One of several workers, as its supervisor starts it: `python -m sk_agents.cli.worker ORDERS`."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

from sk_agents.cli.garbage_collection import paused_collection
from sk_agents.cli.launch import prepare
from sk_agents.cli.options import Exit
from sk_agents.exceptions import ConfigurationError
from sk_agents.telemetry.logs import print_line


def main(orders: str) -> Exit:
    """The orders are JSON: what to serve, this worker's number, and its two sockets."""
    given = json.loads(orders)
    config_paths = [Path(path) for path in given["config"]]
    try:
        settings = prepare(config_paths, given["overrides"])
    except ConfigurationError as error:
        print_line(sys.stderr, f"teal: {error}")
        return Exit.BAD_CONFIGURATION
    with paused_collection():
        from sk_agents.cli.serve import serve  # noqa: PLC0415
        from sk_agents.cli.worker_link import WorkerLink  # noqa: PLC0415

        listener = socket.socket(fileno=given["listener"])
        control = socket.socket(fileno=given["control"])
        return serve(config_paths, settings, WorkerLink(given["number"], listener, control))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
