"""What a user sends along with a request, as the engine takes it."""

from __future__ import annotations

from sk_agents.documents.pdf import PdfReaders, PdfUnreadable
from sk_agents.engine.models import Attachment, Part, UserInput
from sk_agents.exceptions import InvalidInput
from sk_agents.wire.files import PDF_TYPE, pdf_bytes
from sk_agents.wire.requests import EditInteraction, Item, StartInteraction


async def user_input(body: StartInteraction | EditInteraction, pdfs: PdfReaders) -> UserInput:
    """The message and what was sent along with it.

    Raises:
        InvalidInput: a PDF cannot be read.
    """
    text = body.user_message if isinstance(body, StartInteraction) else body.new_user_message
    parts = [await _part(item, pdfs) for item in body.items]
    return UserInput(parts=(Part(content=text), *parts))


async def _part(item: Item, pdfs: PdfReaders) -> Part:
    match item.content_type:
        case "image":
            return Part(kind="image", content=item.content, name=item.name)
        case "text":
            return Part(kind="file", content=item.content, name=item.name)
        case "pdf":
            return await _pdf(item, pdfs)


async def _pdf(item: Item, pdfs: PdfReaders) -> Part:
    """Its text beside it: not every model reads a PDF, and what cannot be read is said now."""
    data = pdf_bytes(item.content)
    try:
        found = await pdfs.read(data)
    except PdfUnreadable as error:
        raise InvalidInput(f"{item.name or 'The PDF'} {error}") from None
    return Part(
        kind="file",
        content=found.text,
        name=item.name,
        original=Attachment(media_type=PDF_TYPE, uri=item.content, size=len(data)),
        pages=found.pages,
    )
