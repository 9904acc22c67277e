"""`teal serve --workers`: one address, several processes, and one that looks after them."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx_sse
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sk_agents.cli import available_cores
from sk_agents.cli.doctor.remote_checks import check_server
from sk_agents.cli.launch import worker_count
from sk_agents.cli.listening import CannotListen, SharedAddress, listen
from sk_agents.cli.options import Exit, ServerAccess
from sk_agents.cli.supervisor import (
    PAUSES,
    SERVED_SECONDS,
    SILENT_LOOKS,
    Worker,
    WorkerSlot,
    named_line,
)
from sk_agents.config.settings import LogFormat, Settings
from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.exceptions import ConfigurationError
from sk_agents.telemetry.worker_pages import merged_pages
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import Turn
from tests.chaos.instances import until
from tests.chaos.server_process import NotStarted, Server
from tests.chats.serving import write_agent
from tests.patience import seconds

BOUND = seconds(60)


@asynccontextmanager
async def two_workers(folder: Path, *script: Turn, **environment: str) -> AsyncIterator[Server]:
    async with ScriptedModelServer(script) as model:
        agent = write_agent(folder / "helper", model.base_url)
        served = Server(folder, agent, log=folder / "log")
        served.environment = {"TA_WORKERS": "2", **environment}
        await served.start()
        try:
            yield served
        finally:
            await served.close()


async def health(served: Server) -> dict[str, Any]:
    """Of any worker, over a connection of its own."""
    async with httpx.AsyncClient(base_url=served.url, timeout=BOUND) as client:
        found: dict[str, Any] = (await client.get("/health/ready")).json()
        return found


@asynccontextmanager
async def client_of(served: Server, number: int) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose only connection is with this worker."""
    limits = httpx.Limits(max_connections=1)
    while True:
        async with httpx.AsyncClient(base_url=served.url, timeout=BOUND, limits=limits) as client:
            if (await client.get("/health/ready")).json()["worker"] == number:
                yield client
                return


async def states(served: Server) -> list[str]:
    return [worker["state"] for worker in (await health(served))["workers"]]


async def pids(served: Server) -> list[int]:
    return [worker["pid"] for worker in (await health(served))["workers"]]


async def read_until(
    events: AsyncIterator[httpx_sse.ServerSentEvent], name: str
) -> list[httpx_sse.ServerSentEvent]:
    seen: list[httpx_sse.ServerSentEvent] = []
    async with asyncio.timeout(BOUND):
        async for event in events:
            seen.append(event)
            if event.event == name:
                break
    return seen


def log_of(folder: Path) -> str:
    return (folder / "log").read_text()


async def test_two_workers_serve_as_one_and_one_that_is_killed_is_replaced(tmp_path: Path) -> None:
    end = asyncio.Event()
    story: Turn = [TextDelta("It was a "), end, TextDelta("dream."), TurnFinished()]
    async with two_workers(tmp_path, story, TA_METRICS_ENABLED="true") as served:
        assert await states(served) == ["ready", "ready"]
        async with client_of(served, 1) as one, client_of(served, 2) as other:
            body = {"user_message": "tell me", "on_disconnect": "continue"}
            sending = httpx_sse.aconnect_sse(one, "POST", "/chats/c/interactions", json=body)
            async with sending as mine:
                [started, *_] = await read_until(mine.aiter_sse(), "answer_delta")
                run = started.json()["interaction_id"]
                path = f"/chats/c/interactions/{run}/events"
                async with httpx_sse.aconnect_sse(other, "GET", path) as theirs:
                    events = theirs.aiter_sse()
                    seen = await read_until(events, "answer_delta")
                    assert seen[-1].json()["content"] == "It was a "
                    end.set()
                    rest = await read_until(events, "interaction_complete")
            assert [event.json()["content"] for event in rest if event.event == "answer"] == [
                "It was a dream."
            ]
            page = (await one.get("/metrics")).text
            families = {family.name: family for family in text_string_to_metric_families(page)}
            seen_by = {
                s.labels["worker"] for s in families["teal_http_request_duration_seconds"].samples
            }
            assert seen_by == {"1", "2"}
            assert {s.value for s in families["teal_worker_up"].samples} == {1.0}
            assert {s.labels["worker"] for s in families["teal_runs_driven"].samples} == {"1", "2"}
        [found, *_] = [one async for one in check_server(ServerAccess(served.url))]
        assert (found.state, found.detail.endswith("2 workers")) == ("ok", True)
        killed = await pids(served)
        os.kill(killed[0], signal.SIGKILL)

        async def is_replaced() -> bool | None:
            now = (await health(served))["workers"]
            is_new = now[0]["pid"] not in (None, killed[0]) and now[0]["state"] == "ready"
            return (is_new and now[1]["pid"] == killed[1]) or None

        assert await until(is_replaced)
        await served.stop()
    log = log_of(tmp_path)
    assert "a worker has ended and is started again" in log
    assert "[worker 1] " in log and "Traceback" not in log
    assert not [pid for pid in killed if is_running(pid)]


