"""Which models can look at the pictures that tools return, and read PDFs, by their names.

A model that cannot would refuse the whole request, so an unknown name counts as one that cannot;
`sees_images` and `reads_pdfs` in an agent file say otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

OPENAI = "api.openai.com"
# The first pattern that is found in a name decides.
_SIGHTED: Sequence[tuple[str, bool]] = (
    (r"gpt-3|gpt-4-32k|gpt-4-0|gpt-4$|gpt-oss|o1-(mini|preview)|o3-mini", False),
    (r"(audio|realtime|transcribe|tts|search-preview|codex-mini)", False),
    (r"gpt-(4|5)|chatgpt-4o|o[134](-|$)", True),
    (r"claude-(instant|2)", False),
    (r"claude", True),
    (r"gemini-1\.0-pro$|gemma-?3-?(270m|1b)|gemma-?3:(270m|1b)", False),
    (r"gemini|gemma-?3", True),
    (r"(^|[^a-z])vl([^a-z]|$)|vision|llava|pixtral|moondream|internvl|minicpm-v", True),
    (r"llama-?4|grok-[4-9]|mistral-(small|medium)|magistral", True),
)
_PATTERNS = tuple((re.compile(rf"(^|[^a-z]){pattern}"), sees) for pattern, sees in _SIGHTED)


def sees_images(model: str) -> bool:
    name = model.lower().rpartition("/")[2]
    return next((sees for pattern, sees in _PATTERNS if pattern.search(name)), False)


def reads_pdfs(model: str, api: str, host: str) -> bool:
    """A PDF is read by looking at its pages. Of the servers that speak OpenAI's protocol only its
    own is known to take one."""
    if api in ("chat", "responses") and host != OPENAI:
        return False
    return api in ("chat", "responses", "anthropic", "gemini") and sees_images(model)
