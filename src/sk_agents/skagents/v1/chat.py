"""`kind: Chat`: one agent answers the last message of a conversation."""

from __future__ import annotations

from contextlib import aclosing

from pydantic import BaseModel

from sk_agents.engine.engine import Engine
from sk_agents.exceptions import InvalidInput
from sk_agents.http.caller import Caller
from sk_agents.skagents.conversation import Utterance, context_utterance, utterances
from sk_agents.skagents.models import Failure, Output, Outputs
from sk_agents.skagents.turn import Finished, Piece, Spoken, Turn, Turns
from sk_agents.skagents.v1.render import Envelope


class ChatHandler:
    """`agent` is its name in the engine, `source` its name for clients."""

    def __init__(self, agent: str, source: str) -> None:
        self._agent = agent
        self._source = source
        self._turns = Turns()

    def invoke_stream(self, engine: Engine, inputs: BaseModel, caller: Caller) -> Outputs:
        *past, last = _conversation(inputs)
        envelope = Envelope.of(inputs, self._source, self._turns.ids)
        return self._stream(engine, envelope, Turn(self._agent, last.parts, past), caller)

    async def _stream(
        self, engine: Engine, envelope: Envelope, turn: Turn, caller: Caller
    ) -> Outputs:
        async with aclosing(self._turns.take(engine, turn, caller)) as batches:
            async for batch in batches:
                yield [_output(envelope, piece) for piece in batch]


def _conversation(inputs: BaseModel) -> list[Utterance]:
    """All there is to say to the model, the message to answer last.

    Raises:
        InvalidInput: there is none, or it is the assistant's own.
    """
    said = [
        *context_utterance(getattr(inputs, "user_context", None)),
        *utterances(getattr(inputs, "chat_history", None)),
    ]
    if not said or said[-1].role != "user":
        raise InvalidInput("chat_history must end with a message of the user.")
    return said


def _output(envelope: Envelope, piece: Piece) -> Output:
    match piece:
        case Spoken():
            return envelope.partial(piece.text)
        case Finished():
            return envelope.final(piece)
        case Failure():
            return piece
