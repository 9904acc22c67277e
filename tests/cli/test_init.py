"""`teal init`: what it writes works as it is."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.house import command, environment, run
from tests.patience import seconds

FILES = {"README.md", "config.yaml", "custom_plugins.py", "test_agent.py"}


def test_scaffolded_agent_passes_its_own_test_and_the_doctor(tmp_path: Path) -> None:
    done = run(tmp_path, "init", "letters", "--model", "ollama/llama3.2")
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in (tmp_path / "letters").iterdir()} == FILES
    for hint in ("teal doctor letters", "teal serve letters", "teal chat", "pytest letters"):
        assert hint in done.stdout
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "letters"],
        cwd=tmp_path,
        env=environment(tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        capture_output=True,
        text=True,
        timeout=seconds(100),
    )
    assert "2 passed" in tested.stdout, tested.stdout + tested.stderr
    checked = run(tmp_path, "doctor", "letters", "--offline", "--store", "memory:")
    assert checked.returncode == 0, checked.stdout
    assert "letters on ollama/llama3.2" in checked.stdout


@pytest.mark.parametrize(
    "tool",
    [
        ["ruff", "format", "--check", "--isolated", "--line-length", "100"],
        ["ruff", "check", "--isolated", "--select", "E,F,I,UP,B", "--line-length", "100"],
        ["mypy", "--strict"],
    ],
    ids=" ".join,
)
def test_scaffold_is_well_written(tmp_path: Path, tool: list[str]) -> None:
    run(tmp_path, "init", "letters", "--model", "gpt-5.4-mini")
    files = sorted(map(str, (tmp_path / "letters").glob("*.py")))
    done = subprocess.run(
        [sys.executable, "-m", *tool, *files],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=seconds(100),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "test_agent.py").write_text("mine")
    done = run(tmp_path, "init", "letters", "--model", "gpt-5.4-mini")
    assert (done.returncode, done.stdout) == (1, "")
    assert "letters/test_agent.py: exists already; nothing was written" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["test_agent.py"]
    assert (folder / "test_agent.py").read_text() == "mine"


def test_usual_folder_gets_a_name_that_an_agent_may_have(tmp_path: Path) -> None:
    assert run(tmp_path, "init", TA_MODEL="scripted/echo").returncode == 0
    document = yaml.safe_load((tmp_path / "agents" / "config.yaml").read_text())
    assert document["name"] == "notes"
    assert document["spec"]["agent"]["model"] == "scripted/echo"


@pytest.mark.parametrize("option", [("--name", "chats"), ("--name", "a/b"), ("--model", "x: y")])
def test_name_that_cannot_be_used_is_2(tmp_path: Path, option: tuple[str, str]) -> None:
    done = run(tmp_path, "init", "letters", *option)
    assert done.returncode == 2
    assert not (tmp_path / "letters").exists()


def test_folder_that_is_a_file_is_1(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("")
    done = run(tmp_path, "init", "letters", "--model", "gpt-5.4-mini")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)


def test_first_agent_on_the_local_model_says_that_it_hardly_uses_tools(tmp_path: Path) -> None:
    made = run(tmp_path, "init", "letters", "--model", "local/smollm2")
    assert "was never taught to use tools" in made.stdout
    assert "set OPENAI_API_KEY" in made.stdout
    checked = run(tmp_path, "doctor", "letters", "--offline", "--store", "memory:")
    assert checked.returncode == 0, checked.stdout
    assert "warn tools of letters: local/smollm2 was never taught to use tools" in checked.stdout


def test_start_of_a_server_says_that_the_local_model_hardly_uses_tools(tmp_path: Path) -> None:
    run(tmp_path, "init", "letters", "--model", "local/smollm2")
    serve = command("serve", "letters", "--port", "0", "--store", "memory:")
    with subprocess.Popen(
        serve, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
        finally:
            process.kill()
    assert "letters: local/smollm2 was never taught to use tools" in ready
