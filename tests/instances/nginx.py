"""A real nginx with the configuration that is shipped, in front of servers of a test."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.chaos.instances import until

SHIPPED = Path(__file__).parents[2] / "deploy" / "nginx" / "teal.conf"
MAIN = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/teal.conf;
}}
"""


@asynccontextmanager
async def nginx_before(program: str, folder: Path, servers: Sequence[str]) -> AsyncIterator[str]:
    """Its address, once it answers."""
    port = _free_port()
    (folder / "teal.conf").write_text(_shipped_for(servers, port))
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder))
    process = await asyncio.create_subprocess_exec(
        *(program, "-p", str(folder), "-c", str(folder / "nginx.conf")),
        *("-e", str(folder / "error.log")),
    )

    async def answers() -> bool | None:
        assert process.returncode is None, (folder / "error.log").read_text()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return None
        writer.close()
        return True

    try:
        await until(answers)
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _shipped_for(servers: Sequence[str], port: int) -> str:
    """With these servers and this port instead of those in it, and nothing else changed."""
    text = SHIPPED.read_text()
    [line] = re.findall(r"^ *server teal:8000.*;$", text, re.MULTILINE)
    lines = [line.replace("teal:8000", urlsplit(url).netloc) for url in servers]
    return text.replace(line, "\n".join(lines)).replace("listen 8080;", f"listen 127.0.0.1:{port};")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
