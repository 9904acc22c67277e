"""The commands for scripts: pipes, JSON, exit codes."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sk_agents.client import SyncTeal
from tests.cli.house import Served, command, environment, run, serving, write_agent
from tests.patience import seconds


def reply(served: Served, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = served.run("chat", *arguments, "--json")
    return done.returncode, json.loads(done.stdout)


def waiting_approval(served: Served, chat: str, message: str = "send it") -> str:
    code, document = reply(served, chat, "-m", message)
    assert (code, document["status"]) == (3, "WAITING_APPROVAL")
    approval: str = document["approvals"][0]["approval_id"]
    return approval


def end_of(served: Served, chat: str) -> dict[str, Any]:
    """The chat's last interaction, once it is over."""
    with served.terminal(chat) as terminal:
        terminal.read_until("you> ")
    shown = json.loads(served.answer("chats", "show", chat, "--json"))
    last: dict[str, Any] = shown["interactions"][-1]
    return last


def test_message_prints_the_answer_alone(served: Served) -> None:
    assert served.answer("chat", "-m", "hello") == "You said hello.\n"


def test_message_is_read_from_standard_input(served: Served) -> None:
    assert served.answer("chat", "-m", "-", stdin="from a pipe") == "You said from a pipe.\n"


def test_answer_comes_as_one_document(served: Served) -> None:
    code, document = reply(served, "as-document", "-m", "look around")
    assert (code, document["status"], document["chat_id"]) == (0, "COMPLETED", "as-document")
    assert document["text"].startswith("Found: about Oslo: \x1b[2J")
    assert document["tool_calls"][0]["tool_name"] == "Mail-look"
    assert document["usage"]["prompt_tokens"] > 0


def test_events_come_as_lines_of_json(served: Served) -> None:
    lines = served.answer("chat", "-m", "look around", "--events").splitlines()
    events = [json.loads(line) for line in lines]
    stored = [event["event"] for event in events if "seq" in event]
    assert stored == ["Started", "Thinking", "ToolCall", "ToolResult", "Answer", "Complete"]


def test_second_message_goes_on_with_the_chat(served: Served) -> None:
    served.answer("chat", "twice", "-m", "one")
    served.answer("chat", "twice", "-m", "two")
    shown = served.answer("chats", "show", "twice")
    assert shown.index("You said one.") < shown.index("You said two.")


def test_failed_answer_is_1_and_says_why(served: Served) -> None:
    done = served.run("chat", "-m", "fail")
    assert done.returncode == 1
    assert "llm_refused" in done.stderr


def test_call_that_asks_is_3_and_says_how_to_decide(served: Served) -> None:
    done = served.run("chat", "asking", "-m", "send it")
    assert (done.returncode, done.stdout) == (3, "")
    assert "teal approvals approve approval_" in done.stderr
    assert "teal chat asking" in done.stderr


def test_yes_approves_and_no_approvals_rejects(served: Served) -> None:
    assert "sent '\\x1b[31mhi' to ada" in served.answer("chat", "-m", "send it", "--yes")
    refused = served.answer("chat", "-m", "send two", "--no-approvals")
    assert refused.count("No user is present to approve this") == 2


def test_yes_does_not_guess_what_became_of_a_call(tmp_path: Path) -> None:
    config = write_agent(tmp_path)
    with serving(tmp_path, str(config), "--store", "memory:") as served:
        code, document = reply(served, "-m", "post it", "--yes")
        assert (code, document["approvals"][0]["kind"]) == (3, "outcome_unknown")
        approval = document["approvals"][0]["approval_id"]
        refused = served.run("approvals", "approve", approval)
        assert (refused.returncode, "choice" in refused.stderr) == (1, True)
        served.answer("approvals", "approve", approval, "--choice", "retry")
        ended = end_of(served, document["chat_id"])
        assert ended["agent_events"][-1]["content"] == "Posted: posted to ada"


