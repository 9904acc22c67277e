"""What the server serves at `/`: size, headers, and the page that is there when none is built."""

from __future__ import annotations

import gzip
import json
import re
import runpy
from pathlib import Path

import httpx

from sk_agents.http.front import TealApp
from sk_agents.http.page import BUILT, page_operations

UI = Path(__file__).parents[2] / "ui"
# Everything that the page needs before the first message, its typeface too.
FIRST_LOAD_BYTES = 170 * 1024
MAX_LINES = 500


async def get(path: str, built: Path = BUILT, **headers: str) -> httpx.Response:
    app = TealApp()
    app.add_operations(page_operations(["<b>Weather</b> 0.1"], "memory", built))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get(path, headers=headers)


def references(page: str) -> list[str]:
    return re.findall(r'(?:src|href)="([^"]+)"', page)


async def test_first_load_is_small(built: None) -> None:
    page = await get("/")
    files = [await get(name) for name in references(page.text)]
    assert all(file.status_code == 200 for file in files)
    total = sum(len(gzip.compress(file.content)) for file in (page, *files))
    fonts = sum(path.stat().st_size for path in (BUILT / "assets").glob("figtree-latin-*.woff2"))
    assert total + fonts <= FIRST_LOAD_BYTES, (total, fonts)


async def test_document_of_an_agent_has_no_origin_and_no_network() -> None:
    frame = await get("/frames/artifact")
    policy = frame.headers["Content-Security-Policy"]
    assert "sandbox allow-scripts;" in policy
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy
    assert "frame-ancestors 'self'" in policy


async def test_nothing_of_the_page_is_inline_or_from_elsewhere(built: None) -> None:
    page = await get("/")
    policy = page.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert all(name.startswith("/assets/") for name in references(page.text))
    assert re.findall(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=", page.text) == []


async def test_built_files_are_kept_for_good_and_the_page_is_asked_for(built: None) -> None:
    page = await get("/")
    assert page.headers["Cache-Control"] == "no-cache"
    for name in references(page.text):
        file = await get(name)
        assert "immutable" in file.headers["Cache-Control"]
        assert file.headers["X-Content-Type-Options"] == "nosniff"


async def test_only_files_of_the_folder_are_served(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "a.js").write_text("1")
    (tmp_path / "secret").write_text("canary")
    assert (await get("/assets/a.js", tmp_path)).text == "1"
    for path in ("/assets/../secret", "/assets/%2e%2e%2fsecret", "/assets/b.js"):
        answer = await get(path, tmp_path)
        assert answer.status_code == 404
        assert "canary" not in answer.text


async def test_large_file_is_sent_zipped_to_those_who_can_read_that(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "a.js").write_text("x" * 5000)
    plain = await get("/assets/a.js", tmp_path, **{"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    zipped = await get("/assets/a.js", tmp_path, **{"Accept-Encoding": "gzip"})
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert zipped.text == plain.text


async def test_page_that_is_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    page = await get("/", tmp_path)
    assert page.status_code == 200
    assert "make page" in page.text
    assert "&lt;b&gt;Weather&lt;/b&gt; 0.1" in page.text
    assert "<script" not in page.text
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]


def test_licences_of_what_is_in_the_page_go_with_it(built: None) -> None:
    text = (BUILT / "licenses.md").read_text()
    for name in (
        "preact",
        "marked",
        "dompurify",
        "highlight.js",
        "diff",
        "katex",
        "swagger-ui-dist",
    ):
        assert f"## {name}" in text
    for name in ("@fontsource-variable/figtree", "@mermaid-js/tiny"):
        assert f"## {name}" in text


def test_types_of_the_page_are_made_of_the_servers_models() -> None:
    written = runpy.run_path(str(UI / "schema.py"))["rendered"]()
    assert (UI / "schema.json").read_text() == written, "run make page"


def test_no_file_of_the_page_is_too_long() -> None:
    # Written by the build, and a list of texts.
    others = {"schema.ts", "german.ts"}
    sources = [path for path in (UI / "src").rglob("*.ts*") if path.name not in others]
    assert sources
    lengths = {path.name: len(path.read_text().splitlines()) for path in sources}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


def test_lock_of_the_page_names_no_host() -> None:
    lock = json.loads((UI / "package-lock.json").read_text())
    for package in lock["packages"].values():
        package.pop("funding", None)
    assert "://" not in json.dumps(lock)
