"""A thread's log inside a task's metadata: sealed records, word for word as they were written."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

from pydantic import ValidationError

from sk_agents.engine.log.commits import Absent, Admission, Commit, Unchanged, admit
from sk_agents.engine.models import Entry, StoredModel, Thread
from sk_agents.exceptions import InvalidInput, SchemaTooNew, StateCorrupt
from sk_agents.persistence.head import decode_head, encode_head, head_checksum
from sk_agents.persistence.record import checksum, decode_record, encode_events
from sk_agents.persistence.tasks.view import creation_events, new_thread, task_of
from sk_agents.persistence.thread_log import ThreadLog
from sk_agents.ska_types import AgentTask

KEY = "_log"
FORMAT = 1
IMPORT_ID = "import"


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
    """A log with its bytes. Never changed in place: a longer one takes its place once stored."""

    records: tuple[SealedRecord, ...] = ()

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
        log = cls(task.task_id, head, records=document.records)
        for sealed in document.records:
            if sealed.first_seq != len(log.events) + 1:
                raise StateCorrupt("A stored record is missing.", thread_id=task.task_id)
            record = decode_record(
                task.task_id,
                sealed.first_seq,
                sealed.commit_id,
                sealed.body.encode(),
                sealed.check,
                head.incarnation,
            )
            log.events.extend(record.events)
            log.commits[record.commit_id] = record
        if head.next_seq != len(log.events) + 1:
            raise StateCorrupt("The log ends before its head says.", thread_id=task.task_id)
        if (head.thread_id, head.user_id) != (task.task_id, task.user_id):
            raise StateCorrupt("The task's owner is not its log's.", thread_id=task.task_id)
        return log

    @classmethod
    def _imported(cls, task: AgentTask) -> Self:
        # The same each time this task is read, and another for one made later with its id.
        commit_id = f"{IMPORT_ID}-{task.created_at.isoformat()}"
        commit = Commit(task.task_id, commit_id, Absent(new_thread(task)), creation_events(task))
        now = task.last_updated_at
        admission = admit(commit, None, leased=False, approval=None, now=now)
        return cls(task.task_id).grown(commit_id, admission, encode_events(admission.events, now))

    @property
    def size(self) -> int:
        return sum(len(sealed.body) for sealed in self.records)

    def grown(self, commit_id: str, admission: Admission, body: bytes) -> Self:
        """This log with one more commit, whose events are `body`. Shares nothing with `admission`.

        Raises:
            InvalidInput: what was written cannot be read back, such as lists nested too deep.
        """
        longer = self.with_head(admission.thread)
        if admission.events:
            first_seq = admission.events[0].seq
            identity = admission.thread.incarnation
            check = checksum(self.thread_id, first_seq, commit_id, body, identity)
            try:
                record = decode_record(self.thread_id, first_seq, commit_id, body, check, identity)
            except StateCorrupt as error:
                raise InvalidInput("An event holds a value that cannot be kept.") from error
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

    def task(self) -> AgentTask:
        """The task to store: its items and status tell what the log tells."""
        head = self.known_head()
        task = task_of(head, self.events)
        task.metadata[KEY] = self.document().model_dump()
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
        raise StateCorrupt("A task's log cannot be read.", thread_id=task.task_id) from error
    if document.version > FORMAT:
        raise SchemaTooNew(thread_id=task.task_id)
    return document
