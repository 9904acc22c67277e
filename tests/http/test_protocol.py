"""Our connections use private parts of uvicorn: with another uvicorn the server works, too."""

import gc
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import FunctionType
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from sk_agents.http import uvicorn_protocol
from sk_agents.http.connections import ConnectionLimits, http_protocol
from tests.http.toy import Wire, post, serving, status, toy_app
from tests.patience import seconds

ROOT = Path(__file__).parents[2]
CHANGES: dict[str, str] = {
    "another version": "uvicorn.__version__ = '0.55.0'",
    "a method that is gone": "del HttpToolsProtocol.eof_received",
    "other arguments": "HttpToolsProtocol.on_url = lambda self, part: old(self, part)",
    "a module that has moved": "sys.modules['uvicorn._types'] = None",
}
SERVE = """
import sys
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
old = HttpToolsProtocol.on_url
{change}
sys.argv = ["teal", "serve", "--port", "0", "--store", "memory:"]
from sk_agents.cli import main
main()
"""


def test_installed_version_is_supported_and_asked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [wanted] = [one for one in project["dependencies"] if one.startswith("uvicorn")]
    oldest, newest = uvicorn_protocol.OLDEST, uvicorn_protocol.TOO_NEW
    assert wanted == f"uvicorn[standard]>={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1]}"
    assert uvicorn_protocol.unsupported() is None
    assert isinstance(http_protocol(ConnectionLimits()), type)


@pytest.mark.parametrize("change", CHANGES)
def test_another_uvicorn_serves_with_its_own_protocol_and_says_so(
    change: str, tmp_path: Path
) -> None:
    code = SERVE.format(change=CHANGES[change])
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "TA_LOOP_HELD_SECONDS": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            address = re.search(r"http://\S+", process.stdout.readline())
            assert address, process.communicate(timeout=seconds(60))
            with httpx.Client(base_url=address[0], timeout=seconds(20)) as client:
                made = client.post("/chats", json={"title": "Weather"})
                listed = client.get("/chats").json()
                answer = client.post(
                    f"/chats/{made.json()['id']}/interactions", json={"user_message": "Hello"}
                )
        finally:
            process.kill()
        told = process.stderr.read()
    assert (made.status_code, len(listed["chats"])) == (201, 1)
    assert "event: interaction_complete" in answer.text
    assert told.count("this version is not supported") == 1


@pytest.mark.parametrize(
    ("owner", "name", "new"),
    [
        (HttpToolsProtocol, "on_header", lambda self, name, value, more: None),
        (RequestResponseCycle, "receive", None),
    ],
)
def test_what_is_not_as_it_was_is_named(
    owner: type, name: str, new: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, new)
    assert uvicorn_protocol.unsupported() == f"{owner.__name__}.{name} is not what it was"


def test_an_attribute_that_is_no_longer_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def __init__(self, config, server_state, app_state, _loop=None) -> None:  # type: ignore[no-untyped-def]
        """Sets nothing."""

    monkeypatch.setattr(HttpToolsProtocol, "__init__", __init__)
    assert uvicorn_protocol.unsupported() == "HttpToolsProtocol has no app"


def test_an_attribute_that_ours_would_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    code = RequestResponseCycle.__init__.__code__
    more = FunctionType(code.replace(co_names=(*code.co_names, "trailers")), {})
    monkeypatch.setattr(RequestResponseCycle, "__init__", more)
    assert uvicorn_protocol.unsupported() == "RequestResponseCycle has a new trailers"


def test_our_protocol_is_used_where_it_can_be() -> None:
    with serving(toy_app(), ConnectionLimits(headers=3)) as port, Wire(port) as wire:
        answer = wire.send(post(b'{"content":"x"}', "A: 1", "B: 2", "C: 3")).rest()
    assert status(answer) == 431
    assert uvicorn.__version__


def _exchanges() -> set[object]:
    return {one for one in gc.get_objects() if isinstance(one, uvicorn_protocol.Exchange)}


def test_a_request_that_is_answered_leaves_nothing_to_the_garbage_collector() -> None:
    with serving(toy_app(), ConnectionLimits()) as port, Wire(port) as wire:
        gc.collect()
        gc.disable()
        try:
            earlier = _exchanges()
            for _ in range(5):
                assert status(wire.send(post(b'{"content":"x"}')).until(b"}")) == 200
            kept = _exchanges() - earlier
        finally:
            gc.enable()
    # The connection's last one.
    assert len(kept) <= 1
