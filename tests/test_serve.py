"""`teal serve` as a process: ready line, HTTP, signals, exit codes."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path

import apsw
import httpx
import pytest

import sk_agents
from sk_agents.config.settings import Settings
from sk_agents.persistence.file_systems import durability_with, weaknesses_of
from sk_agents.persistence.tasks.view import StoreTasks
from sk_agents.wiring import build_stores
from tests.chaos.instances import until
from tests.forked_python import PYTHON
from tests.patience import seconds
from tests.requirements import requirement
from tests.stores.sqlite_faults import locked_by_another_process
from tests.task_builders import stored, task

AGENT = """
apiVersion: tealagents/v1alpha1
kind: Agent
name: {name}
version: 0.1
spec:
  agent:
    name: default
    model: scripted/echo
    system_prompt: You repeat what you hear.
"""
STORE = ("--store", "memory:")
# As long as a busy machine may take to start or to end a server.
BOUND = seconds(60)


def environment(folder: Path, **values: str) -> dict[str, str]:
    """The real one without settings, with a home of its own."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TA_", "TEAL_", "XDG_"))}
    # What a first request imports takes its time, and is not to be told here.
    return {**inherited, "HOME": str(folder), "TA_LOOP_HELD_SECONDS": "0", **values}


def command(*arguments: str) -> list[str]:
    return [PYTHON, "-m", "sk_agents", *arguments]


@contextmanager
def serving(
    folder: Path, *arguments: str, **values: str
) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A running server, its ready line and its address."""
    with subprocess.Popen(
        command("serve", "--port", "0", *arguments),
        cwd=folder,
        env=environment(folder, **values),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            address = re.search(r"http://\S+", line)
            assert address, process.communicate(timeout=BOUND)
            yield process, line, address[0]
        finally:
            process.kill()


def failing(folder: Path, *arguments: str, **values: str) -> tuple[int, str]:
    """Exit code and message of a server that does not start."""
    done = subprocess.run(
        command("serve", *arguments),
        cwd=folder,
        env=environment(folder, **values),
        capture_output=True,
        text=True,
        timeout=BOUND,
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_says_one_line_answers_and_stops_cleanly(tmp_path: Path, number: int) -> None:
    (tmp_path / "one.yaml").write_text(AGENT.format(name="One"))
    (tmp_path / "two.yaml").write_text(AGENT.format(name="Two"))
    with serving(tmp_path, str(tmp_path), *STORE) as (process, line, address):
        assert line.startswith("teal ready at http://127.0.0.1:")
        assert " · agents: One, Two · store: memory: · model: scripted/echo" in line
        assert httpx.get(f"{address}/health/live").json()["alive"] is True
        for path in ("/", "/health/live", "/health/ready"):
            # As monitors ask: everything but the body.
            asked = httpx.head(f"{address}{path}")
            assert (asked.status_code, asked.content) == (200, b"")
            assert int(asked.headers["content-length"]) > 0
        ready = httpx.get(f"{address}/health/ready")
        assert (ready.status_code, ready.json()["version"]) == (200, sk_agents.__version__)
        page = httpx.get(address)
        assert "<title>Teal Agents</title>" in page.text
        assert page.headers["X-Correlation-Id"]
        assert parsedate_to_datetime(page.headers["Date"])
        assert httpx.get(f"{address}/nowhere").headers["Content-Type"] == "application/problem+json"
        process.send_signal(number)
        rest, complaints = process.communicate(timeout=BOUND)
    assert (process.returncode, rest, complaints) == (0, "", "")


ALL_CLOSED = "<&- >&- 2>&-"


@pytest.mark.parametrize(
    ("closed", "workers"),
    [("<&-", "1"), (">&-", "1"), ("2>&-", "1"), (ALL_CLOSED, "1"), (ALL_CLOSED, "2")],
)
def test_a_server_without_standard_streams_serves(
    tmp_path: Path, closed: str, workers: str
) -> None:
    """As a program starts it that closes all its files before."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = f"sqlite://{tmp_path / 'teal.sqlite'}"
    words = ["serve", "--port", str(port), "--workers", workers, "--store", store]
    shell = ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-m", "sk_agents", *words]
    with subprocess.Popen(shell, cwd=tmp_path, env=environment(tmp_path)) as process:

        async def answer() -> int | None:
            assert process.poll() is None
            try:
                async with httpx.AsyncClient() as client:
                    url = f"http://127.0.0.1:{port}/health/ready"
                    return (await client.get(url)).status_code
            except httpx.ConnectError:
                return None

        try:
            assert asyncio.run(until(answer)) == 200
            process.terminate()
            assert process.wait(BOUND) == 0
        finally:
            process.kill()


