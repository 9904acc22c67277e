"""The messages of a prompt are a sequence like any other, fixed when the prompt was made."""

import pytest

from sk_agents.engine.events import BranchChanged
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import Message
from sk_agents.engine.run.conversation import Conversation, Past, Transcript
from tests.engine import builders as b

SYSTEM = Message(role="system", content="be kind")


def said(*texts: str) -> list[Message]:
    return [Message(role="user", content=text) for text in texts]


def conversation(past: list[Message], now: list[Message]) -> Conversation:
    return Conversation((SYSTEM,), Past(past), now)


@pytest.mark.parametrize("now", [[], ["c"], ["c", "d"]])
def test_conversation_reads_like_the_list_of_its_messages(now: list[str]) -> None:
    past, current = said("a", "b"), said(*now)
    talk = conversation(past, current)
    whole = [SYSTEM, *past, *current]
    assert (list(talk), len(talk), bool(talk)) == (whole, len(whole), True)
    places = range(-len(whole), len(whole))
    assert [talk[at] for at in places] == [whole[at] for at in places]
    assert (talk[1:], talk[-2:], talk[::-1]) == (whole[1:], whole[-2:], whole[::-1])
    assert list(reversed(talk)) == whole[::-1]
    with pytest.raises(IndexError):
        talk[len(whole)]


def test_prompt_does_not_grow_with_the_conversation_after_it() -> None:
    past = said("a")
    earlier = conversation(past, said("b"))
    past += said("b", "c")
    assert [message.content for message in earlier] == ["be kind", "a", "b"]
    assert (len(earlier), earlier[-2].content) == (3, "a")


def test_past_stays_the_same_object_until_the_branch_changes() -> None:
    """A model client keeps what it has made of it by this object."""
    transcript, events = Transcript(), b.log(*b.turn("r1"), *b.turn("r2", parent="r1"))
    state = fold(events)
    transcript.follow(state)
    past = transcript.past
    assert len(past.messages) == 4
    transcript.follow(state)
    assert transcript.past is past
    state.apply(b.log(*events, BranchChanged(head_run="r1"))[-1])
    transcript.follow(state)
    assert transcript.past is not past
    assert len(transcript.past.messages) == 2


def test_nothing_said_is_an_empty_conversation() -> None:
    assert not Conversation((), Past(), [])
