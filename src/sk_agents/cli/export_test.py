"""`teal export-test`: a run as a pytest file that replays it, with neither model nor tools."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from pprint import pformat
from typing import Any

import typer

from sk_agents.cli.options import Exit
from sk_agents.cli.safe_text import one_line
from sk_agents.client import TealClient

WIDTH = 96
MAX_NAME = 60
# A call that nobody decided about in time did not run, either.
DECIDED = {"approved": "approved", "rejected": "rejected", "expired": "rejected"}
TEMPLATE = '''"""{title}

Written by `teal export-test` from a run of {date}:
{run} of the chat {chat}.
The model says again what it said, tools return what they returned, and people decide as they
decided: nothing is called.
{about}
"""

{imports}

RECORDING = Recording.model_validate(
{recording}
)


def test_{name}() -> None:
    done = replay(RECORDING{argument})
    assert done.status == "completed"
    assert done.answer == {answer}
    assert done.calls == {calls}
    assert done.asked == {asked}
    assert done.refused == {refused}
'''
ALONE = (
    "Rules and parameters are as they were; name the agent's file as the second argument of\n"
    "`replay` to have the test check that file's rules and parameters instead."
)
WITH_FILE = (
    "Rules and parameters are those of the agent's file: the test fails when they change what\n"
    "happens."
)


async def export_test(
    client: TealClient, run_id: str, path: Path | None, agent_file: Path | None
) -> Exit:
    found = await client.find(run_id)
    if found.status != "COMPLETED":
        reason = f"{run_id} is {found.status.lower()}; only a completed run can be replayed"
        typer.echo(f"teal: {reason}", err=True)
        return Exit.FAILED
    document = await client.chat(found.chat_id).export()
    agents = {agent.name: agent.tools for agent in await client.agents()}
    recording = recorded(_events(document, run_id), found.agent, agents.get(found.agent, []))
    folder = (path.parent if path is not None else Path()).absolute()
    text = rendered(recording, run_id, found.chat_id, found.created_at, agent_file, folder)
    if path is None:
        typer.echo(text, nl=False)
        return Exit.DONE
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        typer.echo(f"teal: {path} cannot be written: {error.strerror}", err=True)
        return Exit.FAILED
    typer.echo(f"written: {path}; run it with python -m pytest {path}")
    return Exit.DONE


def recorded(
    events: Sequence[Mapping[str, Any]], agent: str, tools: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The run as `sk_agents.testing.Recording` has it, from the events of its chat's document."""
    message: Mapping[str, Any] = {"parts": []}
    turns: dict[int, dict[str, Any]] = {}
    calls: dict[str, dict[str, Any]] = {}
    said: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for event in events:
        match event["type"]:
            case "run_started" | "run_queued":
                message = event.get("message") or message
            case "model_restarted":
                told = turns.pop(event["round"], {}).get("told")
                turns[event["round"]] = {"told": told} if told else {}
            case "steered":
                said[event["message_id"]] = event["content"]
            case "steering_delivered":
                told = [said[one] for one in event["message_ids"] if one in said]
                turns.setdefault(event["round"], {})["told"] = told
            case "thinking":
                turn = turns.setdefault(event["round"], {})
                turn["text" if event.get("spoken") else "thinking"] = event["content"]
            case "tool_proposed":
                call = _call(event)
                calls[event["call_id"]] = call
                turns.setdefault(event["round"], {}).setdefault("calls", []).append(call)
            case "approval_requested":
                kinds[event["approval_id"]] = event["kind"]
            case "approval_decided" if event["outcome"] in DECIDED:
                _decide(calls[event["call_id"]], event, kinds.get(event["approval_id"] or ""))
            case "tool_started" if event.get("grant_id"):
                calls[event["call_id"]]["remembered"] = True
            case "tool_finished":
                _finish(calls[event["call_id"]], event)
            case "answered":
                turns.setdefault(event["round"], {})["text"] = event["content"]
            case _:
                pass
    first, *more = message["parts"] or [{"content": ""}]
    wanted = {call["tool"] for call in calls.values()}
    recording = {
        "message": first["content"],
        "agent": agent,
        "items": [{name: part[name] for name in ("kind", "content", "name")} for part in more],
        "turns": [turns[number] for number in sorted(turns)],
        "tools": [
            {name: tool[name] for name in ("name", "description", "effect", "parameters")}
            for tool in tools
            if tool.get("name") in wanted
        ],
    }
    missing = wanted - {tool["name"] for tool in recording["tools"]}
    recording["tools"] += [{"name": name} for name in sorted(missing)]
    return {name: value for name, value in recording.items() if value or name == "message"}


