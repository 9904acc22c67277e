"""The todo list's own server: its tools, its users, its database."""

import asyncio
import json
import re
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from sk_agents.engine.models import Effect
from sk_agents.exceptions import ConfigurationError, StoreBusy, StoreError, ToolError
from sk_agents.tools.toolbox import AgentToolbox
from tests.forked_python import PYTHON
from tests.patience import seconds
from tests.tools.calls import CONTEXT, result
from tests.tools.mcp_servers.running import running
from todo_server.__main__ import main
from todo_server.sqlite_tasks import SqliteTasks
from todo_server.task_stores import task_store
from todo_server.tasks import Task

DEMO = Path(__file__).parents[2] / "demos" / "todo"
ADA = replace(CONTEXT, user_id="ada")
BOB = replace(CONTEXT, user_id="bob")
NAMES = ["add_task", "list_tasks", "complete_task", "update_task", "delete_task"]


def stdio(url: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": "todo",
        "command": "python",
        "args": ["-m", "todo_server"],
        "trust_level": "trusted",
        "user_id_source": "auth",
        **fields,
        "env": {"TODO_STORE": url, "PYTHONPATH": str(DEMO), **fields.get("env", {})},
    }


@asynccontextmanager
async def http(url: str, token: str | None = None) -> AsyncIterator[str]:
    """The server over HTTP; its URL."""
    process = await asyncio.create_subprocess_exec(
        PYTHON, "-m", "todo_server", "--http", "--port", "0", "--store", url,
        stderr=PIPE, env={"TODO_TOKEN": token} if token else {}, cwd=DEMO,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        async with asyncio.timeout(seconds(20)):
            line = (await process.stderr.readline()).decode()
        found = re.search(r"http://\S+", line)
        assert found is not None, line
        yield found[0]
    finally:
        process.terminate()
        await process.wait()


@pytest.fixture
def file(tmp_path: Path) -> str:
    """For what has nothing to do with the database."""
    return f"sqlite://{tmp_path}/todo.sqlite"


async def kept(url: str, user: str) -> list[Task]:
    """What the server keeps, read past everything else."""
    async with task_store(url) as store:
        return await store.list(user, "all", 9)


async def told(box: AgentToolbox, tool: str, context: Any = ADA, **arguments: Any) -> Any:
    found = await result(box, f"mcp_todo-{tool}", arguments, context)
    return json.loads(found.content)


async def test_task_is_added_listed_changed_completed_and_deleted(tmp_path: Path, url: str) -> None:
    async with running(tmp_path, stdio(url)) as at:
        assert at.names == [f"mcp_todo-{name}" for name in NAMES]
        await told(at.box, "add_task", title="someday")
        milk = await told(at.box, "add_task", title="buy milk", due="2030-01-02", notes="two")
        assert (milk["id"], milk["due"], milk["notes"]) == (2, "2030-01-02", "two")
        listed = await told(at.box, "list_tasks")
        assert [task["title"] for task in listed["tasks"]] == ["buy milk", "someday"]
        changed = await told(at.box, "update_task", task_id=2, title="buy oat milk")
        assert (changed["title"], changed["notes"]) == ("buy oat milk", "two")
        done = await told(at.box, "complete_task", task_id=2)
        assert done == await told(at.box, "complete_task", task_id=2)
        assert [task["id"] for task in (await told(at.box, "list_tasks"))["tasks"]] == [1]
        listed = await told(at.box, "list_tasks", status="done")
        assert [task["id"] for task in listed["tasks"]] == [2]
        await told(at.box, "delete_task", task_id=2)
        with pytest.raises(ToolError, match="There is no task 2"):
            await told(at.box, "delete_task", task_id=2)
        assert (await told(at.box, "add_task", title="new"))["id"] == 3


async def test_only_deleting_claims_to_destroy_and_only_listing_to_read(
    tmp_path: Path, file: str
) -> None:
    async with running(tmp_path, stdio(file)) as at:
        effects = {spec.name[9:]: spec.effect for spec in at.box.specs()}
        asks = [name for name in NAMES if at.box.requires_approval(f"mcp_todo-{name}")]
    assert asks == ["delete_task"]
    assert [name for name in NAMES if effects[name] is Effect.READ_ONLY] == ["list_tasks"]
    assert effects["add_task"] is Effect.AT_MOST_ONCE


async def test_users_see_their_own_tasks_only(tmp_path: Path, url: str) -> None:
    async with running(tmp_path, stdio(url)) as at:
        await told(at.box, "add_task", title="secret")
        assert (await told(at.box, "list_tasks", BOB))["tasks"] == []
        with pytest.raises(ToolError, match="There is no task 1"):
            await told(at.box, "delete_task", BOB, task_id=1)


async def test_call_that_does_not_say_whose_is_refused_unless_the_process_is_one_user_s(
    tmp_path: Path, file: str
) -> None:
    async with running(tmp_path, stdio(file, user_id_source=None)) as at:
        with pytest.raises(ToolError, match="whose todo list"):
            await told(at.box, "list_tasks")
    entry = stdio(file, user_id_source=None, env={"TODO_USER_ID": "ada"})
    async with running(tmp_path, entry) as at:
        await told(at.box, "add_task", BOB, title="x")
    assert len(await kept(file, "ada")) == 1


async def test_over_http_each_call_names_its_user_in_a_header(tmp_path: Path, url: str) -> None:
    async with http(url) as address:
        entry = {"name": "todo", "transport": "http", "url": address, "user_id_header": "X-User-Id"}
        async with running(tmp_path, entry) as at:
            names = ("ada", "bob", "zoë")
            users = [replace(CONTEXT, user_id=name) for name in names]
            await asyncio.gather(
                *(told(at.box, "add_task", user, title=user.user_id) for user in users)
            )
    assert [[task.title for task in await kept(url, n)] for n in names] == [[n] for n in names]


async def test_server_with_a_token_lets_nobody_else_in(tmp_path: Path, file: str) -> None:
    async with http(file, token="sesame") as address:
        entry: dict[str, Any] = {"name": "todo", "transport": "http", "url": address}
        entry["user_id_source"] = "auth"
        async with running(tmp_path, entry) as at:
            assert at.status["status"] == "down"
        entry["headers"] = {"Authorization": "Bearer sesame"}
        async with running(tmp_path, entry) as at:
            assert (await told(at.box, "list_tasks"))["tasks"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--store", "postgresql://me:secret@127.0.0.1:1/x"], "Connection refused"),
        (["--store", "mysql://me:secret@db/x"], "sqlite:///path or postgresql://"),
        (["--http", "--host", "0.0.0.0"], "set TODO_TOKEN"),
    ],
)
def test_configuration_that_cannot_be_used_stops_the_start(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments, {}) == 78
    said = capsys.readouterr().err
    assert message in said and "secret" not in said


