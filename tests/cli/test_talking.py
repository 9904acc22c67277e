"""`teal chat` at a terminal: streaming, questions, commands, and leaving."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.house import Served, serving, write_agent
from tests.cli.terminal import Terminal
from tests.pdfs import pdf_item, pdf_of
from tests.tools.mcp_servers.running import friendly

PROMPT = "you> "
ASK = "in this chat: "
CTRL_C = "\x03"
CTRL_D = "\x04"
# What is typed, and what is told before the next prompt.
COMMANDS = """
/help | /history | /regenerate | /quit
/edit | not_found
first | You said first.
/edit second | You said second.
/regenerate | You said second.
/branches | first | second | second | /branches N
/branches 9 | no message with this number
/branches 1 | You said first.
/title Letters to Ada | Title: Letters to Ada
/agent | helper | scripted/talk.yaml
/agent nobody | no agent with this name
/model | helper | scripted/talk.yaml
/model gpt-none | No agent has this model
/model scripted/talk.yaml | helper answers from now on
/branch 9 no | needs a message's number
/branch 1 third | You said third.
/cost | 4 messages: | tokens read | written
/agent helper | helper answers from now on
/sing | There is no /sing
/history 1 | > third | You said third.
"""


def begin(terminal: Terminal, message: str) -> None:
    terminal.read_until(PROMPT)
    terminal.type(message)
    terminal.read_until(message)


def interactions(served: Served, chat: str, *arguments: str) -> list[dict[str, Any]]:
    shown = json.loads(served.answer("chats", "show", chat, "--json", *arguments))
    found: list[dict[str, Any]] = shown["interactions"]
    return found


def test_answer_is_told_and_quit_says_how_to_go_on(served: Served) -> None:
    with served.terminal("quitting") as terminal:
        begin(terminal, "hello there")
        terminal.read_until("You said hello there.", PROMPT)
        terminal.type("/quit")
        terminal.read_until("teal chat quitting")
        assert terminal.exit_code() == 0


def test_end_of_input_leaves(served: Served) -> None:
    with served.terminal() as terminal:
        terminal.read_until("helper", PROMPT)
        terminal.press(CTRL_D)
        assert terminal.exit_code() == 0


def test_thoughts_calls_live_output_and_results_are_shown(served: Served) -> None:
    with served.terminal() as terminal:
        begin(terminal, "look around")
        terminal.read_until(
            "Let me see what is known.",
            "→ Mail-look",
            '"what": "Oslo"',
            "← Mail-look",
            "about Oslo",
        )
        terminal.read_until("Found: about Oslo")
        begin(terminal, "count")
        told = terminal.read_until("→ Mail-count", "← Mail-count", "Counted.", PROMPT)
        assert told.count("number 2") == 1


def test_thoughts_fold_into_a_line(served: Served) -> None:
    with served.terminal("--fold-thinking") as terminal:
        begin(terminal, "look around")
        told = terminal.read_until("(thought, 6 words)", "Found:", PROMPT)
        assert "Let me see" not in told


def test_call_is_shown_exactly_and_runs_when_approved(served: Served) -> None:
    with served.terminal("approving") as terminal:
        begin(terminal, "send it")
        told = terminal.read_until(ASK)
        assert "⚠ Mail-send wants to run" in told
        assert '"to": "ada"' in told
        assert r'"text": "\u001b[31mhi"' in told
        assert "digest " in told
        assert "expires in 23 h 59 min" in told
        terminal.type("y")
        terminal.read_until(
            "✓ Mail-send approved by dummyuser", "→ Mail-send", "Done: sent", PROMPT
        )
    assert interactions(served, "approving")[0]["status"] == "COMPLETED"


def test_sentence_typed_at_a_question_decides_nothing(served: Served) -> None:
    with served.terminal("sentences") as terminal:
        begin(terminal, "send it")
        terminal.read_until(ASK)
        terminal.type("you should not do that")
        terminal.read_until("answer with y, n, e or a", ASK)
        assert interactions(served, "sentences")[0]["status"] == "WAITING_APPROVAL"


def test_what_was_typed_before_a_question_does_not_answer_it(served: Served) -> None:
    with served.terminal("hasty") as terminal:
        terminal.read_until(PROMPT)
        terminal.press("send it\ny\ny\n")
        terminal.read_until(ASK)
        terminal.type("n")
        terminal.read_until("Why not?")
        terminal.type("")
        terminal.read_until("Done: Rejected", PROMPT)


def test_rejected_call_does_not_run_and_its_reason_reaches_the_model(served: Served) -> None:
    with served.terminal() as terminal:
        begin(terminal, "send it")
        terminal.read_until(ASK)
        terminal.type("n")
        terminal.read_until("Why not?")
        terminal.type("not on a Sunday")
        told = terminal.read_until("✗ Mail-send refused by dummyuser", "Done: Rejected", PROMPT)
        assert "→ Mail-send" not in told
        assert "not on a Sunday" in told.partition("Done:")[2]


def test_arguments_typed_instead_are_checked_and_run(served: Served) -> None:
    with served.terminal() as terminal:
        begin(terminal, "send it")
        for typed, complaint in [
            ("{", "This is not JSON"),
            ("[1]", "Arguments must be a JSON object."),
            ('{"to": 5}', "(invalid_input)"),
        ]:
            terminal.read_until(ASK)
            terminal.type("e")
            terminal.read_until("Arguments as JSON: ")
            terminal.type(typed)
            terminal.read_until(complaint)
        terminal.read_until(ASK)
        terminal.type("edit")
        terminal.read_until("Arguments as JSON: ")
        terminal.type('{"to": "grace", "text": "good day"}')
        terminal.read_until(
            "approved by dummyuser", "with other arguments", "→ Mail-send", '"grace"'
        )
        terminal.read_until("Done: ", "sent 'good day' to grace", PROMPT)


def test_arguments_are_edited_in_the_editor(served: Served, tmp_path: Path) -> None:
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import pathlib, sys\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "path.write_text(path.read_text().replace('ada', 'bob'))\n"
    )
    with served.terminal(EDITOR=f"{sys.executable} {editor}") as terminal:
        begin(terminal, "send it")
        terminal.read_until(ASK)
        terminal.type("e")
        terminal.read_until("with other arguments", '"to": "bob"', "Done:", PROMPT)


def test_editor_that_changes_nothing_or_fails_decides_nothing(served: Served) -> None:
    with served.terminal(EDITOR="true") as terminal:
        begin(terminal, "send it")
        terminal.read_until(ASK)
        terminal.type("e")
        terminal.read_until("(nothing was changed)", ASK)
    with served.terminal(EDITOR="false") as terminal:
        begin(terminal, "send it")
        terminal.read_until(ASK)
        terminal.type("e")
        terminal.read_until("The editor failed", ASK)


def test_tool_allowed_always_is_not_asked_about_again_in_this_chat(served: Served) -> None:
    with served.terminal("always") as terminal:
        begin(terminal, "send it")
        terminal.read_until(ASK)
        terminal.type("a")
        terminal.read_until("Done:")
        begin(terminal, "send again")
        assert ASK not in terminal.read_until("Done:", PROMPT)


def test_several_calls_are_asked_about_one_by_one(served: Served) -> None:
    with served.terminal() as terminal:
        begin(terminal, "send two")
        terminal.read_until('"ada"', ASK)
        terminal.type("y")
        terminal.read_until('"bob"', ASK)
        terminal.type("n")
        terminal.read_until("Why not?")
        terminal.type("")
        told = terminal.read_until("Both done.", PROMPT)
        assert "✓ Mail-send approved" in told
        assert "✗ Mail-send refused" in told


def test_call_that_policy_denies_is_told_and_nobody_is_asked(served: Served) -> None:
    with served.terminal() as terminal:
        begin(terminal, "burn it")
        told = terminal.read_until("✗ Mail-burn refused by policy", "Not burnt:", PROMPT)
        assert ASK not in told


def test_unknown_outcome_is_asked_about_and_retried(tmp_path: Path) -> None:
    config = write_agent(tmp_path)
    with (
        serving(tmp_path, str(config), "--store", "memory:") as served,
        served.terminal() as terminal,
    ):
        begin(terminal, "post it")
        terminal.read_until("⚠ Mail-post was cut off", "[d]one / [r]etry / [g]ive up: ")
        terminal.type("r")
        terminal.read_until("Posted: posted to ada", PROMPT)


def test_interrupt_stops_the_answer_and_not_the_program(served: Served) -> None:
    with served.terminal("stopped") as terminal:
        begin(terminal, "epic")
        terminal.read_until("word3 ")
        terminal.press(CTRL_C)
        told = terminal.read_until("(cancelled)", PROMPT)
        assert "the end of the epic" not in told
        terminal.type("still there?")
        terminal.read_until("You said still there?.", PROMPT)
    statuses = [interaction["status"] for interaction in interactions(served, "stopped")]
    assert statuses == ["CANCELLED", "COMPLETED"]


def test_line_typed_while_the_agent_works_is_told_to_it(served: Served) -> None:
    with served.terminal("steered") as terminal:
        begin(terminal, "epic")
        terminal.read_until("word3 ")
        terminal.type("only the end, please")
        terminal.read_until("> only the end, please", "(the next step of the agent gets it)")
        terminal.type("/sing")
        terminal.read_until("there is only /stop")
        terminal.type("y")
        terminal.read_until("nothing is asked yet")
        terminal.type("/stop")
        terminal.read_until("it stops after this step")
        terminal.type("too late")
        terminal.read_until("not_steerable")
        terminal.press(CTRL_C)
        terminal.read_until("(cancelled)", "(not delivered: only the end, please)", PROMPT)
        terminal.read_until("too late")
    (stopped,) = interactions(served, "steered")
    assert [(one["content"], one["delivered"]) for one in stopped["steering"]] == [
        ("only the end, please", False)
    ]


def test_interrupt_at_a_question_cancels_the_run(served: Served) -> None:
    with served.terminal("stopped-at-question") as terminal:
        begin(terminal, "send it")
        terminal.read_until(ASK)
        terminal.press_until(CTRL_C, "(cancelled)")
        terminal.read_until(PROMPT)
    assert interactions(served, "stopped-at-question")[0]["status"] == "CANCELLED"


def test_interrupt_at_the_prompt_changes_nothing(served: Served) -> None:
    with served.terminal() as terminal:
        terminal.read_until(PROMPT)
        terminal.press_until(CTRL_C, "Ctrl-D or /quit leaves")
        terminal.read_until(PROMPT)
        terminal.type("hello")
        terminal.read_until("You said hello.")


def test_question_left_open_is_asked_again_when_the_chat_is_resumed(served: Served) -> None:
    with served.terminal("left-open") as terminal:
        begin(terminal, "hello")
        terminal.read_until("You said hello.")
        begin(terminal, "send it")
        terminal.read_until(ASK)
        terminal.press(CTRL_D)
        terminal.read_until("waits for your decision")
        assert terminal.exit_code() == 0
    with served.terminal("left-open") as terminal:
        terminal.read_until("> hello", "You said hello.", "> send it", "wants to run", ASK)
        terminal.type("y")
        terminal.read_until("Done: ", PROMPT)


def test_chat_that_still_runs_is_read_along(served: Served) -> None:
    with served.terminal("two-readers") as first:
        begin(first, "epic")
        first.read_until("word3 ")
        with served.terminal("two-readers") as second:
            second.read_until("> epic", "word1 word2 ", "word5 ")
            first.press(CTRL_C)
            second.read_until("(cancelled)", PROMPT)
        first.read_until("(cancelled)", PROMPT)


def test_call_decided_elsewhere_is_told(served: Served) -> None:
    with served.terminal("elsewhere") as terminal:
        begin(terminal, "send it")
        terminal.read_until(ASK)
        (waiting,) = interactions(served, "elsewhere")[0]["approvals"]
        served.answer("approvals", "approve", waiting["approval_id"])
        terminal.type("n")
        terminal.read_until("Why not?")
        terminal.type("")
        terminal.read_until("approval_already_processed", "✓ Mail-send approved", "Done:", PROMPT)


def test_failure_is_told_with_its_code(served: Served) -> None:
    with served.terminal() as terminal:
        begin(terminal, "fail")
        terminal.read_until("✗ ", "llm_refused", PROMPT)


def test_nothing_said_reaches_the_terminal_as_control(served: Served) -> None:
    with served.terminal() as terminal:
        begin(terminal, "nasty")
        told = terminal.read_until("end of nasty", PROMPT)
        assert r"\x1b[31mred\x1b[0m \x1b]52;c;aGk=\x07 \x9b2J \u202eback" in told
        terminal.type("look around")
        terminal.read_until("Found: ", "gone", PROMPT)
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(terminal.seen)


def test_wide_letters_and_emoji_stay_as_they_are(served: Served) -> None:
    with served.terminal() as terminal:
        begin(terminal, "wide")
        terminal.read_until("日本語のテキスト 👩‍👩‍👧 für Ærø, the end of wide.", PROMPT)


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colours_are_for_terminals_that_want_them(
    served: Served, no_color: str, coloured: bool
) -> None:
    with served.terminal(TERM="xterm-256color", NO_COLOR=no_color) as terminal:
        terminal.read_until(PROMPT)
        terminal.type("burn it")
        told = terminal.read_until("refused by policy")
        assert ("\x1b[33m" in told) is coloured


def test_commands_inside_a_chat(served: Served) -> None:
    with served.terminal("commands") as terminal:
        terminal.read_until(PROMPT)
        for line in COMMANDS.strip().splitlines():
            typed, *told = line.split(" | ")
            terminal.type(typed)
            terminal.read_until(*told, PROMPT)
        terminal.type("/edit")
        terminal.read_until("new message: third")
        terminal.type(" thoughts")
        terminal.read_until("You said third thoughts.", PROMPT)
        terminal.type("/new")
        terminal.read_until("A new chat: chat_", PROMPT)
        terminal.type("/quit")
        assert terminal.exit_code() == 0
    assert len(interactions(served, "commands")) == 1
    assert len(interactions(served, "commands", "--superseded")) == 5


def test_second_interrupt_leaves_an_answer_that_cannot_be_stopped(tmp_path: Path) -> None:
    config = write_agent(tmp_path)
    with (
        serving(tmp_path, str(config), "--store", "memory:") as served,
        served.terminal() as terminal,
    ):
        begin(terminal, "epic")
        terminal.read_until("word5 ")
        served.kill()
        terminal.read_until("trying again")
        terminal.press(CTRL_C)
        terminal.read_until("(stopping; Ctrl-C again leaves at once)")
        terminal.press(CTRL_C)
        terminal.read_until("(left before its end)", PROMPT)
        # While a session waits for a line, its retries wait, too: after a while one is overdue.
        for _ in range(3):
            assert served.run("chats", "list").returncode == 69
        terminal.press(CTRL_D)
        assert terminal.exit_code() == 0
        assert "Traceback" not in terminal.seen


def test_answer_goes_on_after_the_server_was_killed_and_restarted(tmp_path: Path) -> None:
    config = write_agent(tmp_path)
    store = f"sqlite://{tmp_path}/teal.sqlite"
    arguments = (str(config), "--store", store)
    with serving(tmp_path, *arguments) as served, served.terminal("survivor") as terminal:
        begin(terminal, "epic")
        terminal.read_until("word5 ")
        served.kill()
        terminal.read_until("the server does not answer; trying again")
        port = served.url.rpartition(":")[2]
        with serving(tmp_path, *arguments, "--port", port, TA_SCRIPT_PACE="0") as again:
            terminal.read_until("word2999 word3000 the end of the epic.", PROMPT)
            (only,) = interactions(again, "survivor")
            assert only["status"] == "COMPLETED"


def test_prompts_are_said_and_resources_attached(tmp_path: Path) -> None:
    config = write_agent(tmp_path)
    document = yaml.safe_load(config.read_text())
    document["spec"]["agent"]["mcp_servers"] = [friendly(tmp_path)]
    config.write_text(yaml.safe_dump(document))
    with (
        serving(tmp_path, str(config), "--store", "memory:") as served,
        served.terminal("prompted") as terminal,
    ):
        begin(terminal, "/prompt")
        terminal.read_until("friendly", "review", "code tone?", "/prompt SERVER PROMPT")
        begin(terminal, "/prompt friendly review tone='very kind'")
        terminal.read_until("code: ")
        terminal.type("x = 1")
        terminal.read_until("> Review this in a very kind way:", "You said Review this")
        begin(terminal, "/prompt friendly nothing")
        terminal.read_until("no such prompt")
        begin(terminal, "/resource")
        terminal.read_until("note://first", "The first note", "note://{day}/{number}")
        begin(terminal, "/resource friendly note://first")
        terminal.read_until("attached to your next message: note://first")
        begin(terminal, "what is it")
        terminal.read_until("You said what is it", PROMPT)
        (_, last) = interactions(served, "prompted")
    assert [item["content"] for item in last["items"]] == ["buy milk"]


def test_markdown_is_rendered_as_it_comes_and_hides_nothing(served: Served) -> None:
    with served.terminal(TERM="xterm", NO_COLOR="1") as terminal:
        begin(terminal, "markdown")
        told = terminal.read_until("End.", "tokens read", PROMPT)
    end = told[told.rindex("Title") :]  # it may have been drawn before, while it grew
    assert "**" not in end.replace("**bold", "")
    assert "<b>tags</b>" in end
    assert " • " in end and "- one" not in end


def test_markdown_stays_as_it_is_written_where_the_user_wants_that(served: Served) -> None:
    with served.terminal("--plain", TERM="xterm") as terminal:
        begin(terminal, "markdown")
        terminal.read_until("# Title", "A **bold** word, `code`, <b>tags</b>.", "- two", "End.")


def test_file_named_in_a_message_goes_with_it(served: Served) -> None:
    (served.folder / "a note.txt").write_text("Bring cake.")
    (served.folder / "bill.pdf").write_bytes(pdf_of("Total 12"))
    (served.folder / "binary.bin").write_bytes(b"\xff\x00\xfe")
    with served.terminal("attaching") as terminal:
        begin(terminal, 'read @"a note.txt", @bill.pdf and @gone.txt')
        terminal.read_until("(with a note.txt, bill.pdf)", "no file gone.txt", PROMPT)
        terminal.type("and @binary.bin")
        terminal.read_until("neither text nor a PNG", PROMPT)
    (said,) = interactions(served, "attaching")
    note, bill = said["items"]
    assert (note["name"], note["content"]) == ("a note.txt", "Bring cake.")
    assert bill == pdf_item(pdf_of("Total 12"), "bill.pdf")


def test_chat_is_continued_from_a_list(served: Served) -> None:
    served.answer("chat", "listed", "-m", "an aardvark in a list")
    with served.terminal("--resume") as terminal:
        terminal.read_until("an aardvark in a list", "Which one?")
        terminal.type("1")
        terminal.read_until("> an aardvark in a list", "You said an aardvark in a list.", PROMPT)
        terminal.type("/chats aardvark")
        terminal.read_until("an aardvark in a list", "/chats N continues", PROMPT)
        terminal.type("/quit")
        terminal.read_until("teal chat listed")


def test_tab_completes_commands_and_files(served: Served) -> None:
    (served.folder / "zebra.txt").write_text("stripes")
    with served.terminal("tabbing") as terminal:
        terminal.read_until(PROMPT)
        terminal.press("see @zeb\t")
        terminal.read_until("@zebra.txt")
        terminal.press("\n")
        terminal.read_until("(with zebra.txt)", PROMPT)
