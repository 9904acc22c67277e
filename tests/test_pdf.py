"""What is in a PDF is read by another process, which ends whatever is in it."""

from __future__ import annotations

import asyncio

import pytest

from sk_agents.documents.pdf import MAX_PAGES, PdfReaders, PdfUnreadable
from tests.patience import seconds
from tests.pdfs import hostile_pdf, locked_pdf, pdf_of


async def test_text_comes_page_by_page() -> None:
    found = await PdfReaders().read(pdf_of("Invoice 4711", "Total 12"))
    assert (found.pages, found.text) == (2, "[page 1]\nInvoice 4711\n\n[page 2]\nTotal 12")


async def test_scanned_pages_are_said_to_have_no_text() -> None:
    found = await PdfReaders().read(pdf_of("", ""))
    assert found.text == "[The PDF has 2 pages and no text: they are pictures.]"


async def test_pages_beyond_the_limit_are_counted_and_left_out() -> None:
    found = await PdfReaders().read(pdf_of(*["x"] * (MAX_PAGES + 5)))
    assert found.pages == MAX_PAGES + 5
    assert found.text.endswith("[the other 5 pages are left out]")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (locked_pdf("open sesame"), "is protected by a password"),
        (b"%PDF-1.7\nnothing of use", "is damaged and cannot be read"),
        (pdf_of("cut off")[:300], "is damaged and cannot be read"),
        (pdf_of(), "has no pages"),
    ],
    ids=["locked", "broken", "cut", "empty"],
)
async def test_unreadable_file_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(PdfUnreadable, match=reason):
        await PdfReaders().read(data)


async def test_file_whose_password_is_empty_is_read() -> None:
    assert "secret" in (await PdfReaders().read(locked_pdf(""))).text


async def test_hostile_file_is_given_up_while_others_are_read() -> None:
    readers = PdfReaders(seconds=2)
    async with asyncio.timeout(seconds(30)):
        hostile, plain = await asyncio.gather(
            readers.read(hostile_pdf(20)),
            PdfReaders().read(pdf_of("fine")),
            return_exceptions=True,
        )
    assert isinstance(hostile, PdfUnreadable)
    assert not isinstance(plain, BaseException) and "fine" in plain.text
