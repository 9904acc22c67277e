"""What ids may look like on the wire. Anything else is refused before it is looked up.

One thing has one spelling: ids are plain ASCII and matched whole, so that neither a trailing
newline nor a full-width digit, a path or a pattern of some store can be one.
"""

from __future__ import annotations

import re

from sk_agents.exceptions import InvalidInput

CHAT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def chat_id(text: str) -> str:
    """`text`, if it can be the id of a chat.

    Raises:
        InvalidInput: it cannot.
    """
    if not CHAT_ID.fullmatch(text):
        raise InvalidInput("An id is 1 to 64 letters, digits, '_' or '-'.")
    return text


def canonical_uuid(text: str) -> str:
    """`text`, if it is a UUID in its canonical form: lower case, with hyphens, nothing around it.

    Raises:
        InvalidInput: it is not; other spellings would be second names of the same thing.
    """
    if not _UUID.fullmatch(text):
        raise InvalidInput("An id is a UUID in lower case with hyphens.")
    return text
