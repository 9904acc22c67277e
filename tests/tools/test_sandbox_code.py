"""Programs as tools: what the model is told about how they ended."""

import asyncio
import os
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.turns import ToolChunk, ToolResult
from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.tools.builtin.code import CodeTools
from sk_agents.tools.builtin.function_tool import FunctionTool
from sk_agents.tools.builtin.workspace import Workspaces
from sk_agents.tools.sandbox.plans import ProgramLimits
from sk_agents.tools.sandbox.sandbox import Sandbox, candidates, failure
from sk_agents.tools.toolbox import AgentToolbox
from sk_agents.worker_threads import WorkerThreads
from tests.missing import lacks
from tests.patience import seconds
from tests.requirements import requirement
from tests.tools.calls import CONTEXT, call, pieces, result


@pytest.fixture(scope="module")
def has_walls() -> None:
    try:
        Sandbox().check()
    except ConfigurationError as error:
        lacks("sandbox", f"NOT SHOWN HERE: {error}")


pytestmark = pytest.mark.usefixtures("has_walls")


def code(folder: Path, sandbox: Sandbox | None = None, **limits: Any) -> AgentToolbox:
    threads = WorkerThreads()
    made = CodeTools(
        Workspaces(folder / "work", "everyone"),
        replace(ProgramLimits(), **limits),
        sandbox or Sandbox(),
        threads,
    )
    return AgentToolbox(FunctionTool(function, threads) for function in made.functions())


async def python(folder: Path, text: str, **limits: Any) -> str:
    async with asyncio.timeout(seconds(60)):
        return (await result(code(folder, **limits), "Code-run_python", {"code": text})).content


async def stopped(folder: Path, text: str, **limits: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await python(folder, text, **limits)
    return str(caught.value)


async def test_result_is_what_was_printed_and_the_exit_code(tmp_path: Path) -> None:
    assert await python(tmp_path, "print('grüße')") == "grüße\n[exit code 0]"
    assert await python(tmp_path, "print(1, end='')") == "1\n[exit code 0]"
    assert await python(tmp_path, "raise SystemExit(3)") == "[exit code 3]"
    failed = await python(tmp_path, "1/0")
    assert "ZeroDivisionError" in failed and failed.endswith("[exit code 1]")


async def test_shell_script_runs_in_the_workspace(tmp_path: Path) -> None:
    script = "echo a > f; cat f; kill -9 $$"
    found = await result(code(tmp_path), "Code-run_shell", {"script": script})
    assert found.content == "a\n[ended by SIGKILL]"
    assert (tmp_path / "work" / "f").read_text() == "a\n"


async def test_modules_in_the_workspace_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "mine.py").write_text("x = 5")
    assert await python(tmp_path, "import mine; print(mine.x)") == "5\n[exit code 0]"


@pytest.mark.parametrize("text", ["'; rm -rf /; '", "$(touch x)", "`touch x`", "a\nb", "-c"])
async def test_code_is_never_read_by_a_shell(tmp_path: Path, text: str) -> None:
    assert await python(tmp_path, f"print({text!r})") == f"{text}\n[exit code 0]"
    assert list((tmp_path / "work").iterdir()) == []


async def test_limit_that_ended_it_is_told_with_what_was_printed(tmp_path: Path) -> None:
    asleep = "import time; print('up', flush=True); time.sleep(600)"
    assert await stopped(tmp_path, asleep, seconds=1) == (
        "up\n[stopped: it ran longer than 1 seconds]"
    )
    endless = await stopped(tmp_path, "while True: print('x' * 1000)", output_kb=2)
    assert endless.endswith("[stopped: it printed more than 2 KiB]")
    spinning = await stopped(tmp_path, "while True: pass", cpu_seconds=1)
    assert spinning == "[stopped: it used more than 1 CPU seconds]"
    greedy = await python(tmp_path, "bytearray(8 << 30)", memory_mb=256)
    assert "MemoryError" in greedy


async def test_model_may_ask_for_less_time_but_not_for_more(tmp_path: Path) -> None:
    sleep = {"code": "import time; time.sleep(600)"}
    for limit, asked in ((60, 0.5), (0.5, 600)):
        with pytest.raises(ToolError, match=r"longer than 0\.5 seconds"):
            await result(
                code(tmp_path, seconds=limit), "Code-run_python", {**sleep, "seconds": asked}
            )
    with pytest.raises(ToolError, match="more than 0"):
        await result(code(tmp_path), "Code-run_python", {**sleep, "seconds": -1})


