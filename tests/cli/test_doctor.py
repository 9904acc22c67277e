"""`teal doctor`: a line for each thing, and a failure for each that would not work."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sk_agents import __version__
from sk_agents.exceptions import ModelError
from sk_agents.persistence.file_systems import durability_with, weaknesses_of
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import says
from tests.cli.buffering_proxy import buffering_proxy
from tests.cli.house import Served, run, serving, write_agent
from tests.outbound.company_network import Services, running_proxy
from tests.outbound.private_authority import PrivateAuthority

OFFLINE = ("--offline", "--store", "memory:")


def checks(folder: Path, *arguments: str, **values: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code, and what was found by the name of the check."""
    with free_port() as port:
        done = run(folder, "doctor", *arguments, "--json", **{"TA_PORT": str(port), **values})
    assert done.stderr == "", done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is (done.returncode == 0)
    return done.returncode, {check["check"]: check for check in document["checks"]}


class free_port:
    """A port that nobody else is given meanwhile, and that can still be taken."""

    def __enter__(self) -> int:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        port: int = self._socket.getsockname()[1]
        return port

    def __exit__(self, *exc_info: object) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("tour")
    with serving(folder, "--store", "memory:", TA_MODEL="scripted/echo") as served:
        yield served


def test_healthy_configuration_is_0_with_a_line_for_everything(tmp_path: Path) -> None:
    config = write_agent(tmp_path)
    store = f"sqlite://{tmp_path}/teal.sqlite"
    code, found = checks(tmp_path, str(config), "--store", store)
    assert code == 0
    assert {name: check["state"] for name, check in found.items()} == {
        "python": "ok",
        "packages": "ok",
        "callers": "warn",
        "configuration": "ok",
        "store": "ok",
        "disk": "ok",
        "port": "ok",
        "model scripted/talk.yaml": "ok",
    }
    assert found["configuration"]["detail"] == "helper on scripted/talk.yaml"
    kept = durability_with(weaknesses_of(tmp_path))
    assert f"durability {kept}" in found["store"]["detail"]


def test_people_get_lines_with_hints(tmp_path: Path) -> None:
    done = run(tmp_path, "doctor", str(write_agent(tmp_path)), *OFFLINE)
    assert done.returncode == 0
    assert "ok   configuration: helper on scripted/talk.yaml\n" in done.stdout
    assert "warn store: memory: loses everything" in done.stdout
    assert "\n     use sqlite:///path" in done.stdout


def test_what_serve_would_offer_is_checked_without_arguments(tmp_path: Path) -> None:
    code, found = checks(tmp_path, *OFFLINE, TA_MODEL="scripted/echo")
    assert code == 0
    assert found["configuration"]["detail"].startswith("tour on scripted/tour.yaml")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("plugins: [Mail]", "plugins: [Male]", "Male"),
        ("scripted/talk.yaml", "scripted/absent.yaml", "absent.yaml"),
        ("tool: Mail-burn", "tool: Mail-born", "Mail-born"),
        ("version: 0.1", "version: [", "config.yaml"),
    ],
)
def test_unusable_configuration_fails_with_its_place(
    tmp_path: Path, old: str, new: str, named: str
) -> None:
    config = write_agent(tmp_path)
    config.write_text(config.read_text().replace(old, new))
    code, found = checks(tmp_path, str(config), *OFFLINE)
    assert (code, found["configuration"]["state"]) == (1, "fail")
    assert named in found["configuration"]["detail"]


SEQUENTIAL = """
apiVersion: skagents/v1
kind: Sequential
service_name: Trip
version: 0.1
input_type: BaseInput
spec:
  agents: [{name: default, model: scripted/talk.yaml, system_prompt: You plan.}]
  tasks: [{name: plan, task_no: 1, description: d, instructions: Plan it., agent: default}]
"""


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("input_type: BaseInput", "input_type: BaseInputs", "input_type: 'BaseInputs'"),
        ("agent: default}", "agent: other}", "spec.tasks[0].agent 'other'"),
        ("Plan it.", '"{{ Plan"', "spec.tasks[0].instructions"),
    ],
)
def test_what_only_the_api_of_an_agent_reads_is_checked_too(
    tmp_path: Path, old: str, new: str, named: str
) -> None:
    config = write_agent(tmp_path)
    config.write_text(SEQUENTIAL)
    assert checks(tmp_path, str(config), *OFFLINE)[1]["configuration"]["state"] == "ok"
    config.write_text(SEQUENTIAL.replace(old, new))
    code, found = checks(tmp_path, str(config), *OFFLINE)
    assert (code, found["configuration"]["state"]) == (1, "fail")
    assert named in found["configuration"]["detail"]


