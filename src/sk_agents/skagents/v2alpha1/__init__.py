"""`skagents/v2alpha1`: one agent that chats in texts and images, served by v1's `ChatHandler`.

Its input is always a conversation of texts and images, its output a text.
"""

from __future__ import annotations

import logging

from pydantic import BaseModel

from sk_agents.config.agent_file import AgentFile
from sk_agents.ska_types import BaseMultiModalInput

logger = logging.getLogger(__name__)

INPUT_TYPE: type[BaseModel] = BaseMultiModalInput


def warn_of_types(file: AgentFile) -> None:
    """Types that files carry over from `skagents/v1` have no meaning here."""
    for field in ("input_type", "output_type"):
        if file.document.get(field) not in (None, INPUT_TYPE.__name__):
            logger.warning("%s: %s is ignored in %s", file.path, field, file.api_version)
