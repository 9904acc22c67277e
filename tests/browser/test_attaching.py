"""Pictures pasted and dropped, notifications asked for."""

from __future__ import annotations

from playwright.async_api import expect

from tests.browser.tab import WAIT_MS, Tab
from tests.browser.test_conversation import picture

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
    await tab.sees(".composer .problem", "a.bin is neither a picture nor text.")
    await tab.sees_count(".attachments", 0)
    tab.check()


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