def test_missing_catalog_and_bad_setting_fail(tmp_path: Path) -> None:
    config = str(write_agent(tmp_path))
    code, found = checks(tmp_path, config, *OFFLINE, TA_PLUGIN_CATALOG_FILE="absent.json")
    assert (code, "absent.json" in found["configuration"]["detail"]) == (1, True)
    code, found = checks(tmp_path, config, *OFFLINE, TA_MAX_CONNECTIONS="many")
    assert (code, "TA_MAX_CONNECTIONS" in found["settings"]["detail"]) == (1, True)


def test_authorizer_that_believes_everybody_fails_on_a_public_address(tmp_path: Path) -> None:
    code, found = checks(tmp_path, str(write_agent(tmp_path)), *OFFLINE, TA_HOST="0.0.0.0")
    assert (code, found["callers"]["state"]) == (1, "fail")


@pytest.mark.parametrize("name", ["TA_ROLES", "TA_KEYS_FILE"])
def test_file_of_roles_or_keys_that_cannot_be_read_fails(tmp_path: Path, name: str) -> None:
    config, file = str(write_agent(tmp_path)), tmp_path / "spoiled"
    file.write_text("operator: {user: [ada]}\n")
    file.chmod(0o600)
    values = {"TA_AUTHORIZER": "keys", "TA_KEYS_FILE": str(tmp_path / "none"), name: str(file)}
    code, found = checks(tmp_path, config, *OFFLINE, **values)
    assert (code, found["callers"]["state"]) == (1, "fail")
    assert ("operator.user" if name == "TA_ROLES" else "spoiled") in found["callers"]["detail"]


def test_store_that_cannot_be_opened_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = f"sqlite://{tmp_path}/file/teal.sqlite"
    code, found = checks(tmp_path, str(write_agent(tmp_path)), "--offline", "--store", store)
    assert (code, found["store"]["state"]) == (1, "fail")