def rendered(
    recording: Mapping[str, Any],
    run_id: str,
    chat_id: str,
    date: str,
    agent_file: Path | None,
    folder: Path,
) -> str:
    """The test file. `folder` is where it will lie: the agent's file is named from there."""
    calls = [call for turn in recording.get("turns", []) for call in turn.get("calls", [])]
    imports, argument = "from sk_agents.testing import Recording, replay", ""
    if agent_file is not None:
        imports = f"from pathlib import Path\n\n{imports}"
        relative = os.path.relpath(agent_file.absolute(), folder)
        argument = f", Path(__file__).parent / {relative!r}"
    ran = [
        (call["tool"], call.get("edited_arguments", call.get("arguments", {})))
        for call in calls
        if "result" in call
    ]
    title = one_line(recording["message"]).replace("\\", "/").replace('"', "'")
    answer = recording["turns"][-1].get("text", "") if recording.get("turns") else None
    return TEMPLATE.format(
        title=(title[:WIDTH].rstrip() or "A recorded run").rstrip(".") + ".",
        run=run_id,
        chat=chat_id,
        date=date[:10],
        about=WITH_FILE if agent_file is not None else ALONE,
        imports=imports,
        recording=_literal(recording, 4),
        name=_name(recording["message"]),
        argument=argument,
        answer=_literal(answer, 4).lstrip(),
        calls=_literal(ran, 4).lstrip(),
        asked=_literal([call["tool"] for call in calls if "decision" in call], 4).lstrip(),
        refused=_literal([call["tool"] for call in calls if "result" not in call], 4).lstrip(),
    )


def _events(document: Mapping[str, Any], run_id: str) -> list[Mapping[str, Any]]:
    return [event for event in document["events"] if event.get("run_id") == run_id]


def _call(event: Mapping[str, Any]) -> dict[str, Any]:
    plugin, function = event["plugin_name"], event["function_name"]
    call: dict[str, Any] = {"tool": f"{plugin}-{function}" if plugin else function}
    if event["arguments"]:
        call["arguments"] = event["arguments"]
    if event.get("problem"):
        call["problem"] = event["problem"]
    if event.get("budget"):
        call["near_budget"] = True
    return call


def _decide(call: dict[str, Any], event: Mapping[str, Any], kind: str | None) -> None:
    """A decision of another kind, about an outcome or a question, is part of the result."""
    if kind == "question" and event.get("answer") is not None:
        call["answer"] = event["answer"]
    if kind == "auth" and event["outcome"] != "approved":
        call["declined"] = True
    if kind not in ("tool", None):
        return
    call["decision"] = DECIDED[event["outcome"]]
    for name in ("message", "edited_arguments"):
        if event.get(name) is not None:
            call[name] = event[name]


def _finish(call: dict[str, Any], event: Mapping[str, Any]) -> None:
    match event["outcome"]:
        case "ok" | "error" if "problem" not in call:
            call["result"] = event["result"]
            if event["outcome"] == "error":
                call["failed"] = True
        case "refused" if event.get("by") == "policy":
            call["denied"] = True
        case _:
            pass


def _literal(value: Any, indent: int) -> str:
    text = pformat(value, width=WIDTH - indent, sort_dicts=False)
    return "\n".join(f"{' ' * indent}{line}" for line in text.splitlines())


def _name(message: str) -> str:
    words = "_".join(_words(message))[:MAX_NAME].rstrip("_")
    return f"{words}_" if keyword.iskeyword(words) else words or "recorded_run"


def _words(message: str) -> Iterator[str]:
    yield from re.findall(r"[a-z0-9]+", message.lower())
