"""A thread's head has a digest of its whole log."""

from dataclasses import replace

from sk_agents.engine.log.chain import chain_start, extended, last_chain, rebuilt
from sk_agents.engine.log.commits import Absent, Commit, Unchanged, admit
from sk_agents.engine.models import EPOCH, NewThread, Thread
from sk_agents.engine.ports import StoredRecord
from sk_agents.testing.commits import thought

RECORDS = [StoredRecord(1, "c1", b"one"), StoredRecord(3, "c2", b"two"), StoredRecord(4, "c3", b"")]


def head(chain: str = "1:", **fields: object) -> Thread:
    commit = Commit("t", "made", Absent(NewThread(user_id="ann")))
    made = admit(commit, None, leased=False, approval=None, now=EPOCH).thread
    return made._replace(next_seq=5, chain=chain)._replace(**fields)  # type: ignore[arg-type]


def test_every_change_of_a_record_changes_the_chain() -> None:
    first, second, third = RECORDS
    changed = [
        [first, replace(second, body=b"twO"), third],
        [first, replace(second, commit_id="c9"), third],
        [first, replace(second, first_seq=2), third],
        [second, first, third],
        [first, third],
        [first, second],
        [first, replace(second, commit_id="c2 ", body=b"wo"), third],
    ]
    chains = {last_chain(head(), records) for records in (RECORDS, *changed)}
    assert len(chains) == 1 + len(changed)


def test_the_same_records_chain_otherwise_in_another_thread_or_for_another_user() -> None:
    others = [head(thread_id="u"), head(user_id="bob"), head(incarnation="again"), head("3:")]
    assert len({last_chain(other, RECORDS) for other in (head(), *others)}) == 5


def test_chain_begins_where_it_says() -> None:
    old = head("")
    assert last_chain(old, RECORDS) == ""
    late = extended(old, "", 3, "c2", b"two")
    assert chain_start(late) == 3
    places = list(rebuilt(head(late), RECORDS))
    assert places[:2] == [(1, ""), (3, "")]
    assert places[2] == (4, late)


def test_commit_without_events_leaves_the_chain_as_it_is() -> None:
    before = head("1:abc")
    commit = Commit("t", "c", Unchanged(before.next_seq))
    again = admit(commit, before, leased=False, approval=None, now=EPOCH, body=b"{}")
    assert again.thread.chain == before.chain


def test_store_that_keeps_no_bytes_has_no_chain() -> None:
    before = head("1:abc")
    commit = Commit("t", "c", Unchanged(before.next_seq), (thought(),))
    assert admit(commit, before, leased=False, approval=None, now=EPOCH).thread.chain == ""
