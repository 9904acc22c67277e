"""The protocol of the servers that tests start: that of `teal serve`, or uvicorn's own.

`TEAL_TEST_PROTOCOL=stock` runs the surfaces' tests as a server with another uvicorn would.
"""

from __future__ import annotations

import asyncio
import os

from sk_agents.http.connections import ConnectionLimits, http_protocol

IS_STOCK = os.environ.get("TEAL_TEST_PROTOCOL") == "stock"


def server_protocol(limits: ConnectionLimits | None = None) -> type[asyncio.Protocol] | str:
    return "httptools" if IS_STOCK else http_protocol(limits or ConnectionLimits())