def test_port_of_another_program_is_a_warning(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        arguments = (str(write_agent(tmp_path)), *OFFLINE)
        code, found = checks(tmp_path, *arguments, TA_PORT=str(other.getsockname()[1]))
    assert (code, found["port"]["state"]) == (0, "warn")


def test_port_of_a_teal_server_is_no_fault(tmp_path: Path, tour: Served) -> None:
    port = tour.url.rpartition(":")[2]
    code, found = checks(tmp_path, str(write_agent(tmp_path)), *OFFLINE, TA_PORT=port)
    assert (code, found["port"]["state"]) == (0, "ok")
    assert "a Teal server is running" in found["port"]["detail"]


async def test_model_is_asked_and_its_refusal_fails(tmp_path: Path) -> None:
    refusing = ModelError("no such key", status=401)
    async with ScriptedModelServer([says("ready"), refusing]) as model:
        config = write_agent(tmp_path)
        text = config.read_text().replace(
            "model: scripted/talk.yaml", f"model: some\n    base_url: {model.base_url}"
        )
        config.write_text(text)
        arguments = (str(config), "--store", "memory:")
        code, found = await asyncio.to_thread(checks, tmp_path, *arguments)
        assert (code, found["model some"]["state"]) == (0, "ok")
        code, found = await asyncio.to_thread(checks, tmp_path, *arguments)
        assert (code, found["model some"]["state"]) == (1, "fail")
        assert "llm_" in found["model some"]["detail"]
        assert len(model.requests) == 2


async def test_model_that_says_nothing_fails_in_time(tmp_path: Path) -> None:
    async with ScriptedModelServer([[asyncio.Event()]]) as model:
        config = write_agent(tmp_path)
        text = config.read_text().replace(
            "model: scripted/talk.yaml", f"model: mute\n    base_url: {model.base_url}"
        )
        config.write_text(text)
        arguments = (str(config), "--store", "memory:", "--model-timeout", "0.5")
        code, found = await asyncio.to_thread(checks, tmp_path, *arguments)
    assert (code, found["model mute"]["detail"]) == (1, "no answer in 0.5 s")


async def test_way_to_each_address_is_shown_and_tried_and_mcp_servers_are_asked(
    tmp_path: Path,
) -> None:
    authority = PrivateAuthority(tmp_path)
    async with running_proxy("ours", tmp_path) as proxy, AsyncExitStack() as stack:
        plain = await stack.enter_async_context(Services(proxy.host).serving())
        secure = await stack.enter_async_context(
            Services(proxy.host).serving(authority.server_side(proxy.host))
        )
        servers = [
            {"name": "good", "transport": "http", "url": f"{plain.url}/mcp"},
            {"name": "unknown", "transport": "http", "url": f"{secure.url}/mcp"},
            {"name": "dead", "command": "sh", "args": ["-c", "echo no licence >&2; exit 7"]},
        ]
        config = write_agent(tmp_path)
        text = config.read_text().replace(
            "model: scripted/talk.yaml",
            f"model: some\n    base_url: {plain.url}/v1\n    mcp_servers: {json.dumps(servers)}",
        )
        config.write_text(text)
        arguments = (str(config), "--store", "memory:")
        code, found = await asyncio.to_thread(checks, tmp_path, *arguments, **proxy.variables())
        assert code == 1
        for way in ("way to model some", "way to mcp server good"):
            detail = f"{plain.url} through {proxy.url} (HTTP_PROXY): reached"
            assert (found[way]["state"], found[way]["detail"]) == ("ok", detail)
        unknown = found["way to mcp server unknown"]
        assert unknown["state"] == "fail"
        assert "(HTTPS_PROXY), trusting the " in unknown["detail"]
        assert "SSL_CERT_FILE" in unknown["detail"]
        assert found["mcp server good"]["detail"] == "answers, 1 tools"
        assert "SSL_CERT_FILE" in found["mcp server unknown"]["detail"]
        dead = "down: the program ended with exit code 7; it wrote: no licence"
        assert found["mcp server dead"]["detail"] == dead
        assert found["model some"]["state"] == "ok"


def test_running_server_is_healthy_and_streams(tmp_path: Path, tour: Served) -> None:
    code, found = checks(tmp_path, *OFFLINE, "--server", tour.url, TA_MODEL="scripted/echo")
    assert code == 0
    assert found["server"]["state"] == "ok"
    assert found["server's agents"]["detail"] == "tour, assistant"
    assert "one by one" in found["server's streams"]["detail"]
    assert found["server's page"]["state"] == "ok"
    assert json.loads(tour.answer("chats", "list", "--json")) == []


def test_proxy_that_buffers_streams_is_found(tmp_path: Path, tour: Served) -> None:
    with buffering_proxy(tour.url) as url:
        code, found = checks(tmp_path, *OFFLINE, "--server", url, TA_MODEL="scripted/echo")
    assert (code, found["server"]["state"], found["server's agents"]["state"]) == (1, "ok", "ok")
    assert found["server's streams"]["state"] == "fail"
    assert "buffer" in found["server's streams"]["hint"]
    assert found["server's page"]["state"] == "fail"
    assert "Host" in found["server's page"]["hint"]


async def test_server_without_streams_to_measure_is_a_warning(tmp_path: Path) -> None:
    answers = {
        "/health/ready": {"version": __version__},
        "/agents": {"agents": [{"name": "one"}]},
    }

    async def answer(request: web.Request) -> web.Response:
        if request.path not in answers:
            return web.Response(status=404)
        return web.json_response(answers[request.path])

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        arguments = (*OFFLINE, "--server", str(server.make_url("")))
        code, found = await asyncio.to_thread(
            checks, tmp_path, *arguments, TA_MODEL="scripted/echo"
        )
    assert (code, found["server's streams"]["state"]) == (0, "warn")
    assert "404" in found["server's streams"]["detail"]


def test_absent_server_fails(tmp_path: Path) -> None:
    arguments = (str(write_agent(tmp_path)), *OFFLINE, "--server", "http://127.0.0.1:1")
    code, found = checks(tmp_path, *arguments)
    assert (code, found["server"]["state"]) == (1, "fail")


def test_server_that_refuses_the_token_fails(tmp_path: Path) -> None:
    config = str(write_agent(tmp_path))
    authorizer = {
        "TA_AUTHORIZER_MODULE": "sk_agents.testing.header_authorizer",
        "TA_AUTHORIZER_CLASS": "HeaderAuthorizer",
    }
    with serving(tmp_path, config, "--store", "memory:", **authorizer) as served:
        code, found = checks(tmp_path, config, *OFFLINE, "--server", served.url)
        assert (code, found["server's agents"]["state"]) == (1, "fail")
        # Streams are measured without anybody's leave.
        assert found["server's streams"]["state"] == "ok"