def test_interrupt_cancels_the_run_and_is_130(served: Served) -> None:
    with subprocess.Popen(
        command("chat", "interrupted", "-m", "epic", "--events"),
        cwd=served.folder,
        env=environment(served.folder, TA_SERVER=served.url),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "AnswerDelta" in line:
                process.send_signal(signal.SIGINT)
                break
        process.communicate(timeout=seconds(60))
        assert process.returncode == 130
    assert end_of(served, "interrupted")["status"] == "CANCELLED"


@pytest.mark.parametrize(
    "arguments",
    [
        ["chat", "-m", "hi", "--yes", "--no-approvals"],
        ["chat", "-m", "hi", "--json", "--events"],
        ["chat", "--json"],
        ["chat"],
        ["chat", "not/an/id", "-m", "hi"],
        ["chat", "-m", "hi", "--server", "ftp://example.invalid"],
        ["chats", "delete", "some"],
        ["approvals", "approve", "approval_1", "--edit", "{"],
        ["approvals", "approve", "approval_1", "--edit", "[]"],
        ["approvals", "approve", "approval_1", "--choice", "perhaps"],
        ["chats"],
        ["no-such-command"],
    ],
)
def test_bad_usage_is_2(served: Served, arguments: list[str]) -> None:
    done = served.run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["chat", "-m", "hi"], ["chats", "list"], ["agents", "list"]])
def test_absent_server_is_69(tmp_path: Path, arguments: list[str]) -> None:
    done = run(tmp_path, *arguments, "--server", "http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (69, "")
    assert "No server answers at http://127.0.0.1:1" in done.stderr
    # The library's own words name "ssl" where there is none.
    assert "127.0.0.1 port 1: Connection refused" in done.stderr
    assert "ssl" not in done.stderr


def test_host_that_does_not_exist_and_address_without_scheme_are_told_in_words(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, "chats", "list", "--server", "http://no-such-host.invalid")
    assert done.returncode == 69
    assert "there is no host named no-such-host.invalid" in done.stderr
    done = run(tmp_path, "chats", "list", "--server", "localhost:8000")
    assert done.returncode == 2
    assert "one is like http://127.0.0.1:8000" in done.stderr


def test_empty_message_is_bad_usage(served: Served) -> None:
    done = served.run("chat", "-m", "  ")
    assert (done.returncode, done.stderr) == (2, "teal: the message is empty\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file or directory"),
        ("not JSON", "it is not JSON: "),
        ("[]", "it is not a JSON object"),
        ('{"name": "another"}', "`teal export` did not write it"),
    ],
)
def test_file_that_is_no_chat_is_told_in_one_line(
    served: Served, tmp_path: Path, text: str | None, reason: str
) -> None:
    file = tmp_path / "chat.json"
    if text is not None:
        file.write_text(text)
    done = served.run("import", str(file))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"{file} cannot be used: {reason}" in done.stderr
    assert "Errno" not in done.stderr


