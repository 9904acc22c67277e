"""Texts that want to do harm are shown, and do none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab

CANARY = "window.harmed = true"
HOSTILE = f"""<script>{CANARY}</script>
<img src=x onerror="{CANARY}"> <svg onload="{CANARY}"> <iframe src="http://192.0.2.1/a"></iframe>

[click](javascript:{CANARY}) <a href="javascript:{CANARY}">me</a>

![tracker](http://192.0.2.1/pixel.png) ![other](https://example.org/x.png?a=1)

<style>body {{ display: none }}</style><base href="http://192.0.2.1/"><form action="http://192.0.2.1/">

[ref]: javascript:{CANARY}
[a reference][ref]

<div style="background:url(http://192.0.2.1/b)" onclick="{CANARY}">div</div>

\u202etxet desrever\u202c and zero\u200bwidth

```html
</code></pre><script>{CANARY}</script>
```

| <img src=x onerror={CANARY}> | b |
|---|---|
| `<script>{CANARY}</script>` | **<b onmouseover={CANARY}>x</b>** |
"""
SCRIPT = {
    "rules": [
        {"match": "long line", "turns": [{"text": "a" * 700_000}]},
        {"match": "markup line", "turns": [{"text": "[" * 60_000 + "*_`" * 20_000}]},
        {
            "match": "long result",
            "turns": [{"calls": [{"tool": "Bank-read"}]}, {"text": "read"}],
        },
        {
            "match": "arguments",
            "turns": [{"calls": [{"tool": "Bank-run", "arguments": {"code": HOSTILE}}]}],
        },
    ],
    "turns": [{"thinking": HOSTILE, "text": HOSTILE}],
}


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, write_agent(tmp_path / "bank", SCRIPT, name="bad <b> agent"))
    server.start()
    try:
        yield server
    finally:
        server.kill()


async def unharmed(tab: Tab) -> None:
    assert await tab.page.evaluate("window.harmed") is None
    assert (
        await tab.page.locator(".turn :is(script, iframe, style, form, svg:not(.icon))").count()
        == 0
    )
    loaded = await tab.page.locator(".turn img").count()
    assert loaded == 0
    links = await tab.page.locator(".turn a").evaluate_all("all => all.map(a => a.href)")
    assert [link for link in links if link and not link.startswith("http")] == []
    tab.check()


async def test_hostile_answer_thought_and_message_do_nothing_and_fetch_nothing(
    browser: Browser, hostile: Server
) -> None:
    tab = await Tab(await browser.new_page(), hostile.url).open()
    await tab.say(HOSTILE)
    await tab.ended()
    await tab.turn().locator(".thinking summary").first.click()
    await tab.sees(tab.turn().locator(".answer"), f"<script>{CANARY}</script>")
    await tab.sees(tab.turn().locator(".answer"), "[picture: tracker]")
    await unharmed(tab)
    await tab.page.reload()
    await tab.sees(tab.turn().locator(".answer"), "[picture: tracker]")
    await unharmed(tab)


async def test_hostile_arguments_are_shown_to_the_last_character(
    browser: Browser, hostile: Server
) -> None:
    tab = await Tab(await browser.new_page(), hostile.url).open()
    await tab.say("arguments")
    await tab.sees(".approval", f"<script>{CANARY}</script>")
    await tab.sees(".approval", "U+202E right-to-left override")
    await unharmed(tab)


@pytest.mark.parametrize("what", ["long line", "markup line", "long result"])
async def test_very_long_line_leaves_the_page_usable(
    browser: Browser, hostile: Server, what: str
) -> None:
    tab = await Tab(await browser.new_page(), hostile.url).open()
    await tab.say(what)
    await tab.ended()
    for title in await tab.page.locator(".call-title").all():
        await title.click()
    wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert await tab.page.evaluate(wide)
    await tab.page.fill("#composer", "still here")
    await expect(tab.page.locator("#composer")).to_have_value("still here", timeout=WAIT_MS)
    tab.check()
