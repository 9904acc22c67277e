"""What runs, what waits and what has happened: `teal top`, `approvals watch`, `logs`."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from sk_agents.cli.attachments import missing_files, read_items
from sk_agents.cli.markdown import end_of_blocks
from tests.cli.house import Served, command, environment
from tests.cli.terminal import Terminal
from tests.patience import seconds


def at_terminal(served: Served, *arguments: str) -> Terminal:
    given = environment(served.folder, TA_SERVER=served.url, TERM="xterm")
    return Terminal(["sk_agents", *arguments], served.folder, given)


def test_log_of_a_run_has_every_event_with_its_time(served: Served) -> None:
    run = json.loads(served.answer("chat", "logged", "-m", "look around", "--json"))
    shown = served.answer("logs", run["interaction_id"])
    lines = [line.split() for line in shown.splitlines() if " s  " in line]
    kinds = [words[-1] for words in lines]
    assert kinds == [
        *("run_started", "thinking", "tool_proposed", "tool_started", "tool_finished"),
        *("answered", "run_ended"),
    ]
    assert "in chat logged, begun 20" in shown
    assert "result: about Oslo: \\x1b[2J" in shown
    document = json.loads(served.answer("logs", run["interaction_id"], "--json"))
    assert document["chat_id"] == "logged"
    assert [event["type"] for event in document["events"]] == kinds
    assert document["usage"]["total_tokens"] > 0


def test_log_of_a_failed_run_names_its_error_and_where_the_server_s_log_has_it(
    served: Served,
) -> None:
    failed = json.loads(served.run("chat", "-m", "fail", "--json").stdout)
    shown = served.answer("logs", failed["interaction_id"])
    assert "✗ llm_refused:" in shown
    assert f"in the server's log: {failed['error']['correlation_id']}" in shown


def test_top_shows_what_waits_and_what_was_used(served: Served) -> None:
    served.run("chat", "top-waits", "-m", "send it")
    shown = served.answer("top")
    assert "waiting_approval" in shown.splitlines()[0]
    assert "tokens" in shown.splitlines()[0]
    row = next(line for line in shown.splitlines() if "\ttop-waits\t" in line)
    assert row.split("\t")[0] == "WAITING_APPROVAL"
    assert row.split("\t")[-1] == "Mail-send"
    document = json.loads(served.answer("top", "--json"))
    assert {"chats", "approvals", "today"} <= document.keys()
    with at_terminal(served, "top") as terminal:
        terminal.read_until("waiting_approval", "Ctrl-C ends.", "top-waits")
        terminal.press("\x03")
        assert terminal.exit_code() == 130


def test_watched_call_is_decided_where_it_is_shown(served: Served) -> None:
    served.run("chat", "watched", "-m", "send it")
    with at_terminal(served, "approvals", "watch", "--every", "0.5") as terminal:
        terminal.read_until("Waiting for calls that need you.")
        while "in chat watched " not in terminal.read_until("[l]ater: "):
            terminal.type("l")
        terminal.type("y")
        terminal.read_until("(approved)")
        terminal.press("\x03")


def test_watch_prints_a_line_of_json_for_each_call_that_comes_and_goes(served: Served) -> None:
    with subprocess.Popen(
        command("approvals", "watch", "--json", "--every", "0.5"),
        cwd=served.folder,
        env=environment(served.folder, TA_SERVER=served.url),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        served.run("chat", "json-watched", "-m", "send it")
        for line in process.stdout:
            seen = json.loads(line)
            if seen["event"] == "waiting" and seen["chat_id"] == "json-watched":
                served.answer("approvals", "reject", seen["approval_id"])
            elif seen["event"] == "gone":
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(seconds(30)) == 0


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("a\n\n", 0),  # what follows may belong to it
        ("a\n\nb", 3),
        ("- a\n\n  b", 0),
        ("```\n\nb\n\nc", 0),
        ("```\n\nb\n```\n\nc", 12),
        ("~~~~\n~~~\n\nb", 0),
    ],
)
def test_block_ends_where_nothing_can_change_it(text: str, end: int) -> None:
    assert end_of_blocks(text) == end


def test_words_after_an_at_sign_are_files_only_if_there_is_one(tmp_path: Path) -> None:
    picture = tmp_path / "dot.gif"
    picture.write_bytes(b"GIF89a\x01\x00\x01\x00")
    (item,) = read_items([picture])
    assert item["content"].startswith("data:image/gif;base64,")
    assert missing_files(f"@ada, see @{picture}. And @notes.txt, ok@example.org") == ["notes.txt,"]
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_items([tmp_path / "none"])
