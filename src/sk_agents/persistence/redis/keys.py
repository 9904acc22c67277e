"""Where everything lies.

What a commit needs of a thread lies in one hash slot: the part of a key in braces decides on it. An
id in a key is percent-encoded, so that no brace in it moves a key elsewhere.

What crosses threads only says where to look: each of these is compared with the thread before it is
believed. In a cluster they lie in other slots than the thread; see `index`.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from sk_agents.engine.models import EntryKind

# What percent-encoding leaves as it is.
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]*")


class Keys:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        # The schema's version, the generation of the data, and how threads are encrypted.
        self.about = f"{prefix}:{{about}}"
        # By owner until when its leases hold, in seconds of the server's clock.
        self.owners = f"{prefix}:{{owners}}"
        # By run when it was last marked as read, in seconds of the server's clock.
        self.watched = f"{prefix}:{{watched}}"
        # Sums with the time at which they are forgotten; their keys in order; those times.
        self.counters = f"{prefix}:{{counters}}"
        self.counter_names = f"{prefix}:{{counters}}:names"
        self.counter_ends = f"{prefix}:{{counters}}:ends"
        # The ids of all threads, in order.
        self.threads = f"{prefix}:{{threads}}"
        # By runnable thread its owner, or nothing.
        self.runnable = f"{prefix}:{{runnable}}"

    def head(self, thread_id: str) -> str:
        """`mark` is another one after each write; `body` and `check` are the head's bytes."""
        return f"{self.prefix}:{{t:{_quoted(thread_id)}}}:head"

    def log(self, thread_id: str) -> str:
        """A stream of records, each under the number of its first event."""
        return f"{self.prefix}:{{t:{_quoted(thread_id)}}}:log"

    def entries(self, thread_id: str) -> str:
        """The thread's own entries, by kind and key."""
        return f"{self.prefix}:{{t:{_quoted(thread_id)}}}:entries"

    def place(self, kind: EntryKind, key: str) -> str:
        """The thread in which this entry lies."""
        return f"{self.prefix}:{{e:{kind}:{_quoted(key)}}}"

    def user_threads(self, user_id: str) -> str:
        """A user's threads, by when they were changed."""
        return f"{self.prefix}:{{u:{_quoted(user_id)}}}:threads"

    def open(self, kind: EntryKind, user_id: str) -> str:
        """A user's open entries; see `member`."""
        return f"{self.prefix}:{{u:{_quoted(user_id)}}}:open:{kind}"

    def due(self, kind: EntryKind) -> str:
        """Open entries by when they are due, in microseconds; see `member`."""
        return f"{self.prefix}:{{due}}:{kind}"


def member(key: str, thread_id: str) -> bytes:
    """An entry in a sorted set: in the order of the entries' keys."""
    return f"{key}\0{_quoted(thread_id)}".encode("utf-8", "surrogatepass")


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text):  # as nearly all ids are; to find out is a tenth of the work
        return text
    return quote(text, safe="", errors="surrogatepass")
