"""What an operator sees of a server that people have used."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sk_agents.audit.table_watch import TableWatch
from sk_agents.audit.verification import verify
from sk_agents.authorization.access_keys import KeysFile
from sk_agents.authorization.key_authorizer import KeyAuthorizer
from sk_agents.config.settings import Settings
from sk_agents.engine.ports import PortableStore
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.audit.rebuild import wrong_audit
from tests.chats.serving import Served, first, id_of, serving

LOOK: Turn = calls(("Mail-look", {"what": "canary Oslo"}))
SEND: Turn = calls(("Mail-send", {"to": "canary bob"}))
SCRIPT = [LOOK, says("canary looked"), SEND, says("canary sent")]

Entry = Mapping[str, Any]


def bearer(file: KeysFile, name: str, *roles: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {file.add(name, roles=roles)[1]}"}


async def audit(served: Served, headers: Mapping[str, str], **query: str) -> list[Entry]:
    entries: list[Entry] = (await served.get("/audit", headers=headers, params=query))["entries"]
    return list(reversed(entries))


def of(entries: Sequence[Entry], what: str) -> list[Entry]:
    return [entry for entry in entries if entry["what"] == what]


async def look_and_send(served: Served, headers: Mapping[str, str]) -> str:
    """A call that the policy allows and one that a person does; the approval's digest."""
    await served.say("canary", headers=headers)
    asked = first(await served.say_until("approval_required", headers=headers), "approval_required")
    answer = await served.decide(asked, headers=headers)
    assert answer.status_code == 200, answer.text
    await served.follow(asked["interaction_id"], headers=headers)
    digest: str = asked["digest"]
    return digest


