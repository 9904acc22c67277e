"""`kind: Sequential`: tasks one after the other, each by its agent.

A task sees what was said before the first one, every earlier task's message and its answer; what
tools an earlier agent used is that agent's own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from pydantic import BaseModel

from sk_agents.engine.engine import Engine
from sk_agents.engine.models import Part, Usage
from sk_agents.http.caller import Caller
from sk_agents.ska_types import EmbeddedImage
from sk_agents.skagents.conversation import Utterance, embedded_part, utterances
from sk_agents.skagents.models import Failure, Output, Outputs
from sk_agents.skagents.turn import Finished, Piece, Spoken, Turn, Turns
from sk_agents.skagents.v1.config import SequentialConfig, Task
from sk_agents.skagents.v1.render import Envelope
from sk_agents.skagents.v1.structured import StructuredOutput


class SequentialHandler:
    """`address` gives an agent's name in the engine, `source` is the file's name for clients."""

    def __init__(
        self,
        config: SequentialConfig,
        source: str,
        address: Callable[[str], str],
        output: StructuredOutput | None = None,
    ) -> None:
        self._tasks = config.tasks
        self._source = source
        self._address = address
        self._output = output
        self._turns = Turns()

    def invoke_stream(self, engine: Engine, inputs: BaseModel, caller: Caller) -> Outputs:
        envelope = Envelope.of(inputs, self._source, self._turns.ids)
        return self._stream(engine, envelope, _Work(inputs), caller)

    async def _stream(
        self, engine: Engine, envelope: Envelope, work: _Work, caller: Caller
    ) -> Outputs:
        for number, task in enumerate(self._tasks, 1):
            is_last = number == len(self._tasks)
            parts = work.message(task, self._demand if is_last else "")
            schema = self._output.response_schema if is_last and self._output else None
            turn = Turn(self._address(task.agent), parts, tuple(work.past), schema)
            done: Finished | None = None
            async with aclosing(self._turns.take(engine, turn, caller)) as batches:
                async for batch in batches:
                    done = next((piece for piece in batch if isinstance(piece, Finished)), None)
                    if outputs := list(_shown(envelope, batch, is_last)):
                        yield outputs
            if done is None:
                return
            work.take(task, parts, done)
            if not is_last:
                yield [envelope.intermediate(number, task.name, done)]
        yield [await self._final(envelope, work.done)]

    @property
    def _demand(self) -> str:
        return self._output.demand if self._output is not None else ""

    async def _final(self, envelope: Envelope, done: Finished) -> Output:
        if self._output is None:
            return envelope.final(done)
        fitted = await self._output.fit(done.text)
        if isinstance(fitted, Failure):
            return fitted
        return envelope.final(replace(done, usage=done.usage + fitted.usage), fitted.value)


class _Work:
    """What the tasks of one request share. `done` has the last text and the sum of the rest."""

    def __init__(self, inputs: BaseModel) -> None:
        self._values = dict(inputs)
        self.past = utterances(self._values.pop("chat_history", None))
        self._image: Part | None = None
        if isinstance(self._values.get("embedded_image"), EmbeddedImage):
            self._image = embedded_part(self._values.pop("embedded_image"))
        self.done = Finished("", Usage())

    def message(self, task: Task, demand: str) -> tuple[Part, ...]:
        """The first task gets the image; the others find it in what was said before."""
        text = Part(content=task.instructions.rendered(self._values) + demand)
        image, self._image = self._image, None
        return (text, image) if image is not None else (text,)

    def take(self, task: Task, parts: tuple[Part, ...], done: Finished) -> None:
        self._values[f"_{task.name}"] = done.text
        self.past.append(Utterance("user", parts))
        self.past.append(Utterance("assistant", (Part(content=done.text),)))
        self.done = Finished(
            done.text,
            self.done.usage + done.usage,
            self.done.extra_data + done.extra_data,
        )


def _shown(envelope: Envelope, pieces: Sequence[Piece], is_last: bool) -> Iterator[Output]:
    for piece in pieces:
        match piece:
            case Spoken() if is_last:
                yield envelope.partial(piece.text)
            case Failure():
                yield piece
