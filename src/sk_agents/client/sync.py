"""The client for scripts without an event loop of their own.

The asynchronous client runs on a loop in a thread; these are its calls, waited for. So it also
works where a loop is running already, as in a notebook.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping, Sequence
from threading import Thread
from typing import Any, Literal, Self, TypeVar, Unpack

from sk_agents.client.connection import GIVE_UP_AFTER, SILENCE_SECONDS, Token
from sk_agents.client.reply import Reply
from sk_agents.client.teal_client import (
    AgentInfo,
    Chat,
    DecisionOptions,
    EditOptions,
    History,
    MessageOptions,
    RunOptions,
    TealClient,
)
from sk_agents.wire.events import ApprovalRequired, Event
from sk_agents.wire.views import (
    ApprovalView,
    ChatSummary,
    FilledPrompt,
    MeView,
    Processed,
    PromptList,
    ResourceItems,
    ResourceList,
)

Value = TypeVar("Value")


class LoopThread:
    """An event loop in a thread, from `start` to `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="teal-client", daemon=True)
        self._is_stopped = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def wait_for(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Whatever interrupts the waiting, such as Ctrl-C, also cancels the work."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def each(self, values: AsyncGenerator[Value, None]) -> Generator[Value, None, None]:
        # A step that was interrupted may still be on its way out when the generator is closed.
        lock = asyncio.Lock()

        async def step() -> list[Value]:
            async with lock:
                async for value in values:
                    return [value]
                return []

        async def close() -> None:
            async with lock:
                await values.aclose()

        try:
            while found := self.wait_for(step()):
                yield from found
        finally:
            # What the loop left behind it has closed itself.
            if not self._is_stopped:
                self.wait_for(close())

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())


class SyncTeal:
    """Open it with `with`. What has no method here is one `run` away: `teal.run(teal.client.x())`.

    Generators hold a connection until they are exhausted or closed.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: Token = None,
        user: str | None = None,
        give_up_after: float = GIVE_UP_AFTER,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self.client = TealClient(
            base_url, token=token, user=user, give_up_after=give_up_after, silence=silence
        )
        self._thread: LoopThread | None = None

    def __enter__(self) -> Self:
        self._thread = LoopThread()
        self._thread.start()
        self.run(self.client.__aenter__())
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._thread is not None:
            self.run(self.client.__aexit__(*exc_info))
            self._thread.stop()
            self._thread = None

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        """The result of one of the asynchronous client's calls."""
        return self.loop.wait_for(work)

    def each(self, values: AsyncGenerator[Value, None]) -> Generator[Value, None, None]:
        """What one of the asynchronous client's generators gives."""
        return self.loop.each(values)

    @property
    def loop(self) -> LoopThread:
        if self._thread is None:
            raise RuntimeError("The client is not open: use `with SyncTeal(...)`.")
        return self._thread

    def chat(self, chat_id: str) -> SyncChat:
        return SyncChat(self, self.client.chat(chat_id))

    def create(
        self, chat_id: str | None = None, *, agent: str | None = None, title: str | None = None
    ) -> ChatSummary:
        return self.run(self.client.create(chat_id, agent=agent, title=title))

    def chats(
        self, text: str | None = None, *, tag: str | None = None
    ) -> Generator[ChatSummary, None, None]:
        return self.each(self.client.chats(text))

    def approvals(self) -> Generator[ApprovalView, None, None]:
        return self.each(self.client.approvals())

    def agents(self) -> Sequence[AgentInfo]:
        return self.run(self.client.agents())

    def prompts(self, agent: str | None = None) -> PromptList:
        return self.run(self.client.prompts(agent))

    def fill_prompt(
        self,
        server: str,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        agent: str | None = None,
    ) -> FilledPrompt:
        return self.run(self.client.fill_prompt(server, name, arguments, agent=agent))

    def resources(self, agent: str | None = None) -> ResourceList:
        return self.run(self.client.resources(agent))

    def read_resource(self, server: str, uri: str, *, agent: str | None = None) -> ResourceItems:
        return self.run(self.client.read_resource(server, uri, agent=agent))

    def me(self) -> MeView:
        return self.run(self.client.me())


class SyncChat:
    """As `Chat`, waited for."""

    def __init__(self, teal: SyncTeal, chat: Chat) -> None:
        self.id = chat.id
        self.chat = chat
        self._teal = teal

    def say(self, message: str, **options: Unpack[MessageOptions]) -> Generator[Event, None, None]:
        return self._teal.each(self.chat.say(message, **options))

    def edit(
        self, interaction_id: str, message: str, **options: Unpack[EditOptions]
    ) -> Generator[Event, None, None]:
        return self._teal.each(self.chat.edit(interaction_id, message, **options))

    def regenerate(
        self, interaction_id: str, **options: Unpack[RunOptions]
    ) -> Generator[Event, None, None]:
        return self._teal.each(self.chat.regenerate(interaction_id, **options))

    def watch(
        self, interaction_id: str | None = None, *, after: str | int | None = None
    ) -> Generator[Event, None, None]:
        return self._teal.each(self.chat.watch(interaction_id, after=after))

    def ask(self, message: str, **options: Unpack[MessageOptions]) -> Reply:
        return self._teal.run(self.chat.ask(message, **options))

    def wait(self, reply: Reply) -> Reply:
        return self._teal.run(self.chat.wait(reply))

    def approve(self, approval: ApprovalRequired, **options: Unpack[DecisionOptions]) -> Processed:
        return self._teal.run(self.chat.approve(approval, **options))

    def reject(self, approval: ApprovalRequired, **options: Unpack[DecisionOptions]) -> Processed:
        return self._teal.run(self.chat.reject(approval, **options))

    def steer(self, interaction_id: str, message: str, *, key: str | None = None) -> str:
        return self._teal.run(self.chat.steer(interaction_id, message, key=key))

    def cancel(self, interaction_id: str, *, after: Literal["step"] | None = None) -> bool:
        return self._teal.run(self.chat.cancel(interaction_id, after=after))

    def history(self, *, superseded: bool = False, state: bool = True) -> History:
        return self._teal.run(self.chat.history(superseded=superseded, state=state))
