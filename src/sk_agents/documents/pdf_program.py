"""A program of its own: a PDF on its input, its text and the number of its pages on its output.

It is run by its path, so that nothing but the library is imported, and bounds itself: a hostile
file must take neither the memory nor the time of the server. `pdf.py` starts and ends it.
"""

from __future__ import annotations

import io
import json
import resource
import sys

from pypdf import PasswordType, PdfReader

MAX_MEMORY = 512 * 1024 * 1024


def main() -> None:
    seconds, max_pages, max_text = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    # No file is written, whatever the library is made to do.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        found = read(sys.stdin.buffer.read(), max_pages, max_text)
    except MemoryError:
        found = {"problem": "is too large to be read."}
    except Exception as error:  # what a broken file makes of the library
        found = {"problem": f"is damaged and cannot be read ({type(error).__name__})."}
    sys.stdout.write(json.dumps(found))


def read(data: bytes, max_pages: int, max_text: int) -> dict[str, object]:
    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and reader.decrypt("") is PasswordType.NOT_DECRYPTED:
        return {"problem": "is protected by a password. Remove the password and send it again."}
    pages = len(reader.pages)
    if not pages:
        return {"problem": "has no pages."}
    return {"pages": pages, "text": _text(reader, min(pages, max_pages), max_text)}


def _text(reader: PdfReader, pages: int, max_text: int) -> str:
    texts: list[str] = []
    left, has_text = max_text, False
    for number in range(pages):
        # Halves of characters cannot be stored, NUL is refused everywhere else.
        page = reader.pages[number].extract_text().replace("\0", "")
        page = page.encode("utf-8", "replace").decode().strip()
        has_text = has_text or bool(page)
        texts.append(f"[page {number + 1}]\n{page}"[:left])
        left -= len(texts[-1])
        if left <= 0:
            texts.append(f"[the text is cut here, on page {number + 1} of {len(reader.pages)}]")
            break
    if not has_text:
        return f"[The PDF has {len(reader.pages)} pages and no text: they are pictures.]"
    if pages < len(reader.pages):
        texts.append(f"[the other {len(reader.pages) - pages} pages are left out]")
    return "\n\n".join(texts)


if __name__ == "__main__":
    main()
