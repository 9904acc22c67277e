"""Ids and paths that are not what they look like, and keys of repeated requests."""

import string
from collections.abc import Iterator
from urllib.parse import quote
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sk_agents.exceptions import InvalidInput
from sk_agents.http.ids import MAX_KEY_LENGTH, canonical_uuid, chat_id
from tests.http.toy import Wire, inside, post, request, serving, status, toy_app

APP = toy_app()
TASK = "0b6e1f0e-6f0a-4c8e-9d2b-3f1f5a7c9e11"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(APP) as port:
        yield port


@pytest.mark.parametrize("name", ["a", "chat_123", "A-Z_0", "x" * 63, "x" * 64])
def test_chat_id_may_be_plain(name: str) -> None:
    assert chat_id(name) == name


CHAT_IDS = [
    ("I1 parent", "../../etc/passwd"),
    ("I1 encoded", "%2e%2e%2f"),
    ("I1 encoded twice", "%252e%252e%252f"),
    ("I2 absolute", "/etc/passwd"),
    ("I4 full width", "．．／"),
    ("I4 full-width letters", "ｃｈａｔ"),
    ("I4 other digits", "chat_١٢٣"),
    ("I5 newline", "chat\n"),
    ("I9 dot", "."),
    ("I9 dots", ".."),
    ("I9 empty", ""),
    ("I9 65", "x" * 65),
    ("I9 300", "x" * 300),
    ("I9 blank", "a b"),
    ("I16 glob", "*"),
    ("I16 command", "a\r\nFLUSHALL"),
    ("I16 NUL", "a\0"),
    ("quote", "a'b"),
]


@pytest.mark.parametrize(("row", "name"), CHAT_IDS)
def test_chat_id_must_be_plain(row: str, name: str) -> None:
    with pytest.raises(InvalidInput):
        chat_id(name)


@given(st.text())
def test_no_other_chat_id_passes(name: str) -> None:
    allowed = set(string.ascii_letters + string.digits + "_-")
    if 1 <= len(name) <= 64 and set(name) <= allowed:
        assert chat_id(name) == name
    else:
        with pytest.raises(InvalidInput):
            chat_id(name)


@pytest.mark.parametrize(("row", "name"), CHAT_IDS)
def test_odd_chat_id_in_a_path_is_404_or_422_and_nothing_runs(
    port: int, row: str, name: str
) -> None:
    target = f"/chats/{quote(name, safe='')}/interactions"
    with Wire(port) as wire:
        answer = wire.send(post(b'{"content":"x"}', target=target)).until(b"}")
    assert status(answer) in (404, 422)
    assert APP.state.ran == []


@pytest.mark.parametrize("name", ["CON", "NUL", "chat", "CHAT"])
async def test_i9_names_that_some_disks_know_are_plain_ids(name: str) -> None:
    async with inside(toy_app()) as client:
        assert (await client.get(f"/chats/{name}")).json() == {"chat_id": name}


TASK_IDS = [
    ("I6 braces", f"{{{TASK}}}"),
    ("I6 urn", f"urn:uuid:{TASK}"),
    ("I6 no hyphens", TASK.replace("-", "")),
    ("I6 odd hyphens", "0b6e-1f0e6f0a-4c8e-9d2b-3f1f5a7c9e11"),
    ("I6 full-width digit", TASK.replace("0", "０", 1)),
    ("I5 newline", TASK + "\n"),
    ("I6 blank", f" {TASK}"),
    ("I6 short", TASK[:-1]),
    ("I6 long", TASK + "0"),
    ("I9 empty", ""),
    ("I16 glob", "*"),
]


@pytest.mark.parametrize(("row", "name"), TASK_IDS)
def test_uuid_has_one_spelling(row: str, name: str) -> None:
    assert canonical_uuid(TASK) == TASK
    with pytest.raises(InvalidInput):
        canonical_uuid(name)


@pytest.mark.parametrize("number", [0, 2**128 - 1], ids=["I8 nil", "I8 all f"])
async def test_well_formed_uuid_is_looked_up(number: int) -> None:
    async with inside(toy_app()) as client:
        assert (await client.get(f"/tasks/{UUID(int=number)}")).status_code == 404
        assert (await client.get(f"/tasks/{UUID(int=number).hex}")).status_code == 422


@pytest.mark.parametrize(
    ("row", "target"),
    [
        ("H12 trailing slash", "/chats/x/interactions/"),
        ("H12 two slashes", "//chats/x/interactions"),
        ("H12 two slashes inside", "/chats//interactions"),
        ("H12 host in the path", "//evil.example/chats/x/interactions"),
        ("H12 dot", "/chats/./x/interactions"),
        ("H12 dots", "/chats/x/../x/interactions"),
        ("H12 encoded dot", "/chats/%2e/x/interactions"),
        ("H12 encoded dots", "/a/%2e%2e/chats/x/interactions"),
        ("H12 capitals", "/Chats/x/interactions"),
        ("H12 parameter", "/chats/x/interactions;v=1"),
    ],
)
def test_path_has_one_spelling_and_no_redirect(port: int, row: str, target: str) -> None:
    with Wire(port) as wire:
        answer = wire.send(post(b'{"content":"x"}', target=target)).until(b"}")
    assert status(answer) == 404
    assert b"location" not in answer.lower()
    assert APP.state.ran == []


@pytest.mark.parametrize("key", ["k", "~!", "x" * (MAX_KEY_LENGTH - 1), "x" * MAX_KEY_LENGTH])
def test_h16_visible_key_is_read(port: int, key: str) -> None:
    with Wire(port) as wire:
        answer = wire.send(request("GET", "/seen", f"Idempotency-Key: {key}")).until(b"}")
    assert f'"key":"{key}"'.encode() in answer


@pytest.mark.parametrize(
    ("row", "headers"),
    [
        ("H16 empty", ["Idempotency-Key:"]),
        ("H16 L+1", ["Idempotency-Key: " + "x" * (MAX_KEY_LENGTH + 1)]),
        ("H16 300", ["Idempotency-Key: " + "x" * 300]),
        ("H16 not ASCII", ["Idempotency-Key: clé"]),
        ("H16 blank", ["Idempotency-Key: a b"]),
        ("H16 two", ["Idempotency-Key: a", "Idempotency-Key: a"]),
    ],
)
def test_h16_other_keys_are_400(port: int, row: str, headers: list[str]) -> None:
    with Wire(port) as wire:
        answer = wire.send(request("GET", "/seen", *headers)).until(b"}")
    assert status(answer) == 400
    assert b'"malformed_request"' in answer
