"""A chat as files a person can read, derived from the log and never read back as truth.

`chat.json` names the chat and its interactions, `interactions/int_*.json` holds each of them with
everything said up to its end. They are written when a thread comes to rest, after its log; behind
it they can only be for the time a crash takes, and then they are made again.

Of an encrypted chat there is only a `chat.json`, without anything that was said in it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

from sk_agents.engine.log.state import ThreadState
from sk_agents.engine.models import SERVER_LOG, Thread
from sk_agents.exceptions import StateCorrupt
from sk_agents.interactions import interaction_of
from sk_agents.persistence.cache import ByteBoundedCache
from sk_agents.persistence.file.log import FileLog, LogIdentity
from sk_agents.persistence.file.tree import FileTree, Place, safe_name

logger = logging.getLogger(__name__)

CHAT = "chat.json"
INTERACTIONS = "interactions"
FORMAT = 1
MAX_CACHED_BYTES = 32 * 1024 * 1024

_PAGE = 1000
_PREFIX = "int_"


@dataclass(slots=True)
class FoldedThread:
    """A thread's state, and up to where the files show it."""

    identity: LogIdentity
    shown: int
    state: ThreadState = field(default_factory=ThreadState)


class FileProjection:
    """Called with the thread's log held for writing, so that no older state overwrites a newer."""

    def __init__(self, tree: FileTree, *, encrypted: bool = False) -> None:
        self._tree = tree
        self._encrypted = encrypted
        self._folded: ByteBoundedCache[FoldedThread] = ByteBoundedCache(MAX_CACHED_BYTES)
        self._behind: set[str] = set()

    def shown_seq(self, folder: Place) -> int:
        """The last event that the chat's files show; -1 if there are none that can be read."""
        try:
            shown = json.loads(self._tree.read((*folder, CHAT)) or b"")["last_seq"]
        except (ValueError, KeyError, TypeError):
            return -1
        return shown if isinstance(shown, int) else -1

    def show(self, log: FileLog) -> None:
        """Bring the files up to the log. The log is durable: a failure is logged once."""
        if log.thread_id.startswith(SERVER_LOG):
            return  # no chat, and as long as the server is old
        try:
            self._show(log)
            self._behind.discard(log.thread_id)
        except (OSError, StateCorrupt) as error:
            self._folded.drop(log.thread_id)
            if log.thread_id not in self._behind:
                self._behind.add(log.thread_id)
                logger.warning(
                    "the readable files of a thread are behind its log",
                    extra={"thread_id": log.thread_id, "reason": str(error)},
                )

    def _show(self, log: FileLog) -> None:
        if self._encrypted:
            self._write((*log.folder, CHAT), encrypted_chat_document(log.head))
            return
        folded = self._state_of(log)
        state = folded.state
        changed: dict[str, None] = {}
        while state.next_seq < log.known.next_seq:
            for event in log.events_after(state.next_seq - 1, _PAGE):
                state.apply(event)
                if event.seq > folded.shown and event.run_id in state.runs:
                    changed[event.run_id] = None
        for run_id in changed:
            interaction = interaction_of(state, run_id).model_dump(mode="json")
            self._write((*log.folder, INTERACTIONS, interaction_file(run_id)), interaction)
        if changed:
            # The chat's own file says up to where these are true, so they must be safe first.
            self._tree.sync_folder((*log.folder, INTERACTIONS))
        self._write((*log.folder, CHAT), chat_document(log.head, state))
        folded.shown = state.next_seq - 1
        self._folded.put(log.thread_id, folded, 2 * log.known.size)

    def _state_of(self, log: FileLog) -> FoldedThread:
        found = self._folded.get(log.thread_id)
        if (
            found is not None
            and found.identity == log.known.identity
            and found.state.next_seq <= log.known.next_seq
        ):
            return found
        return FoldedThread(log.known.identity, self.shown_seq(log.folder))

    def _write(self, place: Place, document: dict[str, Any]) -> None:
        text = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
        self._tree.write(place, text.encode(errors="surrogatepass"))


def chat_document(head: Thread, state: ThreadState) -> dict[str, Any]:
    """What `chat.json` says: the chat's metadata, its interactions by id, and the log it shows."""
    title = head.metadata.get("title")
    return {
        "format": FORMAT,
        "id": head.wire_id or head.thread_id,
        "created_at": head.created_at.isoformat(),
        **({"title": title} if title is not None else {}),
        "agent": head.agent,
        "user_id": head.user_id,
        "thread_id": head.thread_id,
        "interactions": list(state.runs),
        "current_interaction": state.head_run,
        "last_seq": state.next_seq - 1,
    }


def encrypted_chat_document(head: Thread) -> dict[str, Any]:
    """What `chat.json` says of an encrypted chat: ids, a time and how long its log is."""
    return {
        "format": FORMAT,
        "id": head.wire_id or head.thread_id,
        "created_at": head.created_at.isoformat(),
        "user_id": head.user_id,
        "thread_id": head.thread_id,
        "encrypted": True,
        "last_seq": head.next_seq - 1,
    }


def interaction_file(run_id: str) -> str:
    name = safe_name(run_id)
    return f"{name if name.startswith(_PREFIX) else _PREFIX + name}.json"
