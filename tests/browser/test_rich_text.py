"""Formulas, diagrams, notes, wide tables and documents in answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.async_api import Browser, expect

from tests.browser.server import Server, write_agent
from tests.browser.tab import WAIT_MS, Tab
from tests.browser.test_access import violations

RICH = r"""# Results

The root \(\sqrt{2}\) is about $1.41$, which costs $5 or $10.

\[ \int_0^1 x^2 \, dx = \frac{1}{3} \]

It was shown before[^proof].

### Details

| a rather long heading | another rather long heading | a third one | a fourth one | a fifth one |
|---|---|---:|---|---|
| wordswordswordswords | wordswordswordswords | 123456789 | wordswordswords | wordswordswords |

```mermaid
graph LR
  Question --> Answer
```

```html
<h1 id="made">made here</h1>
<script>
  try { parent.document.title = "taken over"; } catch { document.title = "kept apart"; }
  fetch("/agents").catch(() => { document.body.dataset.network = "none"; });
</script>
```

[^proof]: By Euclid.
"""
SCRIPT: dict[str, Any] = {"turns": [{"text": RICH}]}


async def test_rich_answer_is_set_drawn_and_kept_in_its_frame(
    browser: Browser, tmp_path: Path
) -> None:
    server = Server(tmp_path, write_agent(tmp_path / "agent", SCRIPT))
    server.start()
    try:
        page = await browser.new_page(viewport={"width": 390, "height": 800})
        tab = await Tab(page, server.url).open()
        await tab.say("explain")
        await tab.ended()
        answer = tab.turn().locator(".answer")
        await tab.sees_count(answer.locator(".katex-mathml math"), 3)
        await tab.sees(answer, "which costs $5 or $10.")
        await expect(answer.locator(".math-display .katex-display")).to_be_visible()
        await answer.get_by_label("Note 1").click()
        await expect(answer.locator(".footnotes li")).to_be_focused()
        await tab.sees(answer.locator(".footnotes"), "By Euclid.")
        table = answer.locator(".wide-table")
        assert await table.evaluate("table => table.scrollWidth > table.clientWidth")
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        drawn = answer.locator(".diagram img")
        await expect(drawn).to_be_visible(timeout=WAIT_MS)
        assert await drawn.evaluate("image => image.decode().then(() => image.naturalWidth > 40)")
        await tab.button("Show the result").click()
        frame = page.frame_locator(".artifact iframe")
        await expect(frame.locator("#made")).to_have_text("made here", timeout=WAIT_MS)
        await expect(frame.locator("body")).to_have_attribute("data-network", "none")
        assert "taken over" not in await page.title()
        # The browser says that it has refused the document its network.
        refusals = [text for text in tab.complaints if "Content Security Policy" in text]
        assert all("/agents" in text for text in refusals)
        assert [text for text in tab.complaints if text not in refusals] == []
        assert tab.foreign == []
        # Last, since the checker complains that it cannot talk to the frame.
        assert await violations(page) == []
    finally:
        server.kill()
