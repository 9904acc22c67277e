"""`teal login`, `logout` and `whoami`, at an issuer that nobody here wrote and with access keys."""

from __future__ import annotations

import asyncio
import json
import re
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sk_agents.authorization.access_keys import KeysFile
from sk_agents.client import SignInFailed, TealClient, stored_sign_in
from tests.authorization.provider import Provider, running_provider, signed_in
from tests.cli.house import Served, command, environment, run, serving, write_agent
from tests.patience import seconds


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def office(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("office")
    settings = {**provider.settings(), "TA_STORE": "memory:"}
    with serving(folder, str(write_agent(folder)), **settings) as served:
        yield served


def log_in(home: Path, server: str, name: str, way: str) -> None:
    """As a user does who opens the address that the command prints."""
    with subprocess.Popen(
        command("login", server, way),
        cwd=home,
        env=environment(home, DISPLAY="", WAYLAND_DISPLAY=""),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            pattern = re.compile(r"(http://\S+user_code=\S+|http://\S+/auth\?\S+)")
            found = (pattern.search(line) for line in iter(process.stdout.readline, ""))
            address = next(match[1] for match in found if match)
            back = signed_in(address, name)
            if way == "--browser":
                stolen = httpx.get(re.sub(r"state=[^&]*", "state=other", back))
                assert stolen.status_code == 404
                assert "You are signed in" in httpx.get(back).text
            output, errors = process.communicate(timeout=seconds(60))
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert f"You are signed in as {name.capitalize()} ({name})." in output
    assert "eyJ" not in output + errors


def stored(home: Path) -> Path:
    [path] = home.glob(".local/share/teal-agents/sign-ins/*.json")
    return path


def change(path: Path, **changed: Any) -> dict[str, Any]:
    document = {**json.loads(path.read_text()), **changed}
    path.write_text(json.dumps(document))
    return document


def test_sign_in_is_kept_for_its_user_alone_and_used_by_all_commands(
    office: Served, tmp_path: Path
) -> None:
    asked = run(tmp_path, "whoami", "--server", office.url)
    assert (asked.returncode, f"teal login {office.url}" in asked.stderr) == (1, True)
    log_in(tmp_path, office.url, "ada", "--browser")
    path = stored(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    asked = run(tmp_path, "whoami", "--server", f"{office.url}/", "--json")
    me = {"id": "ada", "name": "Ada", "roles": ["user"]}
    assert json.loads(asked.stdout) == {**me, "tenant": office_issuer(path)}
    done = run(tmp_path, "logout", office.url)
    assert (done.returncode, list(path.parent.glob("*.json"))) == (0, [])


def office_issuer(path: Path) -> str:
    endpoint: str = json.loads(path.read_text())["token_endpoint"]
    return endpoint.removesuffix("/token")


def renew_in_two_processes(office: Served, home: Path) -> None:
    path = stored(home)
    before = change(path, expires_at=time.time() - 1)
    processes = [
        subprocess.Popen(
            command("whoami", "--server", office.url),
            cwd=home,
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=seconds(60))[0] for process in processes]
    assert all("Bob (bob)" in output for output in outputs), outputs
    after = json.loads(path.read_text())
    assert after["refresh_token"] != before["refresh_token"]
    assert after["expires_at"] > time.time()


async def test_sign_in_is_renewed_before_its_end_and_after_a_refusal_and_used_up_once(
    office: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(log_in, tmp_path, office.url, "bob", "--device")
    await asyncio.to_thread(renew_in_two_processes, office, tmp_path)
    path = stored(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    async with TealClient(office.url, token=stored_sign_in(office.url), give_up_after=0) as teal:
        first = change(path, expires_at=time.time() + 5)
        assert (await teal.me()).id == "bob"
        second = change(path, access_token="not.a.token")
        assert second["refresh_token"] != first["refresh_token"]
        found = await asyncio.gather(*(teal.me() for _ in range(8)))
        assert {me.id for me in found} == {"bob"}
        # A refresh token that was used before: the issuer takes nothing of this sign-in any more.
        change(path, expires_at=0, refresh_token=first["refresh_token"])
        with pytest.raises(SignInFailed, match="teal login"):
            await teal.me()
    assert not path.exists()


def test_access_key_is_asked_for_checked_and_stored_or_taken_from_the_environment(
    tmp_path: Path,
) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    _, text = keys.add("alice")
    settings = {"TA_AUTHORIZER": "keys", "TA_KEYS_FILE": str(keys.path), "TA_STORE": "memory:"}
    with serving(tmp_path, str(write_agent(tmp_path / "agent")), **settings) as served:
        wrong = run(tmp_path, "login", served.url, stdin="teal_wrong\n")
        assert (wrong.returncode, "unknown, revoked or expired" in wrong.stderr) == (1, True)
        by_variable = run(tmp_path, "whoami", "--server", served.url, TEAL_KEY=text)
        assert by_variable.stdout == "alice\nroles: user\n"
        right = run(tmp_path, "login", served.url, stdin=f"{text}\n")
        assert "You are signed in as alice." in right.stdout
        assert text not in right.stdout + right.stderr
        assert text in stored(tmp_path).read_text()


def test_open_server_needs_no_sign_in_and_a_missing_one_is_69(
    served: Served, tmp_path: Path
) -> None:
    done = run(tmp_path, "login", served.url)
    assert (done.returncode, "lets everyone in" in done.stdout) == (0, True)
    assert run(tmp_path, "login", "http://127.0.0.1:9").returncode == 69