@requirement("S004-12.1-code-output")
async def test_output_comes_while_the_program_runs(tmp_path: Path) -> None:
    source = (
        "import os, time\nprint('one', flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.01)\nprint('two')"
    )
    seen = ""
    async with asyncio.timeout(seconds(30)):
        running = code(tmp_path).run(call("Code-run_python", {"code": source}), CONTEXT)
        async with aclosing(running):
            async for piece in running:
                if isinstance(piece, ToolChunk):
                    seen += piece.content
                if seen == "one\n":
                    (tmp_path / "work" / "go").touch()
    assert seen == "one\ntwo\n"
    assert piece == ToolResult("one\ntwo\n[exit code 0]")


async def test_character_cut_between_two_pieces_is_whole(tmp_path: Path) -> None:
    source = "import os, time\nos.write(1, b'\\xc3'); time.sleep(0.2); os.write(1, b'\\xbc\\xff')"
    found = await pieces(code(tmp_path), call("Code-run_python", {"code": source}))
    assert found[-1].content == "ü\ufffd\n[exit code 0]"


async def test_users_cannot_reach_each_others_folders_by_code(tmp_path: Path) -> None:
    threads = WorkerThreads()
    made = CodeTools(Workspaces(tmp_path / "work", "user"), ProgramLimits(), Sandbox(), threads)
    shared = AgentToolbox(FunctionTool(function, threads) for function in made.functions())
    write = "open('a.txt', 'w').write('mine'); import os; print(os.getcwd())"
    said = (await result(shared, "Code-run_python", {"code": write})).content
    theirs = said.splitlines()[0]
    for attempt in (f"open({theirs + '/a.txt'!r})", "__import__('os').listdir('..')"):
        found = await result(
            shared, "Code-run_python", {"code": attempt}, replace(CONTEXT, user_id="bob")
        )
        assert "PermissionError" in found.content or "FileNotFoundError" in found.content


async def test_nothing_private_is_left_behind(tmp_path: Path) -> None:
    text = "import os; print(os.environ['TMPDIR']); open(os.environ['TMPDIR'] + '/x', 'w')"
    private = (await python(tmp_path, text)).splitlines()[0]
    assert os.path.basename(private) not in os.listdir(os.path.dirname(private))


async def test_environment_holds_nothing_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TA_API_KEY", "canary-5150")
    shown = await python(tmp_path, "import os; print(sorted(os.environ))")
    assert "TA_" not in shown and "canary" not in shown


async def test_program_too_many_is_refused_and_never_starts(tmp_path: Path) -> None:
    box = code(tmp_path, Sandbox(running=1, waiting_seconds=0.1))
    sleeping = box.run(
        call("Code-run_python", {"code": "print(1, flush=True); import time; time.sleep(600)"}),
        CONTEXT,
    )
    async with asyncio.timeout(seconds(30)), aclosing(sleeping):
        await anext(sleeping)
        with pytest.raises(ToolError, match="Too many programs"):
            await result(box, "Code-run_python", {"code": "open('ran', 'w')"})
        assert not (tmp_path / "work" / "ran").exists()
    async with asyncio.timeout(seconds(30)):
        assert (await result(box, "Code-run_python", {"code": ""})).content == "[exit code 0]"


@pytest.mark.parametrize("wrapper", ["/bin/true", "/bin/false", "/nonexistent/bwrap"])
def test_walls_that_do_not_hold_are_not_used(wrapper: str) -> None:
    assert failure("bubblewrap", wrapper) is not None


def test_bubblewrap_is_tried_first_where_it_is() -> None:
    assert next(iter(candidates("/usr/bin/bwrap"))) == "bubblewrap"
    assert "bubblewrap" not in candidates("")


async def test_program_cancelled_in_the_moment_it_gets_a_place_never_starts(tmp_path: Path) -> None:
    sandbox = Sandbox(running=1)
    sandbox.check()
    box = code(tmp_path, sandbox)
    await sandbox.slots.acquire()
    made = box.run(call("Code-run_python", {"code": "print(1)"}), CONTEXT)
    async with asyncio.timeout(seconds(30)), aclosing(made):
        waiting = asyncio.ensure_future(anext(made))
        for _ in range(100):
            await asyncio.sleep(0)
        sandbox.slots.release()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert not sandbox.slots.locked()
