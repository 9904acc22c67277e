"""Logs, threads and entries are found, in pages and without gaps.

- A log is read from any point on, in pages, without gaps.
- Runs, approvals and grants are found across threads by their own keys.
- A user's threads are listed in pages, the most recently changed first.
- A listing can be narrowed to the threads in which something was said.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from sk_agents.engine.events import (
    GrantChanged,
    Imported,
    ImportedItem,
    Rated,
    ReviewExtended,
    ThreadChanged,
)
from sk_agents.engine.log.commits import Commit, Pending
from sk_agents.engine.models import ALL_RATINGS, Audience, Entry, Rating, Thread, review_key
from sk_agents.engine.ports import Store, ThreadPage, ThreadQuery
from sk_agents.exceptions import InvalidCursor, ThreadNotFound
from sk_agents.testing.commits import (
    USER,
    answered,
    append,
    approval,
    ask,
    call_proposed,
    create,
    decide,
    decision,
    run_queued,
    start_run,
    thought,
)
from sk_agents.testing.predictable import SettableClock
from sk_agents.testing.store_contract.case import KINDS, StoreCases, every_event, every_thread

SIZES = (1, 3, 1, 5, 2, 1)
FINANCE = Audience(roles=("approver",), groups=("finance",), users=("bob",))


async def written(store: Store) -> Thread:
    """A log of commits that hold one event or several."""
    head = (await store.commit(create("t"))).thread
    for size in SIZES:
        events = [thought(str(head.next_seq + n)) for n in range(size)]
        head = (await store.commit(append(head, *events))).thread
    return head


def grant(grant_id: str, *, granted: bool = True) -> GrantChanged:
    return GrantChanged(
        run_id="run-1", grant_id=grant_id, tool="files-write", scope="thread", granted=granted
    )


def rated(run_id: str, rating: Rating | None = "up") -> Rated:
    return Rated(run_id=run_id, rating=rating)


def ids(page: ThreadPage) -> list[str]:
    return [thread.thread_id for thread in page.threads]


async def made(store: Store, clock: SettableClock, count: int) -> list[str]:
    """Threads made one second apart, the latest first."""
    names = [f"t{number:02}" for number in range(count)]
    for name in names:
        await store.commit(create(name))
        clock.advance(1)
    return names[::-1]


async def found(store: Store, text: str, user: str = USER) -> list[str]:
    page = await store.threads(ThreadQuery(user, text=text))
    return sorted(thread.thread_id for thread in page.threads)


class ReadingCases(StoreCases):
    async def test_every_offset_and_page_size_gives_the_same_log(self, store: Store) -> None:
        await written(store)
        log = await store.events_after("t", 0)
        assert [event.seq for event in log] == list(range(1, sum(SIZES) + 1))
        for offset in range(sum(SIZES) + 1):
            for limit in (1, 2, 3, 4, 100):
                page = await store.events_after("t", offset, limit)
                assert list(page) == list(log[offset : offset + limit])

    async def test_a_page_bounded_in_bytes_has_at_least_one_event_and_skips_none(
        self, store: Store
    ) -> None:
        await written(store)
        log = await store.events_after("t", 0)
        for offset in range(sum(SIZES)):
            for room in (1, 300, 1_000, 10**9):
                page = await store.events_after("t", offset, max_bytes=room)
                assert page and list(page) == list(log[offset : offset + len(page)])

    async def test_a_page_bounded_in_bytes_reads_little_of_a_large_log(self, store: Store) -> None:
        head = (await store.commit(create("t"))).thread
        for _ in range(10):
            head = (await store.commit(append(head, thought("x" * 10_000)))).thread
        page = await store.events_after("t", 0, max_bytes=25_000)
        assert 1 <= len(page) <= 4

    async def test_reading_one_by_one_gives_the_whole_log(self, store: Store) -> None:
        await written(store)
        assert await every_event(store, "t", page=1) == list(await store.events_after("t", 0))

    async def test_beyond_the_end_is_empty(self, store: Store) -> None:
        head = await written(store)
        for seq in (head.next_seq - 1, head.next_seq, 10**6, 2**62):
            assert list(await store.events_after("t", seq)) == []

    async def test_negative_seq_reads_from_the_start(self, store: Store) -> None:
        await written(store)
        for seq in (-1, -(2**62)):
            assert [event.seq for event in await store.events_after("t", seq, 2)] == [1, 2]

    async def test_log_of_an_unknown_thread_is_not_found(self, store: Store) -> None:
        for seq in (0, 5, -1):
            with pytest.raises(ThreadNotFound):
                await store.events_after("nothing", seq)

    async def test_log_of_an_empty_thread_is_empty(self, store: Store) -> None:
        await store.commit(create("t"))
        assert list(await store.events_after("t", 0)) == []

    async def test_earlier_events_stay_as_they_were(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        seen = await every_event(store, "t")
        for number in range(10):
            head = (await store.commit(append(head, thought(str(number))))).thread
            log = await every_event(store, "t")
            assert log[: len(seen)] == seen
            assert len(log) == len(seen) + 1
            seen = log

    async def test_reading_changes_nothing(self, store: Store) -> None:
        head = await written(store)
        await every_event(store, "t")
        await store.orphans()
        assert await store.thread("t") == head

    async def test_heads_of_many_threads_come_in_one_read(self, store: Store) -> None:
        heads = [(await store.commit(start_run(f"t{n}", f"run-{n}"))).thread for n in range(20)]
        heads[3] = (await store.commit(append(heads[3], thought()))).thread
        found = await store.heads([head.thread_id for head in heads[:12]])
        assert sorted(found, key=lambda head: int(head.thread_id[1:])) == heads[:12]

    async def test_heads_leave_out_what_does_not_exist(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        gone = (await store.commit(start_run("gone", "run-2"))).thread
        await store.delete("gone", next_seq=gone.next_seq)
        assert list(await store.heads(["nothing", "t", "gone", "", "t", "é/🧭"])) == [head]

    async def test_heads_of_no_threads_are_none(self, store: Store) -> None:
        await store.commit(start_run("t"))
        assert list(await store.heads([])) == []

    async def test_heads_show_who_has_claimed_a_thread(self, store: Store) -> None:
        await store.commit(start_run("t", owner="o"))
        claimed = await store.claim("t", "p")
        assert list(await store.heads(["t"])) == [claimed]

    async def test_run_is_found_when_started_and_when_queued(self, store: Store) -> None:
        head = (await store.commit(start_run("t", "run-1"))).thread
        await store.commit(append(head, run_queued("run-2")))
        for run_id in ("run-1", "run-2"):
            found = await store.find("run", run_id)
            assert found == Entry("run", run_id, "t", USER, run_id, open=False)

    async def test_approval_is_found_open_and_decided(
        self, store: Store, clock: SettableClock
    ) -> None:
        due_at = clock.now() + timedelta(hours=1)
        head = (await store.commit(start_run("t"))).thread
        await store.commit(ask(head, "a", due_at=due_at))
        entry = Entry("approval", "a", "t", USER, "run-1", True, due_at)
        assert await store.find("approval", "a") == entry
        await store.commit(decide("t", "a"))
        found = await store.find("approval", "a")
        assert found is not None
        assert (found.open, found.thread_id) == (False, "t")

    async def test_grant_is_open_until_taken_back(self, store: Store) -> None:
        head = (await store.commit(create("t", grant("g")))).thread
        assert [entry.key for entry in await store.open_entries("grant", USER)] == ["g"]
        await store.commit(append(head, grant("g", granted=False)))
        assert await store.open_entries("grant", USER) == []

    async def test_ratings_of_all_users_are_listed_until_taken_back(self, store: Store) -> None:
        heads = {
            user: (await store.commit(create(f"of-{user}", rated(f"run-{user}"), user=user))).thread
            for user in ("ann", "bob")
        }
        found = await store.open_entries("rating", ALL_RATINGS)
        assert [(entry.key, entry.thread_id) for entry in found] == [
            ("run-ann", "of-ann"),
            ("run-bob", "of-bob"),
        ]
        assert await store.open_entries("rating", "ann") == []
        await store.commit(append(heads["ann"], rated("run-ann", None)))
        await store.commit(append(heads["bob"], rated("run-bob", "down")))
        found = await store.open_entries("rating", ALL_RATINGS)
        assert [entry.key for entry in found] == ["run-bob"]

    async def test_unknown_key_and_other_kind_find_nothing(self, store: Store) -> None:
        await store.commit(start_run("t", "run-1"))
        assert await store.find("run", "run-9") is None
        assert await store.find("approval", "run-1") is None

    async def test_open_entries_are_the_users_own(self, store: Store) -> None:
        for user in ("ann", "bob"):
            await store.commit(create(f"of-{user}", approval(f"for-{user}"), user=user))
        assert [entry.key for entry in await store.open_entries("approval", "ann")] == ["for-ann"]
        assert await store.open_entries("approval", "eve") == []
        assert await store.open_entries("approval", "") == []

    async def test_open_entries_are_of_one_kind(self, store: Store) -> None:
        head = (await store.commit(start_run("t", "run-1"))).thread
        await store.commit(append(head, approval("a"), grant("g")))
        found = [[entry.key for entry in await store.open_entries(kind, USER)] for kind in KINDS]
        assert found == [[], ["a"], ["g"], [], []]

    async def test_review_is_in_the_inbox_of_each_key_of_its_audience(self, store: Store) -> None:
        head = (await store.commit(start_run("t", "run-1"))).thread
        await store.commit(append(head, approval("a", audience=FINANCE)))
        assert [entry.key for entry in await store.open_entries("approval", USER)] == ["a"]
        for key in FINANCE.keys:
            [entry] = await store.open_entries("review", key)
            assert entry == Entry("review", review_key("a", key), "t", key, "run-1")
            assert await store.find("review", entry.key) == entry
        assert await store.open_entries("review", USER) == []
        assert await store.open_entries("approval", FINANCE.keys[0]) == []

    async def test_decided_review_is_in_no_inbox(self, store: Store) -> None:
        head = (await store.commit(start_run("t", "run-1"))).thread
        asked = (await store.commit(append(head, approval("a", audience=FINANCE)))).thread
        await store.commit(append(asked, decision("a", audience=FINANCE)))
        for key in FINANCE.keys:
            assert await store.open_entries("review", key) == []

    async def test_extended_review_changes_inboxes_and_time(
        self, store: Store, clock: SettableClock
    ) -> None:
        head = (await store.commit(start_run("t", "run-1"))).thread
        due_at = clock.now() + timedelta(seconds=10)
        asked = approval("a", due_at=due_at, audience=FINANCE)
        head = (await store.commit(append(head, asked))).thread
        clock.advance(11)
        later = clock.now() + timedelta(seconds=10)
        board = Audience(groups=("board",))
        extended = ReviewExtended(
            run_id="run-1",
            approval_id="a",
            call_id="call-of-a",
            audience=board,
            left=FINANCE,
            expires_at=later,
        )
        late = Pending("a", overdue=True, next_seq=head.next_seq)
        await store.commit(Commit("t", "extend", late, (extended,)))
        assert await store.overdue("approval") == []
        assert [entry.due_at for entry in await store.open_entries("approval", USER)] == [later]
        for key in FINANCE.keys:
            assert await store.open_entries("review", key) == []
        assert len(await store.open_entries("review", board.keys[0])) == 1

    async def test_open_entries_are_paged_by_key(self, store: Store) -> None:
        names = [f"a{number:02}" for number in range(25)]
        for number, name in enumerate(reversed(names)):
            await store.commit(create(f"t{number}", approval(name)))
        pages: list[list[str]] = []
        after = None
        while page := await store.open_entries("approval", USER, after=after, limit=10):
            pages.append([entry.key for entry in page])
            after = pages[-1][-1]
        assert pages == [names[:10], names[10:20], names[20:]]

    async def test_page_goes_on_after_a_key_that_is_no_longer_open(self, store: Store) -> None:
        await store.commit(create("t", approval("a"), approval("b"), approval("c")))
        await store.commit(decide("t", "b"))
        following = await store.open_entries("approval", USER, after="b")
        assert [entry.key for entry in following] == ["c"]

    async def test_overdue_lists_the_most_overdue_first(
        self, store: Store, clock: SettableClock
    ) -> None:
        start = clock.now()
        for minutes in (30, 10, 20, 90):
            due_at = start + timedelta(minutes=minutes)
            await store.commit(create(f"t{minutes}", approval(f"a{minutes}", due_at=due_at)))
        await store.commit(create("t", approval("without-limit")))
        assert await store.overdue("approval") == []
        clock.advance(3600)
        assert [entry.key for entry in await store.overdue("approval")] == ["a10", "a20", "a30"]
        assert [entry.key for entry in await store.overdue("approval", 2)] == ["a10", "a20"]

    async def test_overdue_lists_neither_decided_ones_nor_other_kinds(
        self, store: Store, clock: SettableClock
    ) -> None:
        due_at = clock.now() + timedelta(minutes=1)
        await store.commit(create("t", approval("a", due_at=due_at), approval("b", due_at=due_at)))
        await store.commit(decide("t", "a"))
        clock.advance(60)
        assert [entry.key for entry in await store.overdue("approval")] == ["b"]
        assert await store.overdue("run") == []

    async def test_empty_store_lists_nothing(self, store: Store) -> None:
        assert await store.threads(ThreadQuery(USER)) == ThreadPage(())

    async def test_most_recently_changed_comes_first(
        self, store: Store, clock: SettableClock
    ) -> None:
        names = await made(store, clock, 4)
        assert ids(await store.threads(ThreadQuery(USER))) == names
        oldest = await store.thread(names[-1])
        await store.commit(append(oldest, thought()))
        assert ids(await store.threads(ThreadQuery(USER))) == [names[-1], *names[:-1]]

    async def test_listed_heads_are_whole(self, store: Store) -> None:
        committed = await store.commit(start_run("t", owner="o"))
        assert (await store.threads(ThreadQuery(USER))).threads == (committed.thread,)

    @pytest.mark.parametrize("limit", [1, 2, 7, 11, 12, 50])
    async def test_pages_continue_without_gap_or_repetition(
        self, store: Store, clock: SettableClock, limit: int
    ) -> None:
        names = await made(store, clock, 11)
        threads = await every_thread(store, ThreadQuery(USER, limit=limit))
        assert [thread.thread_id for thread in threads] == names

    async def test_last_page_says_that_it_is_the_last(
        self, store: Store, clock: SettableClock
    ) -> None:
        await made(store, clock, 4)
        first = await store.threads(ThreadQuery(USER, limit=2))
        second = await store.threads(ThreadQuery(USER, limit=2, after=first.after))
        assert first.after is not None
        assert (len(second.threads), second.after) == (2, None)

    async def test_threads_changed_at_the_same_time_are_all_listed(self, store: Store) -> None:
        names = {f"t{number}" for number in range(9)}
        for name in names:
            await store.commit(create(name))
        threads = await every_thread(store, ThreadQuery(USER, limit=2))
        assert len(threads) == 9
        assert {thread.thread_id for thread in threads} == names

    async def test_thread_made_between_two_pages_disturbs_neither(
        self, store: Store, clock: SettableClock
    ) -> None:
        names = await made(store, clock, 4)
        first = await store.threads(ThreadQuery(USER, limit=2))
        await store.commit(create("late"))
        second = await store.threads(ThreadQuery(USER, limit=2, after=first.after))
        assert ids(first) + ids(second) == names

    async def test_foreign_threads_are_never_listed(self, store: Store) -> None:
        for number in range(3):
            await store.commit(create(f"of-bob-{number}", user="bob"))
        await store.commit(create("of-ann", user="ann"))
        assert ids(await store.threads(ThreadQuery("ann"))) == ["of-ann"]
        assert ids(await store.threads(ThreadQuery("Ann"))) == []
        assert ids(await store.threads(ThreadQuery(""))) == []
        assert ids(await store.threads(ThreadQuery("%"))) == []

    async def test_cursor_of_another_user_shows_only_ones_own(
        self, store: Store, clock: SettableClock
    ) -> None:
        for number in range(3):
            for user in ("ann", "bob"):
                await store.commit(create(f"{user}-{number}", user=user))
                clock.advance(1)
        foreign = (await store.threads(ThreadQuery("bob", limit=1))).after
        page = await store.threads(ThreadQuery("ann", after=foreign))
        assert {thread.user_id for thread in page.threads} == {"ann"}

    @pytest.mark.parametrize(
        "nonsense",
        [
            "nonsense",
            "",
            "%%%",
            "é",
            "a" * 5000,
            *(
                base64.urlsafe_b64encode(text).decode()
                for text in (b"\xff\xfe", b"2030-01-01", b"2030-01-01T00:00:00 t", b"0 0")
            ),
        ],
    )
    async def test_nonsense_cursor_is_refused(
        self, store: Store, clock: SettableClock, nonsense: str
    ) -> None:
        await made(store, clock, 2)
        with pytest.raises(InvalidCursor):
            await store.threads(ThreadQuery(USER, after=nonsense))

    async def test_surface_and_session_narrow_the_list(self, store: Store) -> None:
        for surface in ("chats", "tasks"):
            for session in ("s1", "s2"):
                name = f"{surface}-{session}"
                await store.commit(create(name, surface=surface, session=session))
        by_surface = await store.threads(ThreadQuery(USER, surface="chats"))
        assert set(ids(by_surface)) == {"chats-s1", "chats-s2"}
        by_session = await store.threads(ThreadQuery(USER, session_id="s2"))
        assert set(ids(by_session)) == {"chats-s2", "tasks-s2"}
        by_both = await store.threads(ThreadQuery(USER, surface="tasks", session_id="s1"))
        assert ids(by_both) == ["tasks-s1"]
        assert ids(await store.threads(ThreadQuery(USER, surface="Chats"))) == []

    async def test_labels_narrow_the_list_over_all_pages(
        self, store: Store, clock: SettableClock
    ) -> None:
        for number in range(6):
            head = (await store.commit(create(f"t{number}"))).thread
            pinned = {"pinned": True} if number % 2 else {"pinned": None}
            changed = ThreadChanged(metadata={**pinned, "place": "bin" if number == 5 else None})
            await store.commit(append(head, changed))
            clock.advance(1)
        for labels, wanted in (
            ({"pinned": True}, ["t5", "t3", "t1"]),
            ({"pinned": None}, ["t4", "t2", "t0"]),
            ({"pinned": True, "place": None}, ["t3", "t1"]),
            ({"place": "elsewhere"}, []),
        ):
            threads = await every_thread(store, ThreadQuery(USER, labels=labels, limit=2))
            assert [thread.thread_id for thread in threads] == wanted

    async def test_filters_hold_over_all_pages(self, store: Store, clock: SettableClock) -> None:
        for number in range(10):
            surface = "chats" if number % 2 else "tasks"
            await store.commit(create(f"t{number}", surface=surface))
            clock.advance(1)
        threads = await every_thread(store, ThreadQuery(USER, surface="chats", limit=2))
        assert [thread.thread_id for thread in threads] == ["t9", "t7", "t5", "t3", "t1"]

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