LEAVING = """
import asyncio
import sys

from sk_agents.ska_types import BasePlugin
from sk_agents.tools import kernel_function


async def leave() -> None:
    sys.exit()


class Plugin(BasePlugin):
    @kernel_function(description="Starts a task that ends the process.")
    async def start(self) -> str:
        self.task = asyncio.create_task(leave())
        await asyncio.Event().wait()
        return "never"

    @kernel_function(description="Raises what Ctrl-C raises.")
    async def interrupt(self) -> str:
        raise KeyboardInterrupt
"""
LEAVING_AGENT = (
    AGENT.format(name="One").replace("scripted/echo", "scripted/script.yaml")
    + "    plugins: [Plugin]\n    approvals: {default: allow}\n"
)


def leaving(folder: Path, tool: str) -> None:
    (folder / "one.yaml").write_text(LEAVING_AGENT)
    (folder / "custom_plugins.py").write_text(LEAVING)
    (folder / "script.yaml").write_text(
        f"turns: [{{calls: [{{tool: Plugin-{tool}}}]}}, {{text: 'it says {{result}}'}}]"
    )


def test_a_plugins_own_task_that_exits_ends_the_server_at_once(tmp_path: Path) -> None:
    leaving(tmp_path, "start")
    with serving(tmp_path, "one.yaml", *STORE) as (process, _, address):
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{address}/chats/c/interactions", json={"user_message": "go"})
        _, complaints = process.communicate(timeout=seconds(20))
    assert process.returncode == 1
    assert "teal: ended at once: SystemExit stopped the event loop" in complaints


def test_a_tool_that_raises_what_ctrl_c_raises_does_not_stop_the_server(tmp_path: Path) -> None:
    leaving(tmp_path, "interrupt")
    with serving(tmp_path, "one.yaml", *STORE) as (_, _, address):
        answer = httpx.post(f"{address}/chats/c/interactions", json={"user_message": "go"})
    assert "it says The tool tried to end the process it runs in." in answer.text


def test_a_log_that_nobody_reads_holds_up_neither_requests_nor_the_end(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(AGENT.format(name="One"))
    # At this level every line is written; a pipe holds about 500 of them.
    with serving(tmp_path, str(tmp_path), *STORE, TA_LOG_LEVEL="debug") as (process, _, address):
        send_nonsense(address, 1_000)
        assert httpx.get(f"{address}/health/live", timeout=seconds(10)).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=seconds(10)) == 0


def test_a_line_that_comes_again_and_again_is_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(AGENT.format(name="One"))
    with serving(tmp_path, str(tmp_path), *STORE) as (process, _, address):
        send_nonsense(address, 1_000)
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=seconds(10))
    assert 0 < complaints.count("Invalid HTTP request received.") < 900


def send_nonsense(address: str, times: int) -> None:
    host, port = address.removeprefix("http://").split(":")
    for _ in range(times):
        with socket.create_connection((host, int(port)), timeout=seconds(10)) as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 400"


def test_default_store_is_a_database_in_the_users_data_folder(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, line, address):
        path = tmp_path / ".local/share/teal-agents/teal.sqlite"
        assert f"store: sqlite://{path} " in line
        assert path.is_file()
        assert httpx.get(f"{address}/health/ready").json()["dependencies"]["store"] == {
            "status": "up",
            "kind": "sqlite",
            "durability": durability_with(weaknesses_of(tmp_path)),
        }
        process.terminate()
        assert process.wait(timeout=BOUND) == 0


@requirement("S001-env-default-persistence")
async def test_tasks_of_the_default_store_survive_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    async with build_stores(Settings()).tasks as store:
        await StoreTasks(store).create(task("kept"))
    async with build_stores(Settings()).tasks as store:
        assert str(store).startswith("sqlite://")
        assert (await stored(StoreTasks(store), "kept")).items == task("kept").items


@requirement("S004-9.1-single-instance")
@pytest.mark.parametrize("store", ["memory:", "sqlite://{}/teal.sqlite", "file://{}/chats"])
def test_one_process_serves_alone_from_any_store(tmp_path: Path, store: str) -> None:
    with serving(tmp_path, "--store", store.format(tmp_path)) as (_, line, address):
        assert f"store: {store.format(tmp_path)} " in line
        assert httpx.get(f"{address}/health/ready").json()["status"] == "healthy"


def test_usual_file_is_served_when_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "config.yaml").write_text(AGENT.format(name="Usual"))
    with serving(tmp_path, *STORE) as (_, line, _):
        assert "agents: Usual" in line


