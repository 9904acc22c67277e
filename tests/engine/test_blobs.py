"""A picture, a file or a long result is in a thread's log once; later events refer to it."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sk_agents.engine.commands import EditRun, StartRun
from sk_agents.engine.events import Event, LateResult, RunStarted, ToolFinished
from sk_agents.engine.log.blobs import SMALLEST_RESULT, carried, with_contents, with_references
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import BLOB, Attachment, NewThread, Part, UserInput
from sk_agents.engine.turns import ToolContext, ToolResult
from sk_agents.persistence.store_factory import open_store
from sk_agents.testing.scripted_model import calls, says
from tests.engine.fake_tools import FakeTools, tool
from tests.engine.kit import THREAD, USER, Talk, talking

PICTURE = "data:image/png;base64," + "A" * 40_000
SEEN = UserInput(parts=(Part(content="look"), Part(kind="image", content=PICTURE, name="a.png")))


def draw(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    attachment = Attachment(media_type="image/png", uri=PICTURE, size=30_000, name="plot.png")
    small = Attachment(media_type="text/csv", uri="data:text/csv;base64,YQ==", size=1)
    return ToolResult("[picture]", attachments=(attachment, small))


async def ask_with_picture(talk: Talk, run_id: str = "r1") -> None:
    new = NewThread(USER, agent="a")
    command = StartRun(thread_id=THREAD, user_id=USER, run_id=run_id, message=SEEN, new=new)
    await talk.result(await talk.engine.start(command))


async def bytes_on_disk(talk: Talk) -> int:
    return sum(event.model_dump_json().count(PICTURE) for event in await talk.log())


async def test_message_that_is_answered_again_does_not_bring_its_picture_again(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, script=[says(str(n)) for n in range(4)]) as talk:
        await ask_with_picture(talk)
        for number in (2, 3):
            again = EditRun(
                thread_id=THREAD, user_id=USER, run_id=f"r{number}", edited_run="r1", message=None
            )
            await talk.result(await talk.engine.edit(again))
        await ask_with_picture(talk, "r4")
        assert await bytes_on_disk(talk) == 1
        for run_id in ("r1", "r2", "r3", "r4"):
            assert fold(await talk.log()).run(run_id).message == SEEN
        for prompt in talk.prompts:
            assert prompt[-1]["content"][-1]["image_url"]["url"] == PICTURE


async def test_tool_that_returns_the_same_twice_is_kept_once(tmp_path: Path) -> None:
    twice = calls(("Web-draw", {}), ("Web-draw", {}))
    script = [twice, says("two"), calls(("Web-draw", {})), says("three")]
    async with talking(tmp_path, script=script, tools=FakeTools(tool("Web-draw", draw))) as talk:
        await talk.ask()
        await talk.ask()
        assert await bytes_on_disk(talk) == 1
        finished = [event for event in await talk.log() if isinstance(event, ToolFinished)]
        uris = [event.attachments[0].uri for event in finished if event.attachments]
        assert [uri.startswith(BLOB) for uri in uris] == [False, True, True]
        state = fold(await talk.log())
        for run in state.runs.values():
            for call in run.calls.values():
                assert call.finished is not None and call.finished.attachments is not None
                assert call.finished.attachments[0].uri == PICTURE


async def test_what_one_thread_holds_another_does_not_refer_to(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("a"), says("b")]) as talk:
        for thread in ("one", "two"):
            new = NewThread(USER, agent="a")
            command = StartRun(thread_id=thread, user_id=USER, run_id=thread, message=SEEN, new=new)
            await talk.result(await talk.engine.start(command))
            (started,) = [e for e in await talk.log(thread) if isinstance(e, RunStarted)]
            assert started.message is not None and started.message.parts[1].content == PICTURE


async def test_thread_read_again_and_taken_elsewhere_is_whole(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("a"), says("b"), says("c")]) as talk:
        await ask_with_picture(talk)
        await ask_with_picture(talk, "r2")
        events = await talk.log()
        await talk.engine.catalog.restore("copy", NewThread(USER, agent="a"), events)
        assert fold(await talk.log("copy")).run("r2").message == SEEN
    async with open_store(f"sqlite://{tmp_path}/teal.sqlite") as store:
        log = await store.events_after(THREAD, 0)
        assert fold(log).run("r2").message == SEEN


async def test_document_that_leaves_out_the_first_event_brings_the_content_along(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, script=[says("a"), says("b")]) as talk:
        await ask_with_picture(talk)
        await ask_with_picture(talk, "r2")
        contents = fold(await talk.log()).contents
        _, second = [event for event in await talk.log() if isinstance(event, RunStarted)]
        taken: set[str] = set()
        whole, again = carried(second, contents, taken), carried(second, contents, taken)
        assert isinstance(whole, RunStarted) and whole.message == SEEN
        assert isinstance(again, RunStarted) and again.message is not None
        assert again.message.parts[1].content.startswith(BLOB)


LONG = "row 7;" * 5_000


def read_table(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    return ToolResult(LONG)


async def test_long_result_is_kept_once_and_read_whole_by_model_reader_and_fold(
    tmp_path: Path,
) -> None:
    read = calls(("Web-read", {}))
    script = [read, says("one"), read, says("two")]
    tools = FakeTools(tool("Web-read", read_table))
    async with talking(tmp_path, script=script, tools=tools) as talk:
        await talk.ask()
        accepted = await talk.say()
        await talk.result(accepted)
        log = await talk.log()
        assert sum(event.model_dump_json().count(LONG) for event in log) == 1
        second = [event for event in log if isinstance(event, ToolFinished)][1]
        assert second.digest is not None and second.result == BLOB + second.digest
        seen = await talk.items(accepted)
        assert [event.result for event in seen if isinstance(event, ToolFinished)] == [LONG]
        assert [message["content"] for message in talk.prompts[-1]][-1] == LONG
        calls_made = [call for run in fold(log).runs.values() for call in run.calls.values()]
        assert [call.finished and call.finished.result for call in calls_made] == [LONG, LONG]


TEXTS = (
    "",
    "short",
    BLOB + "0" * 64,
    "x" * (SMALLEST_RESULT - 1),
    "y" * SMALLEST_RESULT,
    "z" * SMALLEST_RESULT,
    BLOB + "ö" * SMALLEST_RESULT,
)
# By their places: Hypothesis prints what it draws.
PLACES = st.tuples(st.integers(0, len(TEXTS) - 1), st.booleans())


def finished(place: int, is_late: bool) -> Event:
    text = TEXTS[place]
    return (
        LateResult(call_id="c", result=text) if is_late else ToolFinished(call_id="c", result=text)
    )


@given(st.lists(st.lists(PLACES, max_size=4), max_size=6))
def test_results_are_the_same_with_references_and_without(
    places: list[list[tuple[int, bool]]],
) -> None:
    commits = [[finished(*place) for place in commit] for commit in places]
    known: dict[str, str] = {}
    stored: list[Event] = []
    for commit in commits:
        written = with_references(tuple(commit), known)
        stored.extend(written)
        for event in written:
            with_contents(event, known)
    opened: dict[str, str] = {}
    meant = [result_of(with_contents(event, opened)) for event in stored]
    assert meant == [result_of(event) for commit in commits for event in commit]
    long_texts = [text for text in map(result_of, stored) if len(text) >= SMALLEST_RESULT]
    assert len(long_texts) == len(set(long_texts))
    # Those of a document that leaves out every other event are whole, too.
    taken: set[str] = set()
    document = [carried(event, known, taken) for event in stored[::2]]
    elsewhere: dict[str, str] = {}
    assert [result_of(with_contents(event, elsewhere)) for event in document] == meant[::2]


def result_of(event: Event) -> str:
    assert isinstance(event, ToolFinished | LateResult)
    return event.result