async def test_worker_that_could_not_be_started_for_a_while_is_started_in_the_end(
    tmp_path: Path,
) -> None:
    """No file, no process and no memory is left for a moment; or an upgrade is being installed."""
    async with two_workers(tmp_path) as served:
        before = await pids(served)
        supervisor = parent_of(before[0])
        allowed = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (4, allowed[1]))

        async def is_refused() -> bool | None:
            return log_of(tmp_path).count("a worker could not be started") >= 2 or None

        async def reload_is_refused() -> bool | None:
            return "the new configuration is not used" in log_of(tmp_path) or None

        os.kill(before[0], signal.SIGKILL)
        assert await until(is_refused)
        os.kill(supervisor, signal.SIGHUP)
        assert await until(reload_is_refused)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, allowed)

        async def are_ready() -> bool | None:
            return await states(served) == ["ready", "ready"] or None

        assert await until(are_ready)
        assert (await pids(served))[1] == before[1]
        await served.stop()


async def test_worker_is_replaced_while_a_program_of_its_own_still_runs(tmp_path: Path) -> None:
    """A plugin's program has inherited the standard error that the supervisor reads."""
    async with ScriptedModelServer([]) as model:
        agent = write_agent(tmp_path / "helper", model.base_url)
        plugins = agent.with_name("custom_plugins.py")
        plugins.write_text(plugins.read_text() + CHILD)
        served = Server(tmp_path, agent, log=tmp_path / "log")
        served.environment = {"TA_WORKERS": "2", "CHILDREN": str(tmp_path / "children")}
        try:
            await served.start()
            before = await pids(served)
            os.kill(before[0], signal.SIGKILL)

            async def is_replaced() -> bool | None:
                now = (await health(served))["workers"]
                is_new = now[0]["pid"] not in (None, before[0]) and now[0]["state"] == "ready"
                return is_new or None

            assert await until(is_replaced)
            await served.stop()
        finally:
            await served.close()
            for child in (tmp_path / "children").read_text().split():
                os.kill(int(child), signal.SIGKILL)


CHILD = """
import os
import subprocess

_child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
with open(os.environ["CHILDREN"], "a") as _children:
    _children.write(f"{_child.pid}\\n")
"""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_one_core_is_served_by_a_worker_that_a_reload_replaces(tmp_path: Path) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        # A variable that is read at the start keeps the process from being forked elsewhere.
        async with two_workers(tmp_path, TA_WORKERS="auto", TZ="UTC") as served:
            [before] = await pids(served)
            served.signal(signal.SIGHUP)

            async def is_reloaded() -> bool | None:
                return "all workers have the new configuration" in log_of(tmp_path) or None

            assert await until(is_reloaded)
            [after] = await pids(served)
            assert after != before
            await served.stop()
    finally:
        os.sched_setaffinity(0, cores)


async def test_new_configuration_is_taken_over_without_a_gap_and_a_broken_one_is_not(
    tmp_path: Path,
) -> None:
    async with two_workers(tmp_path, TA_LOG_FORMAT="json") as served:
        file = tmp_path / "helper" / "config.yaml"
        good = file.read_text()
        before = await pids(served)
        file.write_text("spec: [")
        served.signal(signal.SIGHUP)

        async def is_refused() -> bool | None:
            await health(served)
            return "the new configuration is not used" in log_of(tmp_path) or None

        assert await until(is_refused)
        assert await pids(served) == before
        file.write_text(good.replace("name: helper", "name: renamed"))
        served.signal(signal.SIGHUP)

        async def has_new_name() -> bool | None:
            # A connection of its own each time: none is refused while workers are replaced.
            async with httpx.AsyncClient(base_url=served.url, timeout=BOUND) as client:
                agents = (await client.get("/agents")).json()["agents"]
            is_done = "all workers have the new configuration" in log_of(tmp_path)
            return (is_done and agents[0]["name"] == "renamed") or None

        assert await until(has_new_name)
        after = await pids(served)
        assert not set(after) & set(before)
        for line in log_of(tmp_path).splitlines():
            assert isinstance(json.loads(line), dict)
        served.kill()
        await served.ended()

        async def are_gone() -> bool | None:
            return not any(map(is_running, after)) or None

        # Nothing is left of a supervisor that was killed.
        assert await until(are_gone)


