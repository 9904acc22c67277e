"""Every README of a demo does what it says, with the files as they are."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import httpx
import pytest
from dotenv import dotenv_values

from tests.demos.readme import Reader, differences, pattern, serve_command, steps
from tests.demos.served import DEMOS, ROOT, environment, git_repository, running, serving
from tests.demos.wikipedia import wikipedia
from tests.requirements import requirement

# Those that need nothing beside their own folder.
ALONE = [
    "01_getting_started",
    "02_input_output",
    "03_plugins",
    "07_task_output",
    "08_multi_modal",
    "09_chat_simple",
    "10_chat_plugins",
    "11_hitl",
]
OURS = sorted(path.name for path in DEMOS.iterdir() if re.match(r"\d\d_|ZZ_", path.name))
FEWEST_REQUESTS = {"01_getting_started": 2, "02_input_output": 3, "09_chat_simple": 3, "11_hitl": 6}


def follow(page: Path, home: Path, folder: Path = ROOT, **values: str) -> int:
    given, arguments = serve_command(page)
    with serving(home, *arguments, folder=folder, **given, **values) as address:
        return Reader(address, folder, environment(home)).follow(page)


@requirement("S001-v1-unchanged", "S001-v2-unchanged")
@pytest.mark.parametrize("demo", ALONE)
def test_readme_of_a_demo_does_what_it_says_without_a_key(tmp_path: Path, demo: str) -> None:
    assert follow(DEMOS / demo / "README.md", tmp_path) >= FEWEST_REQUESTS.get(demo, 1)


def test_wikipedia_demo_searches_reads_and_goes_on(tmp_path: Path) -> None:
    with wikipedia() as address:
        page = DEMOS / "ZZ_wikipedia_demo" / "README.md"
        assert follow(page, tmp_path, WIKIPEDIA_API_URL=address) == 3


def test_remote_plugins_demo_calls_the_service_it_brings(tmp_path: Path) -> None:
    demo = tmp_path / "demos" / "04_remote_plugins"
    shutil.copytree(DEMOS / demo.name, demo)
    service = [sys.executable, str(demo / "service.py"), "--port", "0"]
    with running(service, tmp_path, environment(tmp_path)) as address:
        for name in ("remote-plugin-catalog.yaml", "openapi_places.json"):
            path = demo / "agents" / name
            path.write_text(path.read_text().replace("http://127.0.0.1:9100", address))
        assert follow(demo / "README.md", tmp_path, tmp_path) == 1


@pytest.fixture
def deployment(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The demo's folder, and its settings with another place and port."""
    folder = tmp_path / "05_deployment"
    shutil.copytree(DEMOS / folder.name, folder)
    given = {name: value or "" for name, value in dotenv_values(folder / "teal.env").items()}
    ours = {"TA_HOST": "127.0.0.1", "TA_STORE": f"sqlite://{tmp_path}/teal.sqlite"}
    assert ours.keys() <= given.keys()
    del given["TA_PORT"]
    return folder, {**given, **ours, "TOKENS": "5up3r53cr3t=ada,0th3r=grace"}


def test_deployment_demo_knows_its_callers_and_survives_a_restart(
    tmp_path: Path, deployment: tuple[Path, dict[str, str]]
) -> None:
    folder, values = deployment
    asked = {"items": [{"content_type": "text", "content": "Where does Grace sit?"}]}
    with serving(tmp_path, folder=folder, **values) as address:
        reader = Reader(address, ROOT, environment(tmp_path))
        assert reader.follow(DEMOS / "05_deployment" / "README.md") == 4
    with serving(tmp_path, folder=folder, **values) as address:
        body = {"task_id": reader.known["TASK_ID"], **asked}
        url, other = f"{address}/FrontDesk/0.1", {"Authorization": "Bearer 0th3r"}
        assert httpx.post(url, json=body, headers=other).status_code == 401
        reply = httpx.post(url, json=body, headers={"Authorization": "Bearer 5up3r53cr3t"}).json()
        assert reply["output"] == "Grace: first floor, next to the machine room."
        task = httpx.get(
            f"{url}/tasks/{body['task_id']}", headers={"Authorization": "Bearer 5up3r53cr3t"}
        ).json()
        assert (task["user_id"], len(task["items"])) == ("ada", 6)


def test_agent_out_of_a_git_repository_is_served(tmp_path: Path) -> None:
    script = DEMOS / "06_deployment_github" / "serve.sh"
    values = git_repository(tmp_path)
    with running([str(script), "--port", "0"], tmp_path, values) as address:
        body = {"chat_history": [{"role": "user", "content": "How warm is it in Oslo?"}]}
        reply = httpx.post(f"{address}/WeatherChat/0.1", json=body).json()
    assert json.loads(reply["output_raw"])["temperature"] == -4.0


def test_demos_are_served_side_by_side_without_a_key(tmp_path: Path) -> None:
    folders = [str(DEMOS / name) for name in (*ALONE, "ZZ_wikipedia_demo")]
    with serving(tmp_path, *folders) as address:
        served = {agent["name"] for agent in httpx.get(f"{address}/agents").json()["agents"]}
    assert served >= {"GettingStarted/default", "ChatBot", "WeatherChat", "WikipediaAgent"}


def test_every_demo_has_its_readme_and_its_row() -> None:
    table = (DEMOS / "README.md").read_text(encoding="utf-8")
    assert [name[:2] for name in OURS] == [*(f"{number:02}" for number in range(1, 12)), "ZZ"]
    for name in OURS:
        assert (DEMOS / name / "README.md").is_file()
        assert f"[{name}]({name}/README.md)" in table


@pytest.mark.parametrize(
    ("shown", "actual", "count"),
    [
        ({"a": "…"}, {"a": {"b": 1}}, 0),
        ({"a": 1, "…": "…"}, {"a": 1, "b": 2}, 0),
        ({"a": "x…z"}, {"a": "xyz"}, 0),
        ({"a": 1}, {"a": 1, "b": 2}, 1),
        ({"a": 1, "…": "…"}, {"b": 2}, 1),
        ({"a": 1}, {"a": True}, 1),
        ([1, 2], [1], 1),
        ({"a": "x…z"}, {"a": "xy"}, 1),
        ({"a": None}, {"a": "…"}, 1),
    ],
)
def test_difference_between_a_shown_and_a_real_reply_is_found(
    shown: object, actual: object, count: int
) -> None:
    assert len(list(differences(shown, actual))) == count


def test_shown_text_fits_only_as_a_whole() -> None:
    assert pattern("event: a\n…\nend").fullmatch("event: a\nb\nc\nend")
    assert not pattern("event: a").fullmatch("event: ab")


def test_every_request_in_a_readme_shows_its_reply() -> None:
    for name in OURS:
        page = DEMOS / name / "README.md"
        assert all(step.shown.strip() for step in steps(page)), page
