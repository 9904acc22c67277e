"""Files as a message carries them."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

from sk_agents.wire.files import MAX_PDF_BYTES, PDF_URI, is_pdf
from sk_agents.wire.images import MAX_IMAGE_BYTES, picture_type
from sk_agents.wire.requests import MAX_FILE_BYTES

MOST = max(MAX_IMAGE_BYTES, MAX_PDF_BYTES)


def file_item(path: Path | str) -> dict[str, Any]:
    """The file as one of the `items` of a message: a picture, a PDF or a text, by its content.

    Raises:
        ValueError: it cannot be read, is too large or empty, or is none of these.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(MOST + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if (kind := picture_type(data)) is not None:
        _check_size(path, data, MAX_IMAGE_BYTES, "a picture")
        return _item("image", f"data:{kind};base64,{b64encode(data).decode()}", path)
    if is_pdf(data):
        _check_size(path, data, MAX_PDF_BYTES, "a PDF")
        return _item("pdf", PDF_URI + b64encode(data).decode(), path)
    _check_size(path, data, MAX_FILE_BYTES, "a text")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        kinds = "text nor a PNG, JPEG, GIF or WebP picture nor a PDF"
        raise ValueError(f"{path} is neither {kinds}") from None
    if not text.strip():
        raise ValueError(f"{path} is empty")
    return _item("text", text, path)


def _check_size(path: Path, data: bytes, most: int, what: str) -> None:
    if len(data) > most:
        raise ValueError(f"{path} is too large: {what} may have {most} bytes")


def _item(content_type: str, content: str, path: Path) -> dict[str, Any]:
    return {"content_type": content_type, "content": content, "name": path.name}
