"""Small PDFs, made by hand."""

from __future__ import annotations

import io
import zlib
from base64 import b64encode

from pypdf import PdfReader, PdfWriter


def pdf_of(*pages: str) -> bytes:
    """A PDF with one line of text on each page."""
    return _pdf([f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode() for text in pages])


def hostile_pdf(megabytes: int) -> bytes:
    """A small file with a page that takes long to read."""
    return _pdf([b"BT /F1 12 Tf " + b"(x) Tj " * (megabytes * 150_000) + b"ET"])


def locked_pdf(password: str) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf_of("secret"))))
    writer.encrypt(password, algorithm="AES-256")
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def pdf_item(data: bytes, name: str = "report.pdf") -> dict[str, str]:
    content = f"data:application/pdf;base64,{b64encode(data).decode()}"
    return {"content_type": "pdf", "content": content, "name": name}


def _pdf(contents: list[bytes]) -> bytes:
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(contents)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, content in enumerate(contents):
        packed = zlib.compress(content)
        page = (
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * number} 0 R >>"
        )
        head = f"<< /Length {len(packed)} /Filter /FlateDecode >>\nstream\n".encode()
        objects += [page.encode(), head + packed + b"\nendstream"]
    out = bytearray(b"%PDF-1.7\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for place in places:
        out += b"%010d 00000 n \n" % place
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\n" % (len(objects) + 1)
    return bytes(out + b"startxref\n%d\n%%%%EOF\n" % start)
