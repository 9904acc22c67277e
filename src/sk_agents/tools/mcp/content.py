"""A tool result's parts as text for a model. Nothing that a part points to is fetched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, assert_never

from pydantic_core import to_json

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock, EmbeddedResource

MOST_TEXT = 4 * 1024 * 1024


def text_of_result(result: CallToolResult) -> str:
    """All parts, one after the other; structured content where no text says the same."""
    # Imported with the first call: the library takes a third of a second.
    import mcp_types  # noqa: PLC0415

    parts = [text for block in result.content for text in _texts(block)]
    has_text = any(isinstance(block, mcp_types.TextContent) for block in result.content)
    if result.structured_content is not None and not has_text:
        parts.append(to_json(result.structured_content).decode())
    text = "\n".join(parts) or "(The tool returned nothing.)"
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "\n[cut]"


def _texts(block: ContentBlock) -> Iterator[str]:
    match block.type:
        case "text":
            yield block.text
        case "image" | "audio":
            yield f"[{block.type}: {block.mime_type}, {_size(block.data)} bytes, not shown]"
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            yield f"[resource {block.uri} ({block.name}){about}]"
        case "resource":
            yield from _resource(block)
        case _:
            assert_never(block.type)


def _resource(block: EmbeddedResource) -> Iterator[str]:
    import mcp_types  # noqa: PLC0415 - as above

    resource = block.resource
    if isinstance(resource, mcp_types.TextResourceContents):
        yield f"[resource {resource.uri}]\n{resource.text}"
    else:
        kind = resource.mime_type or "binary"
        yield f"[resource {resource.uri}: {kind}, {_size(resource.blob)} bytes, not shown]"


def _size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")
