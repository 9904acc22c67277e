"""PDFs in requests: data URIs whose bytes begin as a PDF does. What is in one is read elsewhere."""

from __future__ import annotations

import binascii

MAX_PDF_BYTES = 8 * 1024 * 1024
PDF_TYPE = "application/pdf"
PDF_URI = f"data:{PDF_TYPE};base64,"
# Readers look for the mark among the first bytes: mailers put some before it.
MARK, MARK_WITHIN = b"%PDF-", 1024


def checked_pdf(uri: str) -> str:
    """The data URI itself.

    Raises:
        ValueError: not a data URI of a PDF, or one that is too large.
    """
    if not uri.startswith(PDF_URI):
        raise ValueError("must be a data URI of a PDF in base64; addresses are not fetched")
    if len(uri) - len(PDF_URI) > MAX_PDF_BYTES * 4 // 3 + 4:
        raise ValueError(f"must have at most {MAX_PDF_BYTES} bytes")
    try:
        data = pdf_bytes(uri)
    except binascii.Error:
        raise ValueError("is not base64") from None
    if not is_pdf(data):
        raise ValueError("is not a PDF")
    return uri


def pdf_bytes(uri: str) -> bytes:
    return binascii.a2b_base64(uri[len(PDF_URI) :], strict_mode=True)


def is_pdf(data: bytes) -> bool:
    return MARK in data[:MARK_WITHIN]
