from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sk_agents.engine.events import Imported, ImportedItem, ThreadChanged
from sk_agents.engine.ports import Store, ThreadQuery
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.commits import (
    USER,
    answered,
    append,
    call_proposed,
    create,
    run_queued,
    start_run,
    thought,
)
from sk_agents.testing.store_contract.case import StoreCases, every_thread


async def found(store: Store, text: str, user: str = USER) -> list[str]:
    page = await store.threads(ThreadQuery(user, text=text))
    return sorted(thread.thread_id for thread in page.threads)


class SearchCases(StoreCases):
    """A listing can be narrowed to the threads in which something was said."""

    async def test_question_answer_queue_and_title_are_searched(self, store: Store) -> None:
        await store.commit(start_run("question", text="where is the needle"))
        head = (await store.commit(start_run("answer"))).thread
        await store.commit(append(head, answered("the needle is here")))
        await store.commit(create("queue", run_queued("run-q", "needle please")))
        await store.commit(create("title", metadata={"title": "A needle"}))
        await store.commit(start_run("nothing"))
        assert await found(store, "needle") == ["answer", "question", "queue", "title"]

    async def test_imported_words_are_searched_and_pictures_are_not(self, store: Store) -> None:
        at = datetime(2030, 1, 1, tzinfo=UTC)
        text = ImportedItem(role="user", content="old needle", run_id="r", at=at)
        image = text.model_copy(update={"content_type": "image"})
        await store.commit(create("text", Imported(items=(text,))))
        await store.commit(create("image", Imported(items=(image,))))
        assert await found(store, "needle") == ["text"]

    async def test_thoughts_and_arguments_are_not_searched(self, store: Store) -> None:
        call = call_proposed("c", arguments={"text": "needle"})
        await store.commit(create("t", thought("needle"), call))
        assert await found(store, "needle") == []

    async def test_changed_title_is_searched_instead_of_the_old_one(self, store: Store) -> None:
        head = (await store.commit(create("t", metadata={"title": "old"}))).thread
        await store.commit(append(head, ThreadChanged(metadata={"title": "new"})))
        assert (await found(store, "old"), await found(store, "new")) == ([], ["t"])

    @pytest.mark.parametrize(
        ("said", "asked"),
        [
            ("Hello World", "hELLO w"),
            ("ÄRGER über Öl", "ärger Über öl"),
            ("Привет", "ПРИВЕТ"),
            ("Straße", "STRASSE"),
            ("ΣΊΣΥΦΟΣ", "σίσυφος"),
            ("你好世界", "好世"),
            ("party 🎉 time", "🎉"),
            ("100%_sure 'quoted' \"too\" \\ back", "%_SURE 'Quoted' \"too\" \\"),
            ("line one\nline two", "one\nline"),
        ],
    )
    async def test_case_does_not_matter_in_any_script(
        self, store: Store, said: str, asked: str
    ) -> None:
        await store.commit(start_run("t", text=said))
        await store.commit(start_run("u", "run-2", text="something else"))
        assert await found(store, asked) == ["t"]

    async def test_wildcards_and_operators_mean_themselves(self, store: Store) -> None:
        await store.commit(start_run("t", text="plain words"))
        for pattern in ("%", "_", "*", "?", "plain%", "p.*s", "plain AND words", '"', "-plain"):
            assert await found(store, pattern) == []

    async def test_words_of_foreign_threads_find_nothing(self, store: Store) -> None:
        await store.commit(start_run("t", text="needle", user="bob"))
        assert await found(store, "needle", "ann") == []

    async def test_found_threads_are_paged(self, store: Store, clock: SettableClock) -> None:
        for number in range(9):
            text = "needle" if number % 2 else "hay"
            await store.commit(start_run(f"t{number}", f"run-{number}", text=text))
            clock.advance(1)
        threads = await every_thread(store, ThreadQuery(USER, text="NEEDLE", limit=1))
        assert [thread.thread_id for thread in threads] == ["t7", "t5", "t3", "t1"]