async def test_operator_sees_who_did_what_and_no_content(tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    alice, olga = bearer(keys, "alice"), bearer(keys, "olga", "operator")
    authorizer = KeyAuthorizer(Settings(keys_file=keys.path))
    async with serving(tmp_path, SCRIPT, authorizer=authorizer) as served:
        digest = await look_and_send(served, alice)
        entries = await audit(served, olga)
        assert "canary" not in json.dumps(entries)
        assert list(wrong_audit(entries, [])) != []  # no effect of them is in a ledger
        by = {(entry["tool"], entry["what"]): entry for entry in entries if entry["tool"]}
        assert by["Mail-look", "decision"]["by"] == "policy"
        decided = by["Mail-send", "decision"]
        assert (decided["by"], decided["who"], decided["role"]) == ("human", "alice", "requester")
        assert decided["digest"] == by["Mail-send", "start"]["digest"] == digest
        assert by["Mail-send", "end"]["outcome"] == "ok"
        assert all(entry["agent"] == "helper" for entry in by.values())
        assert all(entry["user_id"] == "alice" for entry in by.values())

        added = {
            entry["details"]["after"].split(",")[0] for entry in of(entries, "access_key_changed")
        }
        assert added == {"alice", "olga"}

        for _ in range(3):
            refused = await served.client.get("/chats", headers={"Authorization": "Bearer wrong"})
            assert refused.status_code == 401
        assert (await served.client.get("/chats")).status_code == 401  # not even tried to sign in
        exported = await served.client.get("/chats/c/export", headers=alice)
        made = await served.client.post("/chats/import", json=exported.json(), headers=alice)
        assert made.status_code == 201, made.text
        assert (await served.client.delete("/chats/c", headers=alice)).status_code == 204
        entries = await audit(served, olga)
        [failure] = of(entries, "sign_in_failed")
        assert (failure["subject"], failure["details"]["count"]) == ("127.0.0.1", 3)
        assert [entry["who"] for entry in of(entries, "exporting")] == ["alice"]
        assert [entry["who"] for entry in of(entries, "importing")] == ["alice"]
        [deleted] = of(entries, "deleting")
        assert (deleted["who"], deleted["digest"][:2]) == ("alice", "1:")
        # What was done in the deleted chat stays; what came with the document happened elsewhere.
        starts = of(entries, "start")
        assert [bool(one["details"].get("imported")) for one in starts].count(False) == 2
        assert len(starts) == 4
        assert "canary" not in json.dumps(entries)

        assert (await served.client.get("/audit", headers=alice)).status_code == 403
        assert await audit(served, olga, user="bob") == []
        assert await audit(served, olga, agent="another") == []
        assert await audit(served, olga, since="2999-01-01T00:00:00Z") == []
        naive = await served.client.get(
            "/audit", headers=olga, params={"since": "2026-11-01T00:00:00"}
        )
        assert naive.status_code == 422
        cut = await served.get("/audit", headers=olga, params={"limit": "2"})
        assert (len(cut["entries"]), cut["is_cut"]) == (2, True)
        assert (await served.client.get("/audit/checkpoint", headers=olga)).status_code == 404

        store = served.app.state.parts.stores.main
        assert isinstance(store, PortableStore)
        assert (await verify(store)).findings == []


async def test_changes_of_keys_and_roles_are_noted_once_by_all_who_see_them(tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    olga = bearer(keys, "olga", "operator")
    authorizer = KeyAuthorizer(Settings(keys_file=keys.path))
    roles = '{"operator": {"roles": ["operator"], "users": ["root"]}}'
    async with serving(tmp_path, authorizer=authorizer, roles=roles) as served:
        log = served.app.state.engines.audit
        others = TableWatch(log, {"access_key": authorizer.credentials})
        bearer(keys, "carol", "approver")
        await others.look()
        await others.look()
        keys.revoke("carol")
        await others.look()
        entries = await audit(served, olga)
        changes = [
            (entry["outcome"], list(entry["details"].values())[0].split(",")[0])
            for entry in of(entries, "access_key_changed")
        ]
        assert changes == [("added", "olga"), ("added", "carol"), ("removed", "carol")]
        [role] = of(entries, "role_changed")
        assert role["details"]["after"] == "roles: operator; users: root"
    async with serving(tmp_path, authorizer=authorizer) as served:
        entries = await audit(served, olga)
        assert [entry["outcome"] for entry in of(entries, "role_changed")] == ["added", "removed"]
        assert len(of(entries, "access_key_changed")) == 3


async def test_calls_in_a_store_that_keeps_nothing_are_in_the_servers_log(tmp_path: Path) -> None:
    async with serving(tmp_path, SCRIPT, store="memory:") as served:
        await look_and_send(served, {})
        entries = await audit(served, {})
        whats = [entry["what"] for entry in entries if entry["tool"] == "Mail-send"]
        assert whats == ["intent", "asked", "decision", "start", "end"]
        assert {entry["log"] for entry in entries} == {entries[0]["log"]}
        await served.client.delete("/chats/c")
        assert len(await audit(served, {})) == len(entries) + 1


async def test_rejected_call_has_a_decision_and_an_end_and_no_start(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND, says("well")]) as served:
        asked = first(await served.say_until("approval_required"), "approval_required")
        await served.decide(asked, approved=False)
        frames = await served.follow(asked["interaction_id"])
        entries = await audit(served, {})
        assert id_of(frames) == asked["interaction_id"]
        assert [entry["what"] for entry in entries] == ["intent", "asked", "decision", "end"]
        assert entries[2]["outcome"] == "rejected"
        assert (entries[3]["outcome"], entries[3]["details"]["ran"]) == ("refused", False)
        assert list(wrong_audit(entries, [])) == []


@pytest.mark.parametrize(
    ("choice", "outcome", "starts"),
    [("done", "ok", 1), ("give_up", "error", 1), ("retry", "ok", 2)],
)
async def test_call_whose_outcome_is_unknown_ends_by_what_a_person_says(
    tmp_path: Path, choice: str, outcome: str, starts: int
) -> None:
    slow = calls(("Mail-post", {"to": "ada"}))
    allow = {"rules": [{"tool": "Mail-post", "then": "allow"}]}
    async with serving(tmp_path, [slow, says("Well.")], agent={"approvals": allow}) as served:
        asked = first(await served.say_until("approval_required"), "approval_required")
        assert (await served.decide(asked, choice=choice)).status_code == 200
        await served.follow(asked["interaction_id"])
        entries = await audit(served, {})
    [start] = of(entries, "start")[:1]
    effect = {field: start[field] for field in ("run_id", "call_id")}
    effects = [effect | {"key": one["details"]["idempotency_key"]} for one in of(entries, "start")]
    [end] = of(entries, "end")
    assert len(effects) == starts
    assert (end["outcome"], end["details"]["ran"]) == (outcome, True)
    assert len(of(entries, "unknown")) == 1
    assert list(wrong_audit(entries, effects)) == []
