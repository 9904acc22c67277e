"""DynamoDB for the tests: two emulators, each a process that speaks its protocol over HTTP.

`dynalite` (from npm, with transactions of ours, see `ui/tests/dynamodb.mjs`) is the faster one.
`moto` brings transactions of its own; run as a program, this file serves it. Neither is the real
service: both apply a transaction in one step and have no throttling, and every read is consistent.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from tests.missing import lacks

ROOT = Path(__file__).parent.parent
UI = ROOT / "ui"
# Any credentials will do; what the machine knows of AWS must not matter.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


def store_url(endpoint: str, table: str | None = None) -> str:
    """The URL of a store at an emulator, with a table of its own unless one is named."""
    name = table or f"teal-{uuid.uuid4().hex}"
    return f"dynamodb://{name}?region=us-east-1&endpoint={endpoint}"


@contextmanager
def aws_environment() -> Iterator[None]:
    """Credentials for this process and those it starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


@contextmanager
def dynalite_server() -> Iterator[str]:
    node = shutil.which("node", path=f"{os.environ.get('PATH')}:{Path(sys.executable).parent}")
    if node is None or not (UI / "node_modules" / "dynalite").is_dir():
        lacks("page", "dynalite is not installed: make page")
    with _serving([node, str(UI / "tests" / "dynamodb.mjs")]) as url:
        yield url


@contextmanager
def moto_server() -> Iterator[str]:
    with _serving([sys.executable, "-m", "tests.dynamodb"]) as url:
        yield url


@contextmanager
def _serving(command: Sequence[str]) -> Iterator[str]:
    """It prints its address, and ends when its input does: also if this process is killed."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            yield next(line.strip() for line in lines if line.startswith("http://"))
        finally:
            process.kill()


def _serve_moto() -> None:
    from moto.moto_server.werkzeug_app import (  # noqa: PLC0415
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: PLC0415

    application = DomainDispatcherApplication(create_backend_app)
    turn = Lock()

    def one_at_a_time(environ: Any, start_response: Any) -> Any:
        """moto itself would let requests run into each other."""
        with turn:
            return [b"".join(application(environ, start_response))]

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True, request_handler=Handler)
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    import threading

    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    _serve_moto()