async def test_file_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE precious (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="not a todo list"):
        await SqliteTasks(path).__aenter__()
    assert path.read_bytes() == before


async def test_file_that_another_process_keeps_locked_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "todo.sqlite"
    async with SqliteTasks(path, busy_ms=50) as store:
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="nothing was changed"):
            await store.add("ada", "a", "", None)
        other.execute("ROLLBACK")
        other.close()
        assert (await store.add("ada", "a", "", None)).id == 1


async def test_file_that_is_damaged_says_so_in_our_words(file: str) -> None:
    async with task_store(file) as store:
        other = apsw.Connection(file.removeprefix("sqlite://"))
        other.execute("DROP TABLE task")
        other.close()
        with pytest.raises(StoreError, match="cannot be used now"):
            await store.list("ada", "all", 9)


async def test_model_is_told_what_the_database_could_not_do(tmp_path: Path, schema: str) -> None:
    async with running(tmp_path, stdio(schema)) as at:
        await told(at.box, "add_task", title="a")
        with psycopg.connect(schema) as connection:
            connection.execute("ALTER TABLE todo_task RENAME TO elsewhere")
        with pytest.raises(ToolError, match="database refused; nothing was changed"):
            await told(at.box, "add_task", title="b")
        with pytest.raises(ToolError, match="cannot be stored"):
            await told(at.box, "add_task", title="a\0b")
