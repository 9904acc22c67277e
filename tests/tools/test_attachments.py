"""What tools return beside text is kept beside it, and never becomes base64 in a prompt."""

import base64
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from sk_agents.engine.models import Attachment
from sk_agents.tools import ToolFile
from sk_agents.tools.agents_sdk.function_tools import _result as sdk_result
from sk_agents.tools.attachments import file_attachment, result_of

PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + b"\0\0\0\x01" * 2 + b"rest"
GIF = b"GIF89a\x01\0\x01\0rest"
DATA = base64.b64encode(PNG).decode()
LINE = f"[picture: image/png, {len(PNG)} bytes]"


class Plot:
    """As Pillow's and other libraries' pictures are."""

    def _repr_png_(self) -> bytes:
        return PNG


class KernelPicture:
    """As Semantic Kernel's binary content is."""

    data_uri = f"data:image/png;base64,{DATA}"


class Report(BaseModel):
    title: str
    plot: bytes


def bytes_of(attachment: Attachment) -> bytes:
    return base64.b64decode(attachment.uri.partition(",")[2])


@pytest.mark.parametrize(
    ("returned", "text", "types"),
    [
        ("plain", "plain", []),
        ({"a": [1]}, '{"a":[1]}', []),
        (PNG, LINE, ["image/png"]),
        (bytearray(GIF), f"[picture: image/gif, {len(GIF)} bytes]", ["image/gif"]),
        (b"\0\1", "[file: application/octet-stream, 2 bytes]", ["application/octet-stream"]),
        (Plot(), LINE, ["image/png"]),
        (KernelPicture(), LINE, ["image/png"]),
        (f"data:image/png;base64,{DATA}", LINE, ["image/png"]),
        (ToolFile(b"%PDF", name="a.pdf"), "[file a.pdf: application/pdf, 4 bytes]", None),
        (ToolFile(b"a", "audio/wav"), "[audio: audio/wav, 1 bytes]", ["audio/wav"]),
        (["two", PNG, GIF], None, ["image/png", "image/gif"]),
        ({"plot": PNG, "n": 1}, f'{{"plot":"{LINE}","n":1}}', ["image/png"]),
        ([{"deep": (PNG,)}], f'[{{"deep":["{LINE}"]}}]', ["image/png"]),
        (Report(title="T", plot=PNG), f'{{"title":"T","plot":"{LINE}"}}', ["image/png"]),
    ],
)
def test_files_become_attachments_and_the_rest_text(
    returned: Any, text: str | None, types: list[str] | None
) -> None:
    result = result_of(returned)
    assert text is None or result.content == text
    assert DATA[:20] not in result.content
    if types is not None:
        assert [one.media_type for one in result.attachments] == types


def test_bytes_come_back_as_they_were() -> None:
    (attachment,) = result_of(PNG).attachments
    assert (bytes_of(attachment), attachment.size, attachment.is_picture) == (PNG, len(PNG), True)


@pytest.mark.parametrize("claimed", ["image/png", "IMAGE/PNG; q=1", "image/webp"])
def test_what_is_only_said_to_be_a_picture_is_a_file(claimed: str) -> None:
    attachment = file_attachment(b"<script>", claimed, "x.png")
    assert (attachment.media_type, attachment.is_picture) == ("application/octet-stream", False)
    assert file_attachment(PNG, claimed, None).media_type == "image/png"


@pytest.mark.parametrize("claimed", ["", "nonsense", "a/b\r\nX-Y: z", "text/html\x00"])
def test_nonsense_is_no_media_type(claimed: str) -> None:
    assert file_attachment(b"x", claimed, None).media_type == "application/octet-stream"


def test_picture_that_is_too_large_for_models_is_a_file() -> None:
    huge = PNG[:16] + b"\0\1\0\0" * 2 + b"rest"
    assert file_attachment(huge, None, None).media_type == "application/octet-stream"


def test_drawings_that_may_hold_scripts_are_no_pictures() -> None:
    assert not file_attachment(b"<svg/>", "image/svg+xml", "a.svg").is_picture


def test_result_that_holds_itself_ends() -> None:
    loop: list[Any] = [PNG]
    loop.append(loop)
    assert len(result_of(loop).attachments) < 20


@pytest.mark.parametrize(
    ("given", "text", "found"),
    [
        (
            SimpleNamespace(type="image", image_url=f"data:image/png;base64,{DATA}"),
            LINE,
            [("image/png", None)],
        ),
        (
            [{"type": "text", "text": "see"}, {"type": "file", "file_data": DATA, "filename": "a"}],
            f"see\n[picture a: image/png, {len(PNG)} bytes]",
            [("image/png", "a")],
        ),
        (
            {"type": "file", "file_url": "https://a.example/b.pdf", "filename": "b.pdf"},
            "[link https://a.example/b.pdf (b.pdf)]",
            [("application/octet-stream", "b.pdf")],
        ),
        ({"type": "file", "file_data": "no base64!"}, "[file: it cannot be read]", []),
        (PNG, LINE, [("image/png", None)]),
    ],
)
def test_images_and_files_of_the_sdk_are_attachments(
    given: Any, text: str, found: list[tuple[str, str | None]]
) -> None:
    result = sdk_result(given)
    assert result.content == text
    assert [(one.media_type, one.name) for one in result.attachments] == found


def test_link_is_kept_as_an_address() -> None:
    (link,) = sdk_result({"type": "image", "image_url": "https://a.example/x.png"}).attachments
    assert (link.is_link, link.is_picture, link.uri) == (True, False, "https://a.example/x.png")
    assert not replace(link, media_type="image/png").is_picture, "nothing fetches it"
