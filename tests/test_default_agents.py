"""A server without configuration: which agents it offers, what it says of them, and the reverse."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from sk_agents.config.agent_file import read_agent_file, read_agent_specs
from sk_agents.config.default_agents import FOLDER, tour_and_assistant
from sk_agents.config.settings import Settings
from sk_agents.engine.commands import StartRun
from sk_agents.engine.models import NewThread, Part, RunStatus, UserInput
from sk_agents.wiring import build_parts, default_offer, open_engines
from tests.forked_python import PYTHON
from tests.patience import seconds

ROOT = Path(__file__).parent.parent


def test_both_files_offer_prompts_for_a_page_to_suggest() -> None:
    for name in ("tour", "assistant"):
        metadata = read_agent_file(FOLDER / name / "config.yaml").document["metadata"]
        assert metadata["description"]
        for skill in metadata["skills"]:
            assert skill["id"] and skill["name"] and skill["description"] and skill["tags"]
            assert all(isinstance(said, str) and said for said in skill["examples"])


def test_assistant_gets_the_model_and_keeps_the_rest_of_its_file() -> None:
    offer = tour_and_assistant({"model": "gpt-x"}, "because")
    assert [file.name for file in offer.files] == ["tour", "assistant"]
    (spec,) = read_agent_specs(offer.files[1]).values()
    assert (spec.model, spec.plugins) == ("gpt-x", ("Clock",))


async def test_assistant_answers_on_the_local_model_without_any_key(tmp_path: Path) -> None:
    offer = tour_and_assistant({"model": "local/smollm2", "plugins": [], "max_tokens": 8}, "")
    settings = Settings(store=f"sqlite://{tmp_path}/teal.sqlite")
    message = UserInput(parts=(Part(content="Say hello."),))
    async with AsyncExitStack() as stack, asyncio.timeout(seconds(100)):
        engine = (await open_engines(stack, build_parts(settings, offer.files))).main
        new = NewThread("ada", agent="assistant")
        accepted = await engine.start(StartRun("t", "ada", "r", message, new=new))
        run = await engine.result(accepted.thread_id, accepted.run_id)
    assert run.status is RunStatus.COMPLETED
    assert run.answer is not None and run.answer.content.strip()


async def test_machine_without_a_model_gets_the_tour_and_is_told_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if is_about_models(name)]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    offer = await default_offer(Settings())
    assert [file.name for file in offer.files] == ["tour"]
    assert offer.remark is not None
    assert "OPENAI_API_KEY" in offer.remark


def is_about_models(variable: str) -> bool:
    others = {"OPENAI_BASE_URL", "OLLAMA_HOST", "HF_TOKEN"}
    return variable in others or variable.endswith("_API_KEY")


def environment(folder: Path, **values: str) -> dict[str, str]:
    """The real one without settings, keys and Ollama, with a home of its own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TA_", "TEAL_", "XDG_")) and not is_about_models(name)
    }
    return {**kept, "HOME": str(folder), "OLLAMA_HOST": "127.0.0.1:1", **values}


def serve_command(*arguments: str) -> list[str]:
    return [PYTHON, "-m", "sk_agents", "serve", *arguments]


@contextmanager
def ready(folder: Path, *arguments: str, **values: str) -> Iterator[str]:
    """The ready line of a running server."""
    with subprocess.Popen(
        serve_command("--port", "0", "--store", "memory:", *arguments),
        cwd=folder,
        env=environment(folder, **values),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().rstrip("\n")
            assert line, process.communicate(timeout=seconds(10))
            yield line
        finally:
            process.kill()


def refused(folder: Path, *arguments: str, **values: str) -> str:
    """Why a server does not start."""
    done = subprocess.run(
        serve_command("--port", "0", "--store", "memory:", *arguments),
        cwd=folder,
        env=environment(folder, **values),
        capture_output=True,
        text=True,
        timeout=seconds(30),
    )
    assert (done.returncode, done.stdout) == (78, "")
    return done.stderr


def write_agent(path: Path, name: str, version: str = "0.1", model: str = "scripted/echo") -> None:
    agent = {"name": "default", "model": model, "system_prompt": "Repeat."}
    document = {
        "apiVersion": "tealagents/v1alpha1",
        "kind": "Agent",
        "name": name,
        "version": version,
        "spec": {"agent": agent},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))


