"""How answers are read: in a narrow window, in another script, on paper, in the list of chats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab

ANSWER = (
    """# Countries

- [x] a task that is done
- [ ] one that is open

| Country | Capital | Population | Currency | Language | Remark |
|---|---|--:|---|---|---|
| Germany | Berlin | 83,200,000 | Euro | German | A federal republic with sixteen states |
| France | Paris | 68,000,000 | Euro | French | The most visited country of the whole world |

```mermaid
graph LR
  One --> Two --> Three --> Four --> Five --> Six
```

هذا نص عربي.

"""
    + "One more paragraph.\n\n" * 40
)
LONG_WAY = [f"S{number}[Step {number}]" for number in range(20)]
SCRIPT: dict[str, Any] = {
    "turns": [{"text": ANSWER, "thinking": "It is **about** countries, see `table`."}],
    "rules": [
        {
            "match": "colour",
            "turns": [
                {"calls": [{"tool": "Bank-colour", "arguments": {"choices": ["red", "blue"]}}]},
                {"text": "Thank you."},
            ],
        },
        {"match": "nothing", "turns": [{"text": ""}]},
        {"match": "Arabic", "turns": [{"text": "هذا نص عربي.\n\n> اقتباس"}]},
        {"match": "context", "turns": [{"fail": "context"}]},
        {
            "match": "long way",
            "turns": [{"text": f"```mermaid\ngraph LR\n{' --> '.join(LONG_WAY)}\n```"}],
        },
    ],
}
# From the left edge of the line to the text in it.
INDENT = """(paragraph) => {
  const text = document.createRange();
  text.selectNodeContents(paragraph);
  return text.getBoundingClientRect().left - paragraph.getBoundingClientRect().left;
}"""

# The end of the conversation is what is shown.
AT_END = """() => {
  const view = document.querySelector('.conversation');
  return view.scrollHeight - view.scrollTop - view.clientHeight < 2;
}"""

# The conversation grows, and again before the browser has told the page that it has scrolled.
GROW_TWICE = """() => new Promise((resolve) => {
  const turns = document.querySelector('.turns');
  const grow = () => {
    const part = document.createElement('p');
    part.style.height = '300px';
    turns.append(part);
  };
  let times = 0;
  const growth = new ResizeObserver(() => {
    times += 1;
    if (times < 4) setTimeout(grow);
    else requestAnimationFrame(() => requestAnimationFrame(resolve));
  });
  growth.observe(turns);
})"""


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Server]:
    other = {"turns": [{"text": "Something else."}]}
    server = Server(
        tmp_path,
        write_agent(tmp_path / "agent", SCRIPT),
        write_agent(tmp_path / "other", other, name="other"),
    )
    server.start()
    try:
        yield server
    finally:
        server.kill()


async def answered(browser: Browser, server: Server, width: int) -> Tab:
    page = await browser.new_page(viewport={"width": width, "height": 800})
    tab = await Tab(page, server.url).open()
    await page.locator(".agent", has_text="banker").click()
    await tab.say("Which countries?")
    await tab.ended()
    return tab


async def test_rich_answer_is_readable_in_a_narrow_window(browser: Browser, reader: Server) -> None:
    tab = await answered(browser, reader, 390)
    answer = tab.turn().locator(".answer")
    for row in await answer.locator("tbody tr").all():
        # At most two lines: the table scrolls instead.
        assert (await row.evaluate("row => row.offsetHeight")) < 80
    picture = answer.locator(".diagram img")
    await expect(picture).to_be_visible(timeout=WAIT_MS)
    natural, shown = await picture.evaluate(
        "image => image.decode().then(() => [image.naturalWidth / image.naturalHeight,"
        " image.offsetWidth / image.offsetHeight])"
    )
    assert abs(natural - shown) < natural / 5
    task = answer.locator("li", has_text="one that is open")
    await expect(task).to_have_css("list-style-type", "none")
    assert await answer.locator("p", has_text="عربي").evaluate(INDENT) > 100
    await tab.sees(tab.turn().locator(".glimpse"), "It is about countries, see table.")
    tab.check()


async def test_reader_stays_at_the_end_whatever_grows(browser: Browser, reader: Server) -> None:
    tab = await answered(browser, reader, 1280)
    await expect(tab.turn().locator(".diagram img")).to_be_visible(timeout=WAIT_MS)
    await tab.page.evaluate(GROW_TWICE)
    await tab.page.wait_for_function(AT_END)
    await tab.page.fill("#composer", "line\n" * 8)
    await tab.page.wait_for_function(AT_END)
    await tab.page.set_viewport_size({"width": 1280, "height": 400})
    await tab.page.wait_for_function(AT_END)
    await tab.sees_count(".to-end", 0)
    await tab.page.reload()
    await expect(tab.turn().locator(".diagram img")).to_be_visible(timeout=WAIT_MS)
    await tab.page.wait_for_function(AT_END)
    tab.check()


async def test_passage_that_was_found_is_shown_without_the_marks_of_markdown(
    browser: Browser, reader: Server
) -> None:
    tab = await answered(browser, reader, 1280)
    await tab.page.fill("#search", "sixteen")
    await tab.sees(".passage", "sixteen")
    await tab.page.fill("#search", "Remark")
    await tab.sees(".passage", "Remark")
    assert "---" not in await tab.page.locator(".passage").first.inner_text()
    tab.check()


async def test_printed_chat_is_whole_and_has_nothing_to_press(
    browser: Browser, reader: Server
) -> None:
    tab = await answered(browser, reader, 1280)
    await tab.page.emulate_media(media="print")
    for part in (".sidebar", ".composer", ".turn-footer .icon-button", ".heading .menu"):
        await expect(tab.page.locator(part).first).to_be_hidden()
    place = tab.page.locator(".conversation")
    assert await place.evaluate("e => e.scrollHeight <= e.clientHeight")
    assert await tab.page.evaluate("document.documentElement.scrollHeight") > 1_600
    tab.check()


async def test_chat_whose_tool_asks_something_says_so_in_the_list(
    browser: Browser, reader: Server
) -> None:
    page = await browser.new_page()
    tab = await Tab(page, reader.url).open()
    await page.locator(".agent", has_text="banker").click()
    await tab.say("Choose a colour")
    await tab.sees(tab.call("Bank-colour"), "asks you something")
    await tab.button("New chat").click()
    await tab.sees(".chats .mark", "asks you something")
    await page.locator(".chats a").first.click()
    await tab.button("blue").click()
    await tab.ended()
    await tab.sees_count(".chats .mark", 0)
    tab.check()


async def test_menu_of_other_agents_closes_by_escape_and_by_a_click_elsewhere(
    browser: Browser, reader: Server
) -> None:
    tab = await answered(browser, reader, 1280)
    opener = tab.page.get_by_label("Try again with another agent")
    choice = tab.page.locator(".retry").get_by_role("button", name="other")
    await opener.click()
    await expect(choice).to_be_visible()
    await tab.page.keyboard.press("Escape")
    await expect(choice).to_be_hidden()
    await expect(opener).to_be_focused()
    await opener.click()
    await tab.page.locator(".heading h1").click()
    await expect(choice).to_be_hidden()
    tab.check()


async def test_long_diagram_can_be_read_and_scrolls(browser: Browser, reader: Server) -> None:
    tab = await Tab(await browser.new_page(), reader.url).open()
    await tab.page.locator(".agent", has_text="banker").click()
    await tab.say("a long way")
    picture = tab.turn().locator(".diagram img")
    await expect(picture).to_be_visible(timeout=WAIT_MS)
    shown = await picture.evaluate(
        "image => image.decode().then(() => image.offsetWidth / image.getAttribute('width'))"
    )
    assert shown >= 0.59
    view = tab.turn().locator(".diagram-view")
    assert await view.evaluate("view => view.scrollWidth > view.clientWidth")
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    tab.check()


async def test_turn_without_an_answer_says_so(browser: Browser, reader: Server) -> None:
    tab = await Tab(await browser.new_page(), reader.url).open()
    await tab.page.locator(".agent", has_text="banker").click()
    await tab.say("nothing")
    await tab.sees(tab.turn(), "The agent ended without an answer.")
    tab.check()


async def test_full_window_of_the_model_says_what_to_do(browser: Browser, reader: Server) -> None:
    tab = await Tab(await browser.new_page(), reader.url).open()
    await tab.page.locator(".agent", has_text="banker").click()
    await tab.say("context")
    await tab.sees(tab.turn().locator(".failure"), "Begin a new chat, or edit an earlier message")
    tab.check()


async def test_quotation_is_marked_where_its_script_begins(
    browser: Browser, reader: Server
) -> None:
    tab = await Tab(await browser.new_page(), reader.url).open()
    await tab.page.locator(".agent", has_text="banker").click()
    await tab.say("Arabic")
    await tab.ended()
    mark = (
        await tab.turn()
        .locator("blockquote")
        .evaluate("quoted => getComputedStyle(quoted).borderRightWidth")
    )
    assert mark == "3px"
    tab.check()
