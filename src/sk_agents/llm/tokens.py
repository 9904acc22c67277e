"""How many tokens a text will be, without the model's own tokenizer.

Tokenizers are large downloads, so this counts characters by the script they belong to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import orjson

from sk_agents.engine.models import Message, Part
from sk_agents.engine.turns import Prompt, ToolSpec

# Tokens per character, by how many bytes UTF-8 gives it: Latin letters and code; Cyrillic, Greek,
# Arabic and accented letters; Chinese, Japanese, Korean and Indic scripts; emoji.
WEIGHTS = (0.27, 0.55, 1.0, 2.2)
# The first byte of a character says its length; the others say nothing.
_LEADS = (range(0x00, 0x80), range(0xC0, 0xE0), range(0xE0, 0xF0), range(0xF0, 0x100))
_NOT_LEADING = tuple(bytes(b for b in range(256) if b not in leads) for leads in _LEADS)

MESSAGE_OVERHEAD = 4
CALL_OVERHEAD = 8
TOOL_OVERHEAD = 8
IMAGE_TOKENS = 1_100
DEFAULT_WINDOW = 8_192
# What Ollama gives a model by default, however much the model could take; it then cuts the prompt
# without a message.
OLLAMA_WINDOW = 4_096

# The first pattern that fits the name decides; the provider's prefix is not part of it.
WINDOWS: Sequence[tuple[str, int]] = (
    (r"gpt-4\.1", 1_047_576),
    (r"gpt-5", 400_000),
    (r"gpt-4o|gpt-4-turbo|chatgpt-4o", 128_000),
    (r"gpt-4-32k", 32_768),
    (r"gpt-4", 8_192),
    (r"gpt-3\.5", 16_385),
    (r"gpt-oss", 131_072),
    (r"o1-mini|o1-preview", 128_000),
    (r"o[1345](-|$)", 200_000),
    (r"claude-(instant|2)", 100_000),
    (r"claude", 200_000),
    (r"gemini-1\.0", 32_768),
    (r"gemini", 1_048_576),
    (r"gemma-?3", 131_072),
    (r"gemma", 8_192),
    (r"llama-?4", 1_000_000),
    (r"llama-?3\.[123]", 131_072),
    (r"llama-?3", 8_192),
    (r"llama-?2", 4_096),
    (r"mixtral|mistral-7b|open-mistral", 32_768),
    (r"mistral|codestral|devstral|ministral|magistral", 131_072),
    (r"deepseek", 131_072),
    (r"qwen-?(3|2\.5)", 131_072),
    (r"qwen", 32_768),
    (r"phi-?[34]", 131_072),
    (r"command-r|command-a", 131_072),
    (r"grok", 131_072),
    (r"kimi", 131_072),
    (r"smollm", 8_192),
)
_WINDOWS = tuple((re.compile(rf"(^|[^a-z]){pattern}"), size) for pattern, size in WINDOWS)


def context_window(model: str, override: int | None = None) -> int:
    """Tokens that prompt and answer may have together; a cautious number for unknown names."""
    if override is not None:
        return override
    provider, _, name = model.lower().rpartition("/")
    size = next((size for pattern, size in _WINDOWS if pattern.search(name)), DEFAULT_WINDOW)
    return min(size, OLLAMA_WINDOW) if provider.startswith("ollama") else size


def estimate_text(text: str) -> int:
    """Never zero for a text that is not empty."""
    if not text:
        return 0
    if text.isascii():
        return int(len(text) * WEIGHTS[0]) + 1
    data = text.encode("utf-8", "replace")
    counts = (len(data.translate(None, others)) for others in _NOT_LEADING)
    return int(sum(count * w for count, w in zip(counts, WEIGHTS, strict=True))) + 1


def estimate_message(message: Message) -> int:
    tokens = MESSAGE_OVERHEAD + estimate_text(message.content)
    for part in message.parts:
        tokens += IMAGE_TOKENS if part.kind == "image" else _estimate_file(part)
    for call in message.tool_calls:
        tokens += CALL_OVERHEAD + estimate_text(call.name) + estimate_value(call.arguments)
    return tokens


def _estimate_file(part: Part) -> int:
    tokens = estimate_text(part.content)
    return max(tokens, IMAGE_TOKENS * (part.pages or 0)) if part.original is not None else tokens


def estimate_tool(spec: ToolSpec) -> int:
    texts = estimate_text(spec.name) + estimate_text(spec.description)
    return TOOL_OVERHEAD + texts + estimate_value(spec.parameters)


def estimate_prompt(prompt: Prompt) -> int:
    tokens = sum(map(estimate_message, prompt.messages)) + sum(map(estimate_tool, prompt.tools))
    if prompt.response_schema is not None:
        tokens += estimate_value(prompt.response_schema)
    return tokens


def estimate_value(value: object) -> int:
    """A value as the JSON that the model will read."""
    try:
        return estimate_text(orjson.dumps(value, default=dict).decode())
    except TypeError:
        return estimate_text(str(value))
