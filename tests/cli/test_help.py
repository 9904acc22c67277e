"""What every command says about itself, and how little that takes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.house import environment, run
from tests.patience import seconds

COMMANDS = [
    ["serve"],
    ["chat"],
    ["chats"],
    ["chats", "list"],
    ["chats", "search"],
    ["chats", "show"],
    ["chats", "rename"],
    ["chats", "tag"],
    ["chats", "delete"],
    ["approvals"],
    ["approvals", "list"],
    ["approvals", "watch"],
    ["approvals", "show"],
    ["approvals", "approve"],
    ["approvals", "reject"],
    ["grants"],
    ["grants", "list"],
    ["grants", "revoke"],
    ["login"],
    ["logout"],
    ["whoami"],
    ["keys"],
    ["keys", "add"],
    ["keys", "list"],
    ["keys", "revoke"],
    ["mcp"],
    ["mcp", "agree"],
    ["mcp", "withheld"],
    ["agents"],
    ["agents", "list"],
    ["logs"],
    ["top"],
    ["audit"],
    ["audit", "checkpoint"],
    ["audit", "export"],
    ["audit", "key"],
    ["audit", "verify"],
    ["feedback"],
    ["feedback", "export"],
    ["feedback", "give"],
    ["usage"],
    ["budgets"],
    ["sessions"],
    ["migrate-check"],
    ["export"],
    ["import"],
    ["export-test"],
    ["migrate"],
    ["migrate-store"],
    ["prune"],
    ["encrypt"],
    ["rekey"],
    ["encryption-key"],
    ["init"],
    ["doctor"],
]
# What a server or a client needs, and a help text does not.
HEAVY = ["aiohttp", "fastapi", "pydantic", "rich.console", "uvicorn", "yaml"]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_examples_and_exit_codes(tmp_path: Path, command: list[str]) -> None:
    done = run(tmp_path, *command, "--help", COLUMNS="200")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"  teal {' '.join(command)}" in done.stdout
    assert "Exit codes: 0 " in done.stdout


def test_list_of_commands_is_not_cut_short_in_a_narrow_terminal(tmp_path: Path) -> None:
    for command in ((), ("audit",)):
        told = run(tmp_path, *command, "-h", COLUMNS="80").stdout.partition("Commands:\n")[2]
        assert told and "..." not in told


def test_every_command_is_in_the_list_above(tmp_path: Path) -> None:
    listed = run(tmp_path, "--help").stdout.partition("Commands:\n")[2]
    # What continues a line is indented further.
    names = {line.split()[0] for line in listed.splitlines() if not line.startswith("   ")}
    assert names == {command[0] for command in COMMANDS}


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, sk_agents.cli\n"
        "sys.argv = ['teal', '--help']\n"
        "try:\n    sk_agents.cli.main()\nexcept SystemExit:\n    pass\n"
        f"loaded = [name for name in {HEAVY} if name in sys.modules]\n"
        "assert loaded == [], loaded\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=seconds(60),
    )
    assert done.returncode == 0, done.stderr


def test_default_address_without_a_server_says_how_to_start_one(tmp_path: Path) -> None:
    """Only the text: something may well run at the default address of this machine."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from sk_agents.cli.options import DEFAULT_SERVER\n"
            "from sk_agents.cli.server_connection import print_error\n"
            "from sk_agents.client import ServerUnreachable\n"
            "raise SystemExit(print_error(ServerUnreachable('It is away.'), DEFAULT_SERVER))",
        ],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=seconds(60),
    )
    assert done.returncode == 69
    assert "\n  teal serve\n" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_offered(tmp_path: Path, shell: str) -> None:
    done = run(tmp_path, _TEAL_COMPLETE=f"source_{shell}")
    assert done.returncode == 0
    assert "_TEAL_COMPLETE" in done.stdout


def test_command_names_are_completed(tmp_path: Path) -> None:
    words = {"COMP_WORDS": "teal app", "COMP_CWORD": "1"}
    done = run(tmp_path, _TEAL_COMPLETE="complete_bash", **words)
    assert done.stdout.split() == ["approvals"]
