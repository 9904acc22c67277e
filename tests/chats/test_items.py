"""Images, PDFs and text files sent along with a message."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

from sk_agents.testing.scripted_model import says
from tests.chats.serving import id_of, serving
from tests.pdfs import locked_pdf, pdf_item, pdf_of


def png(width: int = 1, height: int = 1) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    )


def uri(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"content_type": "text", "content": content, **more}


def image(content: str) -> dict[str, Any]:
    return {"content_type": "image", "content": content}


async def test_images_and_files_reach_the_model_and_are_read_back(tmp_path: Path) -> None:
    items = [image(uri(png())), text("a,b\n1,2", name="table.csv"), text("unnamed")]
    async with serving(tmp_path, [says("Nice."), says("Nicer."), says("Again.")]) as served:
        frames = await served.say("look", body={"items": items})
        [stored] = (await served.get("/chats/c"))["interactions"]
        path = f"/chats/c/interactions/{id_of(frames)}"
        await served.read(
            "POST", f"{path}/edit", json={"new_user_message": "look here", "items": items[:1]}
        )
        [edited] = (await served.get("/chats/c"))["interactions"]
        await served.read("POST", f"{path}/regenerate")
        sent = [request["messages"][-1]["content"] for request in served.model.requests]
    assert stored["user_message"] == "look"
    assert stored["items"] == [{"name": None, **item} for item in items]
    assert edited["items"] == [{"name": None, **items[0]}]
    said, picture, *files = sent[0]
    assert said == {"type": "text", "text": "look"}
    assert picture == {"type": "image_url", "image_url": {"url": items[0]["content"]}}
    assert [part["type"] for part in files] == ["text", "text"]
    assert files[0]["text"].endswith("table.csv:\na,b\n1,2")
    assert files[1]["text"].endswith(":\nunnamed")
    assert sent[1:] == [[{"type": "text", "text": "look here"}, picture], sent[0]]


REFUSED: list[Any] = [
    [text("x")] * 33,
    [text("")],
    [text("  ")],
    [{"content_type": "text"}],
    [{"content_type": "video", "content": "x"}],
    [{"content": "x"}],
    [text("x", role="system")],
    [text("x", name="n" * 256)],
    [text("x", name="")],
    [text("x" * (2 * 1024 * 1024 + 1))],
    [pdf_item(b"no PDF")],
    [pdf_item(b"%PDF-1.7 of nothing")],
    [pdf_item(locked_pdf("sesame"))],
    [{"content_type": "pdf", "content": "https://example.org/a.pdf"}],
    [pdf_item(b"%PDF-" + bytes(8 * 1024 * 1024))],
    [image("https://example.org/cat.png")],
    [image("data:image/png;base64,AAAA")],
    [image("data:image/png;base64,not base64!")],
    [image(uri(b"<svg onload='x'/>", "image/svg+xml"))],
    [image(uri(b"<svg onload='x'/>"))],
    [image(uri(b"GIF89a" + png()[6:], "image/png"))],
    [image(uri(png(60_000, 60_000)))],
    [image(uri(png(0, 0)))],
    "text",
    [1],
    None,
]


async def test_items_that_cannot_be_are_refused_and_nothing_runs(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for items in REFUSED:
            body = {"user_message": "look", "items": items}
            answer = await served.client.post("/chats/c/interactions", json=body)
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), items
            assert "canary" not in answer.text
        assert (await served.client.get("/chats/c")).status_code == 404
        assert served.model.requests == []


async def test_items_are_taken_up_to_their_limits(tmp_path: Path) -> None:
    most = 2 * 1024 * 1024
    taken = [
        [],
        [text("x")] * 32,
        [text("x" * most)],
        [text("é" * (most // 2))],
        [image(uri(png(7_071, 7_071)))],
        [text("x", name="n" * 255)],
    ]
    async with serving(tmp_path, [says("ok")] * len(taken)) as served:
        for items in taken:
            await served.say(body={"items": items})
        assert len(served.model.requests) == len(taken)


async def test_pdf_reaches_a_model_as_text_and_is_read_back_whole(tmp_path: Path) -> None:
    item = pdf_item(pdf_of("Invoice 4711", "Total 12"))
    async with serving(tmp_path, [says("Paid."), says("Again.")]) as served:
        frames = await served.say("pay", body={"items": [item]})
        await served.read("POST", f"/chats/c/interactions/{id_of(frames)}/regenerate")
        [stored] = (await served.get("/chats/c"))["interactions"]
        document = (await served.client.get("/chats/c/export")).json()
        await served.client.post("/chats/import?chat_id=copy", json=document)
        [copied] = (await served.get("/chats/copy"))["interactions"]
        sent = [request["messages"][-1]["content"] for request in served.model.requests]
    assert stored["items"] == copied["items"] == [item]
    text = "pay\nFile report.pdf:\n[page 1]\nInvoice 4711\n\n[page 2]\nTotal 12"
    assert sent == [text, text]
    assert str(document).count(item["content"]) == 1


async def test_pdf_goes_as_it_is_to_a_model_that_reads_it(tmp_path: Path) -> None:
    item = pdf_item(pdf_of("Invoice 4711"))
    async with serving(tmp_path, [says("Paid.")], agent={"reads_pdfs": True}) as served:
        await served.say("pay", body={"items": [item]})
        [request] = served.model.requests
    assert request["messages"][-1]["content"][1] == {
        "type": "file",
        "file": {"filename": "report.pdf", "file_data": item["content"]},
    }


async def test_pdf_that_cannot_be_read_is_refused_with_its_reason(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        body = {"user_message": "pay", "items": [pdf_item(locked_pdf("sesame"))]}
        answer = await served.client.post("/chats/c/interactions", json=body)
    assert answer.json()["detail"].startswith("report.pdf is protected by a password.")


async def test_of_a_redacted_pdf_the_text_alone_is_kept(tmp_path: Path) -> None:
    item = pdf_item(pdf_of("call me at ann@example.org"))
    async with serving(
        tmp_path, [says("ok")], agent={"redact": {"patterns": ["ann@[a-z.]+"]}}
    ) as served:
        await served.say("read", body={"items": [item]})
        [stored] = (await served.get("/chats/c"))["interactions"]
        prompt = str(served.model.requests[0]["messages"])
    assert "ann@example.org" not in prompt
    [kept] = stored["items"]
    assert kept["content_type"] == "text"
    assert kept["content"].startswith("[page 1]\ncall me at")


async def test_file_larger_than_the_window_is_cut_with_a_note(tmp_path: Path) -> None:
    large = "".join(f"line {number}\n" for number in range(150_000))
    agent = {"context": {"window": 20_000, "reserve": 2_000}}
    async with serving(tmp_path, [says("ok"), says("ok")], agent=agent) as served:
        await served.say("read", body={"items": [text(large, name="log.txt")]})
        await served.say("and now?")
        [stored, _] = (await served.get("/chats/c"))["interactions"]
        first, second = [str(request["messages"]) for request in served.model.requests]
    assert stored["items"][0]["content"] == large
    assert len(first) < 4 * 20_000
    assert "line 0" in first and "line 149999" in first
    assert "characters are left out here; the whole file does not fit" in first
    assert "(with the file log.txt, which is not shown any more)" in second