def test_server_without_configuration_says_what_it_serves_on_what_and_why(tmp_path: Path) -> None:
    with ready(tmp_path) as line:
        agents = httpx.get(re.findall(r"http://\S+", line)[0] + "/agents").json()["agents"]
    assert "agents: tour, assistant" in line
    assert "tour scripted/tour.yaml (a script, needs no key)" in line
    assert line.endswith("assistant local/smollm2 (no key is set)")
    assert [agent["name"] for agent in agents] == ["tour", "assistant"]


def test_key_is_picked_up_and_said_but_never_shown(tmp_path: Path) -> None:
    with ready(tmp_path, OPENAI_API_KEY="sk-secret") as line:
        assert line.endswith("assistant gpt-5.4-mini (OPENAI_API_KEY is set)")
        assert "sk-secret" not in line


def test_key_and_model_in_a_dotenv_file_are_picked_up(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("GROQ_API_KEY=k\nTA_MODEL=groq/some-model\n")
    with ready(tmp_path) as line:
        assert line.endswith("assistant groq/some-model (TA_MODEL is set)")


def test_plugin_module_of_other_agents_does_not_disturb_ours(tmp_path: Path) -> None:
    with ready(tmp_path, TA_PLUGIN_MODULE="elsewhere.py") as line:
        assert "agents: tour, assistant" in line


def test_unusable_setting_exits_78_naming_it(tmp_path: Path) -> None:
    assert "TA_MODEL" in refused(tmp_path, TA_MODEL="nobody/knows")


@pytest.mark.parametrize("named_by", ["argument", "setting", "usual file"])
def test_configured_server_offers_no_agents_of_ours(tmp_path: Path, named_by: str) -> None:
    file = tmp_path / "agents" / "config.yaml"
    if named_by != "usual file":
        file = tmp_path / "mine.yaml"
    write_agent(file, "Mine")
    arguments = [str(file)] if named_by == "argument" else []
    values = {"TA_SERVICE_CONFIG": str(file)} if named_by == "setting" else {}
    with ready(tmp_path, *arguments, OPENAI_API_KEY="k", **values) as line:
        assert "agents: Mine · " in line
        assert line.endswith("model: scripted/echo")


def test_files_and_folders_are_served_together_each_with_its_model(tmp_path: Path) -> None:
    write_agent(tmp_path / "one.yaml", "One")
    write_agent(tmp_path / "more" / "two" / "config.yaml", "Two", model="ollama/llama3")
    write_agent(tmp_path / "more" / "three.yaml", "Three")
    with ready(tmp_path, "one.yaml", "more") as line:
        assert "agents: One, Three, Two · " in line
        assert "model: One scripted/echo, Three scripted/echo, Two ollama/llama3" in line


def test_demos_are_served_as_a_folder(tmp_path: Path) -> None:
    with ready(tmp_path, str(ROOT / "demos"), OPENAI_API_KEY="k") as line:
        assert "GettingStarted" in line
        assert "tour" not in line


@pytest.mark.parametrize("name", ["chats", "Health", "docs"])
def test_name_of_the_servers_own_paths_exits_78(tmp_path: Path, name: str) -> None:
    write_agent(tmp_path / "agent.yaml", name)
    assert re.search(rf"agent\.yaml: name '{name}' is reserved", refused(tmp_path, "agent.yaml"))


def test_two_agents_of_one_name_and_version_exit_78_naming_both_files(tmp_path: Path) -> None:
    write_agent(tmp_path / "one.yaml", "Same")
    write_agent(tmp_path / "two.yaml", "Same")
    message = refused(tmp_path, str(tmp_path))
    assert "one.yaml" in message
    assert "two.yaml" in message


def test_versions_of_one_agent_are_served_side_by_side(tmp_path: Path) -> None:
    write_agent(tmp_path / "one.yaml", "Same", "0.1")
    write_agent(tmp_path / "two.yaml", "Same", "0.2")
    with ready(tmp_path, str(tmp_path)) as line:
        assert "agents: Same, Same:0.2 · " in line


def test_wheel_brings_the_agents_along(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=seconds(60),
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    ours = {path for path in FOLDER.rglob("*") if path.suffix in {".yaml", ".py"}}
    assert len(ours) == 5
    assert {str(path.relative_to(ROOT / "src")) for path in ours} <= packed
