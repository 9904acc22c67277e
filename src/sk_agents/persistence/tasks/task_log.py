"""A thread's log in the metadata of its task: sealed records, word for word as written."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import ValidationError

from sk_agents import exceptions as errors
from sk_agents.engine.log.commits import Absent, Admission, Commit, Unchanged, admit
from sk_agents.engine.models import Entry, StoredModel, Thread
from sk_agents.persistence.encoding import (
    decode_head,
    decode_record,
    encode_events,
    encode_head,
    head_checksum,
    record_checksum,
)
from sk_agents.persistence.memory.store import ThreadLog
from sk_agents.persistence.tasks.view import creation_events, new_thread, task_of
from sk_agents.ska_types import VERSION_KEY, AgentTask

# Where the log lies in a task's metadata.
KEY = "_log"
FORMAT = 1
IMPORT_ID = "import"


def new_version() -> str:
    return secrets.token_hex(8)


class SealedRecord(StoredModel):
    commit_id: str
    first_seq: int
    body: str
    check: int


class LogDocument(StoredModel):
    """What lies under `KEY`. The bytes of a head or record are kept as text."""

    version: int = FORMAT
    head: str
    head_check: int
    records: tuple[SealedRecord, ...] = ()


@dataclass(slots=True)
class TaskLog(ThreadLog):
    """A log with its bytes. Never changed in place: a longer one takes its place once stored.

    `version` is the stored task's, another one for each write; `None` if another program wrote it.
    """

    records: tuple[SealedRecord, ...] = ()
    version: str | None = field(default_factory=new_version)

    @classmethod
    def of(cls, task: AgentTask) -> Self:
        """The log in this task; a task made by another program becomes the start of one.

        Raises:
            StateCorrupt: the log is damaged, or the task is not the one it belongs to.
            SchemaTooNew: a newer version wrote it.
        """
        if KEY not in task.metadata:
            return cls._imported(task)
        document = _document(task)
        head = decode_head(task.task_id, document.head.encode(), document.head_check)
        log = cls(task.task_id, head, records=document.records, version=task.version)
        for sealed in document.records:
            if sealed.first_seq != len(log.events) + 1:
                raise errors.StateCorrupt("A stored record is missing.", thread_id=task.task_id)
            place = (task.task_id, sealed.first_seq, sealed.commit_id)
            body = sealed.body.encode()
            record = decode_record(*place, body, sealed.check, head.incarnation)
            log.events.extend(record.events)
            log.commits[record.commit_id] = record
        if head.next_seq != len(log.events) + 1:
            raise errors.StateCorrupt("The log ends before its head says.", thread_id=task.task_id)
        if (head.thread_id, head.user_id) != (task.task_id, task.user_id):
            raise errors.StateCorrupt("The task's owner is not its log's.", thread_id=task.task_id)
        return log

    @classmethod
    def _imported(cls, task: AgentTask) -> Self:
        # The same each time this task is read, and another once that program has changed it: what
        # is known of it is void then.
        times = task.created_at.isoformat(), task.last_updated_at.isoformat()
        commit_id = "-".join((IMPORT_ID, *times, str(len(task.items))))
        commit = Commit(task.task_id, commit_id, Absent(new_thread(task)), creation_events(task))
        now = task.last_updated_at
        admission = admit(commit, None, leased=False, approval=None, now=now)
        log = cls(task.task_id).grown(commit_id, admission, encode_events(admission.events, now))
        log.version = task.version
        return log

    @property
    def size(self) -> int:
        return sum(len(sealed.body) for sealed in self.records)

    def grown(self, commit_id: str, admission: Admission, body: bytes) -> Self:
        """This log with one more commit, whose events are `body`. Shares nothing with `admission`.
        Raises InvalidInput: what was written cannot be read back, such as lists nested too deep."""
        longer = self.with_head(admission.thread)
        if admission.events:
            first_seq = admission.events[0].seq
            identity = admission.thread.incarnation
            check = record_checksum(self.thread_id, first_seq, commit_id, body, identity)
            try:
                record = decode_record(self.thread_id, first_seq, commit_id, body, check, identity)
            except errors.StateCorrupt as error:
                raise errors.InvalidInput("An event holds a value that cannot be kept.") from error
            longer.events.extend(record.events)
            longer.commits[commit_id] = record
            sealed = SealedRecord(
                commit_id=commit_id, first_seq=first_seq, body=body.decode(), check=check
            )
            longer.records = (*self.records, sealed)
        return longer

    def with_head(self, head: Thread) -> Self:
        """This log with another head, of which it keeps a copy."""
        events, commits = list(self.events), dict(self.commits)
        return type(self)(self.thread_id, deepcopy(head), events, commits, self.records)

    def follows(self, earlier: ThreadLog) -> bool:
        """Whether this can be what became of `earlier`: nothing of it is missing here."""
        before, now = earlier.known_head(), self.known_head()
        if now.incarnation != before.incarnation:
            return True
        begins = list(self.commits)[: len(earlier.commits)] == list(earlier.commits)
        return begins and (now.next_seq, now.epoch) >= (before.next_seq, before.epoch)

    def task(self) -> AgentTask:
        """The task to store: its items and status follow from the log."""
        head = self.known_head()
        task = task_of(head, self.events)
        task.metadata[KEY] = self.document().model_dump()
        task.metadata[VERSION_KEY] = self.version
        return task

    def document(self) -> LogDocument:
        body = encode_head(self.known_head())
        check = head_checksum(self.thread_id, body)
        return LogDocument(head=body.decode(), head_check=check, records=self.records)

    def entries(self) -> Sequence[Entry]:
        """All rows of the index that this log gives, in its order: a later one replaces."""
        head = self.known_head()
        again = Commit(self.thread_id, "", Unchanged(head.next_seq), tuple(self.events))
        return admit(again, head, leased=False, approval=None, now=head.updated_at).entries


def _document(task: AgentTask) -> LogDocument:
    stored: Any = task.metadata[KEY]
    try:
        document = LogDocument.model_validate(stored)
    except ValidationError as error:
        raise errors.StateCorrupt("A task's log cannot be read.", thread_id=task.task_id) from error
    if document.version > FORMAT:
        raise errors.SchemaTooNew(thread_id=task.task_id)
    return document