async def test_the_log_has_one_format_also_after_a_reload_that_changes_it(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as served:
        (tmp_path / ".env").write_text("TA_LOG_FORMAT=json\n")
        served.signal(signal.SIGHUP)

        async def is_reloaded() -> bool | None:
            return "all workers have the new configuration" in log_of(tmp_path) or None

        assert await until(is_reloaded)
        before = await pids(served)
        os.kill(before[0], signal.SIGKILL)

        async def is_noticed() -> bool | None:
            return "a worker has ended and is started again" in log_of(tmp_path) or None

        assert await until(is_noticed)
        await served.stop()
    lines = log_of(tmp_path).splitlines()
    later = [line for line in lines[3:] if "workers are replaced one by one" not in line]
    assert len(later) >= 4
    assert all(isinstance(json.loads(line), dict) for line in later)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_configuration_that_cannot_be_served_ends_it_with_the_workers_exit_code(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "config.yaml"
    broken.write_text("spec: [")
    served = Server(tmp_path, broken, log=tmp_path / "log")
    served.environment = {"TA_WORKERS": "2"}
    try:
        with pytest.raises(NotStarted):
            await served.start()
        assert await served.ended() == Exit.BAD_CONFIGURATION
    finally:
        await served.close()
    assert "config.yaml" in log_of(tmp_path)


def test_store_in_memory_is_not_shared_by_several_workers() -> None:
    with pytest.raises(ConfigurationError, match="TA_WORKERS.*memory"):
        worker_count(Settings(store="memory:", workers=2))
    assert worker_count(Settings(store="memory:", workers="auto")) == 1
    assert worker_count(Settings(store="sqlite:///tmp/x.sqlite", workers=3)) == 3


@pytest.mark.parametrize("given", ["0", "-1", "many", "257"])
def test_number_of_workers_is_a_number_or_auto(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TA_WORKERS", given)
    with pytest.raises(ValueError, match="workers"):
        Settings()


def test_address_that_another_server_has_is_refused_also_to_one_that_would_share_it() -> None:
    with listen("127.0.0.1", 0) as taken:
        with pytest.raises(CannotListen, match="in use"):
            SharedAddress("127.0.0.1", taken.getsockname()[1])
    shared = SharedAddress("127.0.0.1", 0)
    with shared.open() as one, shared.open() as other:
        assert one.getsockname() == other.getsockname() == ("127.0.0.1", shared.port)
        with pytest.raises(CannotListen, match="in use") as refused:
            SharedAddress("127.0.0.1", shared.port)
        assert refused.value.code == Exit.UNAVAILABLE


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000"}, [2]),
        ({"cpu.max": "max 100000"}, []),
        ({"cpu.max": "nonsense"}, []),
        ({"a/cpu.max": "300000 100000", "cpu.max": "50000 100000"}, [3, 1]),
        ({}, []),
    ],
)
def test_cores_are_those_that_the_control_groups_allow(
    tmp_path: Path, files: dict[str, str], cores: Sequence[int]
) -> None:
    (tmp_path / "a").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    membership = tmp_path / "cgroup"
    membership.write_text("0::/a\n")
    assert list(available_cores.quotas(tmp_path, membership)) == list(cores)
    assert available_cores.available_cores() >= 1


async def test_worker_is_stuck_that_has_said_nothing_for_several_looks() -> None:
    """However long the supervisor was stopped between two of them."""
    process = await asyncio.create_subprocess_exec("true")
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    worker = Worker(1, process, reader, writer)
    with theirs:
        assert not any(worker.is_stuck() for _ in range(2 * SILENT_LOOKS))
        worker.state, worker.unheard_looks = "ready", 0
        assert not any(worker.is_stuck() for _ in range(SILENT_LOOKS))
        assert worker.is_stuck()
    writer.close()
    await process.wait()


def test_worker_that_ends_again_and_again_is_started_more_and_more_rarely() -> None:
    slot = WorkerSlot(1, None)
    assert [slot.pause_after(1.0) for _ in range(9)] == [*PAUSES, PAUSES[-1], PAUSES[-1]]
    assert slot.pause_after(SERVED_SECONDS) == 0.0
    assert slot.pause_after(1.0) == PAUSES[0]


def test_pages_of_all_workers_are_one_that_names_them_and_the_missing() -> None:
    page = "# HELP a_total A.\n# TYPE a_total counter\na_total 1.0\n"
    labelled = '# HELP b B.\n# TYPE b gauge\nb{x="a b, c"} 2.0\n'
    merged = merged_pages({1: page + labelled, 2: page, 3: None})
    samples = [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(merged)
        for sample in family.samples
    ]
    assert samples == [
        ("teal_worker_up", {"worker": "1"}, 1.0),
        ("teal_worker_up", {"worker": "2"}, 1.0),
        ("teal_worker_up", {"worker": "3"}, 0.0),
        ("a_total", {"worker": "1"}, 1.0),
        ("a_total", {"worker": "2"}, 1.0),
        ("b", {"worker": "1", "x": "a b, c"}, 2.0),
    ]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_line_of_a_worker_keeps_its_format_and_names_the_worker(log_format: LogFormat) -> None:
    entry = '{"time": "2026-05-04T09:30:00.000Z", "level": "info"}'
    assert json.loads(named_line(2, entry, log_format)) == {"worker": 2, **json.loads(entry)}


def test_line_that_is_no_entry_becomes_one_in_a_log_of_objects() -> None:
    assert (
        json.loads(named_line(2, "Segmentation fault", "json"))["message"] == "Segmentation fault"
    )
    assert named_line(2, "Segmentation fault", "text") == "[worker 2] Segmentation fault"