def test_file_named_by_the_environment_is_served(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(AGENT.format(name="Mine"))
    with serving(tmp_path, *STORE, TA_SERVICE_CONFIG="mine.yaml") as (_, line, _):
        assert "agents: Mine" in line


@requirement("S001-error-configuration")
def test_bad_file_exits_78_naming_file_and_field(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(AGENT.format(name="A").replace("v1alpha1", "v9"))
    code, message = failing(tmp_path, "bad.yaml")
    assert code == 78
    assert re.search(r"bad\.yaml: apiVersion ", message)


@requirement("S001-error-configuration")
@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"TA_PORT": "many"}, "TA_PORT"),
        ({"TA_STORE": "nosuch://x"}, "TA_STORE"),
        ({"TA_SERVICE_CONFIG": "absent.yaml"}, "absent.yaml"),
        (
            {"TA_AUTHORIZER_MODULE": "absent.py", "TA_AUTHORIZER_CLASS": "A"},
            "TA_AUTHORIZER_MODULE",
        ),
        ({"TA_AUTHORIZER_CLASS": "A"}, "TA_AUTHORIZER_MODULE"),
        (
            {"TA_PERSISTENCE_MODULE": "absent.py", "TA_PERSISTENCE_CLASS": "A"},
            "TA_PERSISTENCE_MODULE",
        ),
        ({"TA_HOST": "no such host"}, "TA_ALLOW_INSECURE_AUTH"),
        ({"TA_HOST": "192.0.2.1", "TA_ALLOW_INSECURE_AUTH": "true"}, "TA_HOST"),
    ],
)
def test_bad_setting_exits_78_naming_it(tmp_path: Path, values: dict[str, str], named: str) -> None:
    code, message = failing(tmp_path, **values)
    assert code == 78
    assert named in message


@requirement("S001-env-conflict")
def test_store_and_class_that_disagree_exit_78(tmp_path: Path) -> None:
    code, message = failing(
        tmp_path,
        TA_STORE="sqlite:///x.sqlite",
        TA_PERSISTENCE_MODULE="sk_agents.persistence.in_memory_persistence_manager",
        TA_PERSISTENCE_CLASS="InMemoryPersistenceManager",
    )
    assert code == 78
    assert "TA_STORE" in message


@pytest.mark.parametrize("store", ["sqlite://{}/x.sqlite", "file://{}/x"])
def test_store_without_room_exits_78(tmp_path: Path, store: str) -> None:
    # A plain start: the limit is this process's own.
    serve = [sys.executable, "-m", "sk_agents", "serve", "--port", "0"]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *serve, "--store", store.format(tmp_path)],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=BOUND,
    )
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith("teal: ")


def test_store_that_cannot_be_opened_exits_78(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, message = failing(
        tmp_path, "--port", "0", "--store", f"sqlite://{tmp_path}/file/x.sqlite"
    )
    assert code == 78
    assert str(tmp_path / "file") in message


def test_store_that_another_process_holds_locked_exits_75(tmp_path: Path) -> None:
    path = tmp_path / "held.sqlite"
    apsw.Connection(str(path)).close()
    with locked_by_another_process(path):
        code, complaints = failing(tmp_path, "--port", "0", "--store", f"sqlite://{path}")
    assert code == 75
    assert "locked by another process" in complaints


def test_busy_port_exits_69_naming_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, message = failing(tmp_path, "--port", port, *STORE)
    assert code == 69
    assert f"port {port} is in use" in message


@requirement("S000-auth-mock-loopback")
def test_development_authorizer_serves_the_network_only_when_told_to(tmp_path: Path) -> None:
    code, message = failing(tmp_path, "--host", "0.0.0.0", *STORE)
    assert code == 78
    assert "TA_ALLOW_INSECURE_AUTH" in message
    told = {"TA_ALLOW_INSECURE_AUTH": "true", "TA_HOST": "0.0.0.0"}
    with serving(tmp_path, *STORE, **told) as (_, line, _):
        assert "http://0.0.0.0:" in line


@requirement("S001-extensibility-authorizer")
def test_own_authorizer_may_serve_the_network(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from sk_agents.authorization.request_authorizer import RequestAuthorizer\n"
        "class Own(RequestAuthorizer):\n"
        "    def authorize_request(self, auth_header):\n"
        "        return 'alice'\n"
    )
    own = {"TA_AUTHORIZER_MODULE": "own.py", "TA_AUTHORIZER_CLASS": "Own"}
    with serving(tmp_path, "--host", "0.0.0.0", *STORE, **own) as (_, line, _):
        assert "teal ready" in line


def test_version_is_printed() -> None:
    shown = subprocess.run(command("--version"), capture_output=True, text=True, timeout=BOUND)
    assert shown.stdout == f"teal {sk_agents.__version__}\n"


def test_help_shows_examples() -> None:
    shown = subprocess.run(
        command("serve", "--help"), capture_output=True, text=True, timeout=BOUND
    )
    assert "teal serve agents/config.yaml --port 0" in shown.stdout


def test_importing_the_application_reads_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sk_agents.app"],
        cwd=tmp_path,
        env=environment(tmp_path, TA_PORT="many"),
        timeout=BOUND,
    )
    assert done.returncode == 0


def test_application_runs_under_uvicorn_itself(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "sk_agents.app:app", "--port", "0"],
        cwd=tmp_path,
        env=environment(tmp_path, TA_STORE="memory:"),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            address = next(
                filter(None, (re.search(r"http://\S+", line) for line in process.stderr))
            )
            assert httpx.get(f"{address[0]}/health/ready").status_code == 200
        finally:
            process.kill()