def test_unknown_agent_is_refused_in_a_line(served: Served) -> None:
    done = served.run("chat", "-m", "hi", "--agent", "nobody")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no agent of this name" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["chats", "show", "chat_of_nobody"], "`teal chats list`"),
        (["logs", f"int_{'0' * 32}"], "`teal chats show CHAT --json`"),
        (["approvals", "approve", "approval_1f"], "`teal approvals list`"),
    ],
)
def test_unknown_id_is_refused_with_the_command_that_names_known_ones(
    served: Served, arguments: list[str], hint: str
) -> None:
    done = served.run(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert hint in done.stderr


def test_chats_are_listed_searched_shown_renamed_and_deleted(served: Served) -> None:
    served.answer("chat", "kept", "-m", "a word like zyzzyva")
    found = json.loads(served.answer("chats", "search", "zyzzyva", "--json"))
    assert [chat["id"] for chat in found] == ["kept"]
    served.answer("chats", "rename", "kept", "Rare words")
    # By now others may have made more chats than one answer holds, which it says.
    listed = served.run("chats", "list")
    assert listed.returncode == 0
    assert "kept\tRare words\thelper\tCOMPLETED\t" in listed.stdout
    cut = served.run("chats", "list", "--limit", "1", "--json")
    assert (cut.returncode, len(json.loads(cut.stdout))) == (0, 1)
    shown = served.answer("chats", "show", "kept")
    assert "> a word like zyzzyva" in shown
    assert "You said a word like zyzzyva." in shown
    served.answer("chats", "tag", "kept", "Words", "rare")
    assert served.answer("chats", "tag", "kept", "--remove", "rare") == "words\n"
    found = served.answer("chats", "list", "--tag", "words")
    assert found.splitlines()[-1].split("\t")[0::5] == ["kept", "words"]
    assert json.loads(served.answer("chats", "list", "--tag", "rare", "--json")) == []
    refused = served.run("chats", "tag", "kept", "a,b")
    assert (refused.returncode, "no comma" in refused.stderr) == (1, True)
    served.answer("chats", "delete", "kept", "--yes")
    gone = served.run("chats", "show", "kept")
    assert (gone.returncode, "404" in gone.stderr) == (1, True)


def test_what_the_agent_was_told_is_shown_where_it_was_said(served: Served) -> None:
    approval = waiting_approval(served, "told")
    with SyncTeal(served.url) as teal:
        (asked,) = [one for one in teal.approvals() if one.approval_id == approval]
        teal.chat("told").steer(asked.interaction_id, "and be brief")
    assert "> and be brief\n(not delivered)\n" in served.answer("chats", "show", "told")
    served.answer("approvals", "approve", approval)
    end_of(served, "told")
    shown = served.answer("chats", "show", "told")
    order = [
        shown.index(text) for text in ("> send it", "> and be brief", "→ Mail-send", "You said")
    ]
    assert order == sorted(order)
    assert "not delivered" not in shown


def test_answer_is_rated_shown_and_exported(served: Served, tmp_path: Path) -> None:
    said = json.loads(served.answer("chat", "rated", "-m", "what year is it", "--json"))
    note = "=wrong year"
    served.answer("feedback", "give", said["interaction_id"], "down", "--note", note)
    assert "rated down: =wrong year" in served.answer("chats", "show", "rated")
    lines = served.answer("feedback", "export", "--since", "1h", "--agent", "helper").splitlines()
    [row] = [row for row in map(json.loads, lines) if row["chat_id"] == "rated"]
    assert (row["rating"], row["note"]) == ("down", note)
    assert row["interaction_id"] == said["interaction_id"]
    assert "what year is it" not in "".join(lines)
    target = tmp_path / "feedback.csv"
    served.answer("feedback", "export", "--format", "csv", "-o", str(target))
    assert "'=wrong year" in target.read_text()
    again = served.run("feedback", "export", "--format", "csv", "-o", str(target))
    assert (again.returncode, "File exists" in again.stderr) == (1, True)
    served.answer("feedback", "give", said["interaction_id"], "none")
    assert "rated" not in served.answer("chats", "show", "rated").splitlines()[-1]


def test_shown_chat_tells_calls_and_what_waits(served: Served) -> None:
    served.answer("chat", "shown", "-m", "look around")
    served.run("chat", "shown", "-m", "send it")
    shown = served.answer("chats", "show", "shown")
    order = ["> look around", "→ Mail-look", "← Mail-look", "Found:", "> send it", "wants to run"]
    places = [shown.index(text) for text in order]
    assert places == sorted(places)
    assert "\x1b" not in shown


def test_approval_is_shown_and_approved_with_other_arguments(served: Served) -> None:
    approval = waiting_approval(served, "by-id")
    assert approval in served.answer("approvals", "list")
    inbox = json.loads(served.answer("approvals", "list", "--json"))
    assert approval in {entry["approval_id"] for entry in inbox}
    assert "⚠ Mail-send wants to run" in served.answer("approvals", "show", approval)
    wrong = served.run("approvals", "approve", approval, "--edit", '{"nobody": 1}')
    assert (wrong.returncode, "422" in wrong.stderr) == (1, True)
    decided = served.answer("approvals", "approve", approval, "--edit", '{"to": "bob"}', "--json")
    assert json.loads(decided)["approved"] is True
    assert "to bob" in end_of(served, "by-id")["agent_events"][-1]["content"]
    again = served.run("approvals", "approve", approval)
    assert (again.returncode, "approval_already_processed" in again.stderr) == (1, True)


def test_approval_is_rejected_with_a_reason(served: Served) -> None:
    approval = waiting_approval(served, "refused")
    said = served.answer("approvals", "reject", approval, "--reason", "not today")
    assert said.startswith("rejected: Mail-send")
    assert "not today" in end_of(served, "refused")["agent_events"][-1]["content"]


def test_standing_approval_is_listed_and_revoked(served: Served) -> None:
    approval = waiting_approval(served, "granted")
    served.answer("approvals", "approve", approval, "--remember", "thread")
    end_of(served, "granted")
    assert "sent" in served.answer("chat", "granted", "-m", "send more")
    grants = json.loads(served.answer("grants", "list", "--json"))
    (grant,) = [grant for grant in grants if grant["chat_id"] == "granted"]
    assert (grant["tool"], grant["scope"]) == ("Mail-send", "thread")
    assert grant["grant_id"] in served.answer("grants", "list")
    served.answer("grants", "revoke", grant["grant_id"])
    waiting_approval(served, "granted")


def test_usage_is_a_line_a_day_agent_and_model(served: Served) -> None:
    served.answer("chat", "-m", "hello")
    (line,) = served.answer("usage").splitlines()
    cells = line.split("\t")
    assert int(cells[3]) > 0
    assert int(cells[4]) > 0
    (row,) = json.loads(served.answer("usage", "--json", "--since", cells[0]))["rows"]
    assert (row["day"], row["agent"], row["model"]) == tuple(cells[:3])
    assert served.run("usage", "--since", "yesterday").returncode == 2


def test_sessions_are_lines_of_users_and_of_threads(served: Served) -> None:
    served.answer("chat", "-m", "hello", "--user", "watched")
    users, _, threads = served.answer("sessions", "--of", "watched").partition("\n\n")
    assert users.split("\t")[:5] == ["watched", "0", "0", "1", "0"]
    assert threads.split("\t")[:4] == ["completed", "watched", "helper", "chats"]
    document = json.loads(served.answer("sessions", "--since", "1d", "--json"))
    assert "watched" in [user["user_id"] for user in document["users"]]
    assert served.run("sessions", "--since", "yesterday").returncode == 2
    assert "nobody is at work" in served.answer("sessions", "--of", "a stranger")


def test_budgets_say_that_there_are_none(served: Served) -> None:
    assert json.loads(served.answer("budgets", "--all", "--json"))["rows"] == []
    assert served.answer("budgets") == "(no budget is set)\n"


def test_agents_are_listed(served: Served) -> None:
    assert served.answer("agents", "list").startswith("helper\tscripted/talk.yaml\tMail-look, ")
    (agent,) = json.loads(served.answer("agents", "list", "--json"))
    assert (agent["name"], agent["description"]) == ("helper", "Helps with mail.")


def test_exported_chat_is_imported_under_another_id(served: Served, tmp_path: Path) -> None:
    served.answer("chat", "original", "-m", "wide")
    file = tmp_path / "chat.json"
    assert served.answer("export", "original", "-o", str(file)) == ""
    assert served.answer("import", str(file), "--chat-id", "copy") == "copy\n"
    piped = served.answer("export", "original")
    made = json.loads(served.answer("import", "-", "--json", stdin=piped))
    for chat in ("copy", made["id"]):
        assert "日本語のテキスト" in served.answer("chats", "show", chat)
    taken = served.run("import", str(file), "--chat-id", "copy")
    assert (taken.returncode, "409" in taken.stderr) == (1, True)


def test_export_under_a_passphrase_is_imported_with_it_alone(
    served: Served, tmp_path: Path
) -> None:
    served.answer("chat", "private", "-m", "wide")
    file, secret, wrong = (tmp_path / name for name in ("chat.json", "secret", "wrong"))
    secret.write_text("correct horse\n")
    wrong.write_text("battery staple\n")
    served.answer("export", "private", "-o", str(file), "--passphrase-file", str(secret))
    assert "You said" not in file.read_text()
    refused = served.run("import", str(file), "--passphrase-file", str(wrong))
    assert (refused.returncode, "passphrase" in refused.stderr) == (1, True)
    command = ("import", str(file), "--chat-id", "opened", "--passphrase-file", str(secret))
    assert served.answer(*command) == "opened\n"
    assert "日本語のテキスト" in served.answer("chats", "show", "opened")


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_file_that_is_no_chat_is_1(served: Served, tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "chat.json"
    if text is not None:
        file.write_text(text)
    done = served.run("import", str(file))
    assert (done.returncode, "cannot be used" in done.stderr) == (1, True)


def test_export_to_a_folder_that_is_not_there_is_1(served: Served, tmp_path: Path) -> None:
    served.answer("chat", "unwritable", "-m", "hello")
    done = served.run("export", "unwritable", "-o", str(tmp_path / "no" / "chat.json"))
    assert (done.returncode, "cannot be used" in done.stderr) == (1, True)


def test_users_of_a_development_server_have_chats_of_their_own(served: Served) -> None:
    served.answer("chat", "mine", "-m", "hello", "--user", "ada")
    mine = json.loads(served.answer("chats", "list", "--json", "--user", "ada"))
    assert [chat["id"] for chat in mine] == ["mine"]
    assert json.loads(served.answer("chats", "list", "--json", "--user", "grace")) == []


def test_token_opens_the_server_and_is_never_shown(tmp_path: Path) -> None:
    config = write_agent(tmp_path)
    authorizer = {
        "TA_AUTHORIZER_MODULE": "sk_agents.testing.header_authorizer",
        "TA_AUTHORIZER_CLASS": "HeaderAuthorizer",
    }
    with serving(tmp_path, str(config), "--store", "memory:", **authorizer) as served:
        assert served.run("chats", "list").returncode == 1
        assert "You said" in served.answer("chat", "-m", "hello", TA_TOKEN="s3cr3t-ada")
        bad = served.run("chats", "show", "none", TA_TOKEN="s3cr3t-ada")
        assert bad.returncode == 1
        assert "s3cr3t" not in bad.stderr + served.answer("chat", "--help", TA_TOKEN="s3cr3t-ada")


def test_terminal_gets_a_table_and_no_control_from_a_title(served: Served) -> None:
    served.answer("chat", "titled", "-m", "nasty title \x1b[31m\u202e")
    listed = served.answer("chats", "list")
    assert r"nasty title \x1b[31m\u202e" in listed
    assert "\x1b" not in listed


def test_bytes_that_are_no_text_are_sent_as_far_as_they_are(served: Served) -> None:
    done = subprocess.run(
        [*command("chat", "-m"), b"caf\xe9 au lait"],
        env=environment(served.folder, TA_SERVER=served.url),
        capture_output=True,
        timeout=seconds(60),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == "You said caf\N{REPLACEMENT CHARACTER} au lait.\n"


def test_reader_that_leaves_early_is_no_error(served: Served) -> None:
    with subprocess.Popen(
        command("chat", "-m", "epic", "--events"),
        env=environment(served.folder, TA_SERVER=served.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()


def test_answer_that_was_cut_is_never_taken_for_complete(served: Served) -> None:
    done = served.run("chat", "-m", "cut it")
    assert (done.returncode, done.stdout) == (0, "Half of\n")
    assert done.stderr == "teal: cut short: the model reached its bound on tokens\n"
    _, document = reply(served, "cut", "-m", "cut it")
    assert document["finish_reason"] == "length"
    with served.terminal("cutting") as terminal:
        terminal.read_until("you> ")
        terminal.type("cut it")
        terminal.read_until("Half of", "cut short", "you> ")


def test_list_that_is_cut_says_that_there_is_more(served: Served) -> None:
    for chat in ("cut-1", "cut-2"):
        served.answer("chat", chat, "-m", "hello")
    done = served.run("chats", "list", "--limit", "1")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert "first 1, and there are more; see --limit" in done.stderr


def test_text_of_a_stopped_answer_is_shown(served: Served) -> None:
    with served.terminal("stopped-text") as terminal:
        terminal.read_until("you> ")
        terminal.type("epic")
        terminal.read_until("word3 ")
        terminal.press("\x03")
        terminal.read_until("you> ")
    shown = served.answer("chats", "show", "stopped-text")
    assert "word1 word2 word3" in shown
    assert shown.rstrip().endswith("(cancelled)")


def test_calls_that_wait_in_one_chat_are_decided_with_one_command(served: Served) -> None:
    waiting_approval(served, "two-waiting", "send two")
    waiting_approval(served, "not-meant")
    lines = served.answer("approvals", "list", "--chat", "two-waiting").splitlines()
    ids = [line.split("\t")[0] for line in lines]
    assert len(ids) == 2
    # The oldest first, with the chat's title and the person whose message led to it.
    assert [json.loads(line.split("\t")[4])["to"] for line in lines] == ["ada", "bob"]
    assert lines[0].split("\t")[-2:] == ["send two", "dummyuser"]
    assert served.answer("approvals", "show", *ids).count("⚠ Mail-send wants to run") == 2
    assert served.answer("approvals", "show").count("⚠ Mail-send wants to run") >= 3
    assert served.answer("approvals", "approve", *ids).count("approved: Mail-send") == 2
    assert end_of(served, "two-waiting")["status"] == "COMPLETED"
    again = served.run("approvals", "reject", *ids, "--json")
    assert (again.returncode, again.stdout) == (1, "[]\n")
    assert again.stderr.count("teal: approval_") == 2


def test_arguments_are_given_for_one_call_only(served: Served) -> None:
    done = served.run("approvals", "approve", "approval_1", "approval_2", "--edit", "{}")
    assert done.returncode == 2


def test_import_names_the_agent_that_is_missing_and_takes_another(
    served: Served, tmp_path: Path
) -> None:
    served.answer("chat", "moving", "-m", "hello")
    document = json.loads(served.answer("export", "moving"))
    file = tmp_path / "chat.json"
    file.write_text(json.dumps({**document, "agent": "gone"}))
    refused = served.run("import", str(file))
    assert refused.returncode == 1
    assert "no agent of this name: 'gone'. There are: helper" in refused.stderr
    assert "--agent NAME gives the chat one of this server's: helper" in refused.stderr
    made = served.answer("import", str(file), "--agent", "helper").strip()
    assert "You said hello." in served.answer("chats", "show", made)
