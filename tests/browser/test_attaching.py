"""Pictures, PDFs and texts pasted, dropped and chosen; notifications asked for."""

from __future__ import annotations

from playwright.async_api import FilePayload, expect

from tests.browser.tab import WAIT_MS, Tab
from tests.browser.test_conversation import picture
from tests.pdfs import locked_pdf, pdf_of

# A file as the browser hands it to a page, with the event in which it does.
HAND_OVER = """([bytes, name, type, event]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name, {type}));
  const target = document.querySelector('#composer');
  const made = event === 'paste'
    ? new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})
    : new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true});
  target.dispatchEvent(made);
}"""
# A browser without a window refuses notifications, whatever it is told.
GRANTED = "Object.defineProperty(Notification, 'permission', {get: () => 'granted'})"


async def test_picture_is_pasted_and_dropped_and_removed(tab: Tab) -> None:
    pixels = list(picture())
    await tab.page.evaluate(HAND_OVER, [pixels, "a.png", "image/png", "paste"])
    await tab.sees_count(".attachments img", 1)
    await tab.page.evaluate(HAND_OVER, [pixels, "b.png", "image/png", "drop"])
    await tab.sees_count(".attachments img", 2)
    await tab.button("Remove a.png").click()
    await tab.sees_count(".attachments img", 1)
    tab.check()


async def test_file_that_nobody_can_read_is_refused_with_a_reason(tab: Tab) -> None:
    await tab.page.evaluate(HAND_OVER, [[0, 1, 2], "a.bin", "application/x", "drop"])
    await tab.sees(".composer .problem", "a.bin is neither a picture, a PDF nor text.")
    await tab.sees_count(".attachments", 0)
    tab.check()


async def test_pdf_and_long_text_are_sent_and_stay_closed(tab: Tab) -> None:
    bill = pdf_of("Total 12")
    await tab.page.evaluate(HAND_OVER, [list(bill), "bill.pdf", "application/pdf", "drop"])
    log = "".join(f"line {number}\n" for number in range(140_000))
    payload: FilePayload = {"name": "a.log", "mimeType": "", "buffer": log.encode()}
    await tab.page.set_input_files("input[type=file]", files=[payload])
    await tab.sees_count(".attachments li", 2)
    await tab.page.locator("#composer").press_sequentially("pay it", delay=0)
    await tab.page.press("#composer", "Enter")
    await tab.ended()
    await tab.page.reload()
    said = tab.page.locator(".said").last
    await tab.sees(said, "bill.pdf")
    await expect(said.locator("pre")).not_to_be_visible()
    await said.locator("summary").focus()
    await tab.page.keyboard.press("Enter")
    await tab.sees(said.locator("pre"), "line 0")
    await expect(said.locator("pre")).not_to_contain_text("line 2000")
    async with tab.page.expect_download() as saving:
        await said.locator("button.sent-file").click()
    saved = await (await saving.value).path()
    assert saved.read_bytes() == bill
    tab.check()


async def test_file_that_is_too_large_is_refused_with_its_limit(tab: Tab) -> None:
    files = [
        ("a.log", "text/plain", 2 * 1024 * 1024 + 1, "a.log is larger than 2 MB."),
        ("a.pdf", "application/pdf", 8 * 1024 * 1024 + 1, "a.pdf is larger than 8 MB."),
    ]
    for name, kind, size, words in files:
        payload: FilePayload = {"name": name, "mimeType": kind, "buffer": b"x" * size}
        await tab.page.set_input_files("input[type=file]", files=[payload])
        await tab.sees(".composer .problem", words)
    large = b"%PDF-" + bytes(6 * 1024 * 1024)
    pdfs: list[FilePayload] = [
        {"name": name, "mimeType": "application/pdf", "buffer": large}
        for name in ("b.pdf", "c.pdf")
    ]
    await tab.page.set_input_files("input[type=file]", files=pdfs)
    await tab.sees(".composer .problem", "c.pdf: a message takes 12 MB of files in all.")
    await tab.sees_count(".attachments li", 1)
    tab.check()


async def test_pdf_that_cannot_be_read_comes_back_with_the_reason(tab: Tab) -> None:
    locked = list(locked_pdf("sesame"))
    await tab.page.evaluate(HAND_OVER, [locked, "a.pdf", "application/pdf", "paste"])
    await tab.sees_count(".attachments li", 1)
    await tab.say("read it")
    await tab.sees(".composer .problem", "a.pdf is protected by a password.")
    await expect(tab.page.locator("#composer")).to_have_value("read it")
    await tab.sees_count(".attachments li", 1)


async def test_notifications_are_asked_for_not_assumed(tab: Tab) -> None:
    asked = "() => Notification.permission"
    assert await tab.page.evaluate(asked) != "granted"
    await tab.page.add_init_script(GRANTED)
    await tab.page.reload()
    await tab.page.locator(".inbox-button").click()
    await tab.sees("dialog", "You are notified when a call waits for you.")
    await tab.button("Close").click()
    await expect(tab.page.locator("dialog")).to_have_count(0, timeout=WAIT_MS)
    tab.check()
