"""An `InteractionStore` of the operator's own, named to a server by module and class."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sk_agents.config.settings import Settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.persistence.interactions.user_interactions import copy_id
from sk_agents.testing.scripted_model import calls, says
from sk_agents.wiring import build_stores, prune_store
from tests.chats.serving import id_of, serving
from tests.chats.test_steering import SPAIN, at_work, held
from tests.demos.served import environment
from tests.forked_python import PYTHON
from tests.patience import seconds

# As a user writes it who has read the interface: models of its own, files, plain and async methods.
OWN = """
import json
import os
from pathlib import Path

from pydantic import BaseModel

from sk_agents.persistence.interaction_store import InteractionStore


class Chat(BaseModel):
    id: str
    interactions: list[dict]
    created_at: str


class Files(InteractionStore):
    def __init__(self, app_config):
        self.folder = Path(app_config.get("MY_INTERACTIONS"))

    def _file(self, chat_id, interaction_id):
        return self.folder / chat_id / f"{interaction_id}.json"

    async def save_interaction(self, chat_id, interaction):
        if (self.folder / "away").exists():
            raise ConnectionError("password=secret")
        path = self._file(chat_id, interaction.id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(interaction.model_dump_json())

    def load_interaction(self, chat_id, interaction_id):
        return json.loads(self._file(chat_id, interaction_id).read_text())

    async def load_chat(self, chat_id):
        if (self.folder / "away").exists():
            raise ConnectionError("password=secret")
        found = [json.loads(path.read_text()) for path in (self.folder / chat_id).glob("*.json")]
        if not found:
            raise KeyError(chat_id)
        found.sort(key=lambda one: one["created_at"])
        return Chat(id=chat_id, interactions=found, created_at=found[0]["created_at"])

    async def get_previous_state(self, chat_id, interaction_id):
        chat = await self.load_chat(chat_id)
        before = [one for one in chat.interactions if one["id"] < interaction_id]
        return before[-1]["final_agent_state"] if before else None


class Deleting(Files):
    async def delete_chat(self, chat_id):
        for path in (self.folder / chat_id).glob("*.json"):
            path.unlink()


class Users(Deleting):
    async def save_interaction(self, chat_id, interaction, user_id):
        await super().save_interaction(chat_id, interaction)
        self._file(chat_id, interaction.id).with_suffix(".user").write_text(user_id)


class Forgetful(Files):
    async def save_interaction(self, chat_id, interaction): ...


class InsertOnly(Files):
    async def save_interaction(self, chat_id, interaction):
        if not self._file(chat_id, interaction.id).exists():
            await super().save_interaction(chat_id, interaction)


class OwnState(Files):
    async def get_previous_state(self, chat_id, interaction_id):
        return self.load_interaction(chat_id, interaction_id)["agent_events"]


class Unclear(Files):
    async def load_chat(self, chat_id):
        raise ValueError("no such chat")


class KeepsDeleted(Files):
    async def delete_chat(self, chat_id): ...


class Half(InteractionStore):
    async def save_interaction(self, chat_id, interaction): ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the class keeps what it is given."""
    kept = tmp_path / "interactions"
    kept.mkdir()
    monkeypatch.setenv("MY_INTERACTIONS", str(kept))
    return kept


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    path.chmod(0o600)
    return str(path)


def named(module: str, name: str = "Deleting") -> dict[str, Any]:
    return {"interaction_store_module": module, "interaction_store_class": name}


def kept_in(folder: Path, chat: str = "c") -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in (folder / chat).glob("*.json")}


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(seconds(20)):
        while not is_so():  # noqa: ASYNC110  # what another program writes says nothing here
            await asyncio.sleep(0.01)


async def test_class_gets_each_interaction_at_its_end_with_its_state(
    tmp_path: Path, folder: Path, module: str
) -> None:
    look, write = calls(("Mail-look", {"what": "Oslo"})), calls(("Mail-send", {"to": "ada"}))
    script = [look, says("Cold."), write, says("Sent.")]
    async with serving(tmp_path, script, **named(module)) as served:
        first = id_of(await served.say("How is Oslo?"))
        waiting = id_of(await served.say_until("approval_required", "Write to Ada"))
        await until(lambda: first in kept_in(folder))
        parked = kept_in(folder)
        await served.client.post(f"/chats/c/interactions/{waiting}/cancel")
        await until(lambda: waiting in kept_in(folder))
    kept = kept_in(folder)
    assert parked.keys() == {first}
    assert [event["type"] for event in kept[first]["agent_events"]] == [
        "TOOL_CALL", "TOOL_RESULT", "ANSWER",
    ]  # fmt: skip
    assert kept[first]["final_agent_state"]["messages"][-1]["content"] == "Cold."
    assert (kept[waiting]["status"], kept[waiting]["parent_id"]) == ("CANCELLED", first)


async def test_first_message_that_was_edited_is_restored_as_a_branch_of_its_own(
    tmp_path: Path, folder: Path, module: str
) -> None:
    script = [says("one"), says("two"), says("three"), says("four")]
    async with serving(tmp_path / "a", script, **named(module)) as served:
        first = id_of(await served.say("My name is Eve"))
        body = {"new_user_message": "My name is Ada"}
        url = f"/chats/c/interactions/{first}"
        edited = id_of(await served.read("POST", f"{url}/edit", json=body))
        again = id_of(await served.read("POST", f"{url[: -len(first)]}{edited}/regenerate"))
        await served.say("And yours?")
        before = await served.get("/chats/c?include=superseded")
        await until(lambda: len(kept_in(folder)) == 4)
    async with serving(tmp_path / "b", [says("Teal.")], **named(module)) as served:
        after = await served.get("/chats/c?include=superseded")
        await served.say("Who am I?")
        prompt = served.model.requests[-1]["messages"]
    place = ("id", "parent_id", "edits", "superseded")
    assert [[one[key] for key in place] for one in after["interactions"]] == [
        [one[key] for key in place] for one in before["interactions"]
    ]
    assert {one["edits"] for one in after["interactions"]} == {None, first, edited}
    assert [one["id"] for one in after["interactions"] if not one["superseded"]][0] == again
    assert "Eve" not in str(prompt)


async def test_class_that_is_away_stops_no_turn_and_gets_everything_later(
    tmp_path: Path, folder: Path, module: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, [says("one"), says("two")], **named(module)) as served:
        first = id_of(await served.say("1"))
        await until(lambda: first in kept_in(folder))
        (folder / "away").touch()
        second = id_of(await served.say("2"))
        await until(lambda: "takes nothing" in caplog.text)
        told = await served.get("/health/ready")
        unknown = await served.client.get("/chats/other")
        (folder / "away").unlink()
        await until(lambda: second in kept_in(folder))
    assert told["interaction_store"]["chats_waiting"] == 1
    assert (unknown.status_code, unknown.json()["code"]) == (503, "store_unavailable")
    assert "secret" not in caplog.text + unknown.text


async def test_what_a_killed_server_had_not_handed_over_is_handed_over_by_the_next(
    tmp_path: Path, folder: Path, module: str
) -> None:
    url = f"sqlite:///{tmp_path}/kept.sqlite"
    async with serving(tmp_path, [says("before")], store=url) as served:
        unseen = id_of(await served.say("without the class"))
    async with serving(tmp_path, [says("lost?")], store=url, **named(module)) as served:
        await until(lambda: unseen in kept_in(folder))
        (folder / "away").touch()
        late = id_of(await served.say("while it is away"))
    assert late not in kept_in(folder)
    (folder / "away").unlink()
    async with serving(tmp_path, [], store=url, **named(module)):
        await until(lambda: late in kept_in(folder))


async def test_chat_that_the_store_lost_comes_back_from_the_class_and_goes_on(
    tmp_path: Path, folder: Path, module: str
) -> None:
    script = [says("Cold."), says("Warm."), says("Windy.")]
    async with serving(tmp_path, script, **named(module)) as served:
        oslo = id_of(await served.say("How is Oslo?"))
        rome = id_of(await served.say("And Rome?"))
        edit = {"new_user_message": "And Bergen?"}
        path = f"/chats/c/interactions/{rome}/edit"
        bergen = id_of(await served.read_until("interaction_complete", "POST", path, json=edit))
    assert kept_in(folder).keys() == {oslo, rome, bergen}
    async with serving(tmp_path / "other", [says("As I said.")], **named(module)) as served:
        chat = await served.get("/chats/c")
        await served.say("Sum up")
        prompt = [message["content"] for message in served.model.requests[-1]["messages"]]
        taken = await served.client.post("/chats", json={"chat_id": "c"})
        other = await served.client.get("/chats/unknown")
    assert [one["id"] for one in chat["interactions"]] == [oslo, bergen]
    assert prompt[1:] == ["How is Oslo?", "Cold.", "And Bergen?", "Windy.", "Sum up"]
    assert (taken.status_code, other.status_code) == (409, 404)


async def test_chat_that_the_class_has_is_not_replaced_by_an_import(
    tmp_path: Path, folder: Path, module: str
) -> None:
    async with serving(tmp_path, [says("Cold."), says("Hot.")], **named(module)) as served:
        kept = id_of(await served.say("How is Oslo?"))
        await served.say("And Rome?", chat="d")
        document = await served.get("/chats/d/export")
    async with serving(tmp_path / "other", [], **named(module)) as served:
        taken = await served.client.post("/chats/import?chat_id=c", json=document)
        chat = await served.get("/chats/c")
    assert (taken.status_code, taken.json()["code"]) == (409, "thread_exists")
    assert [one["id"] for one in chat["interactions"]] == [kept]
    assert kept_in(folder).keys() == {kept}


async def test_steered_interaction_comes_back_with_what_was_said_to_it(
    tmp_path: Path, folder: Path, module: str
) -> None:
    turn, gate = held("It is sunny", says("."))
    last = says("In Spain too.")
    async with at_work(tmp_path, turn, last, **named(module)) as (served, frames, seen, path):
        await served.client.post(f"{path}/steer", json=SPAIN)
        gate.set()
        seen += [frame async for frame in frames]
        before = await served.get(path)
    (kept,) = kept_in(folder).values()
    async with serving(tmp_path / "other", [], **named(module)) as served:
        after = await served.get(path)
    assert [one["content"] for one in kept["steering"]] == ["only in Spain"]
    assert after["final_agent_state"] == before["final_agent_state"]
    assert [one["content"] for one in after["steering"]] == ["only in Spain"]


async def test_deleted_chat_is_gone_from_the_class_and_does_not_come_back(
    tmp_path: Path, folder: Path, module: str
) -> None:
    async with serving(tmp_path, [says("one"), says("two")], **named(module)) as served:
        await served.say("1")
        deleted = await served.client.delete("/chats/c")
        gone = await served.client.get("/chats/c")
        again = id_of(await served.say("2"))
    assert (deleted.status_code, gone.status_code) == (204, 404)
    assert kept_in(folder).keys() == {again}


async def test_chat_that_the_class_cannot_delete_is_not_deleted(
    tmp_path: Path, folder: Path, module: str
) -> None:
    async with serving(tmp_path, [says("one")], **named(module, "Files")) as served:
        said = id_of(await served.say("1"))
        refused = await served.client.delete("/chats/c")
        chat = await served.get("/chats/c")
    assert (refused.status_code, refused.json()["code"]) == (409, "not_deletable")
    assert [one["id"] for one in chat["interactions"]] == [said]


async def test_chats_of_other_users_have_ids_of_their_own(
    tmp_path: Path, folder: Path, module: str
) -> None:
    async with serving(tmp_path, [says("one"), says("two")], **named(module, "Users")) as served:
        mine = id_of(await served.say("1"))
        body = {"user_message": "2"}
        path = "/chats/c/interactions?user_id=ada%2F.."
        theirs = id_of(await served.read_until("interaction_complete", "POST", path, json=body))
    place = copy_id("ada/..", "c")
    assert kept_in(folder).keys() == {mine}
    assert kept_in(folder, place).keys() == {theirs}
    assert (folder / place / f"{theirs}.user").read_text() == "ada/.."
    assert "/" not in place


async def test_pruned_chat_is_gone_from_the_class(
    tmp_path: Path, folder: Path, module: str
) -> None:
    settings = Settings.model_validate(
        {"store": f"sqlite:///{tmp_path}/kept.sqlite", **named(module)}
    )
    async with serving(tmp_path, [says("one")], store=settings.store, **named(module)) as served:
        said = id_of(await served.say("1"))
        await until(lambda: said in kept_in(folder))
    done = await prune_store(settings, {"completed": 0.0}, lambda seen, removed: None)
    assert done.removed.total() == 1
    assert kept_in(folder) == {}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Forgetful", "does not return an interaction as it was saved last"),
        ("InsertOnly", "does not return an interaction as it was saved last"),
        ("OwnState", "get_previous_state of a chat's first interaction must return None"),
        ("Unclear", "load_chat failed with ValueError"),
        ("KeepsDeleted", "delete_chat does not delete a chat"),
        ("Half", "abstract"),
        ("Absent", "has no class 'Absent'"),
    ],
)
def test_class_that_cannot_be_used_stops_the_start_with_78(
    tmp_path: Path, folder: Path, module: str, name: str, reason: str
) -> None:
    known = environment(
        tmp_path,
        TA_STORE="memory:",
        MY_INTERACTIONS=str(folder),
        TA_INTERACTION_STORE_MODULE=module,
        TA_INTERACTION_STORE_CLASS=name,
    )
    command = [PYTHON, "-m", "sk_agents", "serve", "--port", "0"]
    done = subprocess.run(
        command, env=known, cwd=tmp_path, capture_output=True, text=True, timeout=seconds(60)
    )
    assert (done.returncode, reason in done.stderr) == (78, True), done.stderr


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"retention": "completed=1d"}, "has no method delete_chat"),
        ({"encryption_keys": os.urandom(32).hex()}, "plain text"),
    ],
)
def test_settings_that_ask_for_more_than_the_class_can_do_stop_the_start(
    folder: Path, module: str, more: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        build_stores(Settings.model_validate({**named(module, "Files"), **more}))
