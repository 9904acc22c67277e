"""Fetching from the web: the hosts an operator lists, and no way round the list."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from sk_agents.exceptions import ToolError
from sk_agents.tools.builtin.function_tool import FunctionTool
from sk_agents.tools.builtin.loader import WebLimits
from sk_agents.tools.builtin.web import WebTools
from sk_agents.tools.toolbox import AgentToolbox
from sk_agents.worker_threads import WorkerThreads
from tests.patience import seconds
from tests.tools.calls import result


@dataclass
class Site:
    """A site on this machine that counts what it is asked."""

    port: int = 0
    asked: list[str] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        match request.path:
            case "/moved":
                raise web.HTTPFound(request.query["to"])
            case "/round":
                raise web.HTTPFound("/round")
            case "/large":
                return web.Response(text="x" * 10_000)
            case "/image":
                return web.Response(body=b"\x89PNG\0", content_type="image/png")
            case "/squeezed":
                return web.Response(text="x", headers={"Content-Encoding": "gzip"})
            case "/slow":
                await self.over.wait()
            case "/missing":
                raise web.HTTPNotFound
            case "/headers":
                return web.json_response(sorted(request.headers))
        return web.Response(text="grüße", charset="utf-8")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    app = web.Application()
    app.router.add_get("/{tail:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    listening = web.TCPSite(runner, "127.0.0.1", 0)
    await listening.start()
    made.port = runner.addresses[0][1]
    yield made
    made.over.set()
    await runner.cleanup()


async def names(host: str, port: int) -> Sequence[str]:
    """Names that mean this machine, whatever they look like."""
    if host.endswith(".invalid"):
        raise OSError("no such host")
    return ["127.0.0.1"]


def box(*allow: str, **limits: Any) -> AgentToolbox:
    tools = WebTools(WebLimits(allow=allow, **limits), resolve=names)
    return AgentToolbox(FunctionTool(function, WorkerThreads()) for function in tools.functions())


async def fetched(allowed: AgentToolbox, url: str) -> str:
    async with asyncio.timeout(seconds(10)):
        return (await result(allowed, "Web-http_get", {"url": url})).content


async def refusal(allowed: AgentToolbox, url: str) -> str:
    with pytest.raises(ToolError) as caught:
        await fetched(allowed, url)
    return str(caught.value)


def local(site: Site, **limits: Any) -> AgentToolbox:
    return box(site.url, private=("127.0.0.1",), **limits)


async def test_listed_host_is_asked_without_anything_of_ours(site: Site) -> None:
    assert await fetched(local(site), f"{site.url}/page") == "grüße"
    headers = await fetched(local(site), f"{site.url}/headers")
    assert "Cookie" not in headers and "Authorization" not in headers


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://169.254.169.254/latest/meta-data", "not a public address"),
        ("https://127.0.0.1/", "not a public address"),
        ("https://127.1/", "oddly spelt"),
        ("https://0x7f000001/", "oddly spelt"),
        ("https://2130706433/", "oddly spelt"),
        ("https://0177.0.0.1/", "oddly spelt"),
        ("https://[::1]/", "not a public address"),
        ("https://[::ffff:127.0.0.1]/", "not a public address"),
        ("https://localtest.me/", "not a public address"),
        ("https://localhost/", "not a public address"),
        ("https://10.0.0.1/", "not a public address"),
        ("http://example.org/", "only https"),
        ("file:///etc/passwd", "only https"),
        ("gopher://example.org/", "only https"),
        ("data:text/plain,x", "only https"),
        ("ftp://example.org/", "only https"),
        ("https://user:key@example.org/", "credentials"),
        ("https://example.org:8443/", "port 8443"),
        ("https://example.org:22/", "port 22"),
        ("https://gone.invalid/", "cannot be resolved"),
        ("https://exa mple.org/", "spaces"),
        ("https://[::1/", "not a URL"),
        ("example.org", "only https"),
        ("https://" + "x" * 9000, "longer than"),
    ],
)
async def test_url_that_may_not_be_asked_for_is_refused(url: str, reason: str) -> None:
    assert reason in await refusal(box("*"), url)


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        ("example.org", "https://example.com/"),
        ("example.org", "https://evil-example.org/"),
        ("example.org", "https://example.org.evil.com/"),
        ("example.org", "https://sub.example.org/"),
        ("*.example.org", "https://example.org/"),
        ("*.example.org", "https://evilexample.org/"),
    ],
)
async def test_host_that_is_not_listed_is_refused(allow: str, url: str) -> None:
    assert allow in await refusal(box(allow), url)


@pytest.mark.parametrize("url", ["https://a.example.org/", "https://A.B.Example.ORG./x"])
async def test_host_below_a_listed_domain_passes_the_list(url: str) -> None:
    # It is then the address that is refused: every name means this machine here.
    assert "not a public address" in await refusal(box("*.example.org"), url)


async def test_redirect_on_the_site_is_followed(site: Site) -> None:
    assert await fetched(local(site), f"{site.url}/moved?to=/page") == "grüße"
    assert site.asked == ["/moved", "/page"]


async def test_name_that_changes_its_address_is_connected_to_the_one_that_was_checked(
    site: Site,
) -> None:
    answers = [["127.0.0.1"], ["127.0.0.99"]]

    async def changing(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    limits = WebLimits(allow=(f"http://a.example.org:{site.port}",), private=("a.example.org",))
    tools = WebTools(limits, resolve=changing)
    allowed = AgentToolbox(
        FunctionTool(function, WorkerThreads()) for function in tools.functions()
    )
    assert await fetched(allowed, f"http://a.example.org:{site.port}/page") == "grüße"
    assert answers == [["127.0.0.99"]]


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("https://example.com/", "not allowed"),
        ("http://localhost:{port}/page", "not allowed"),
        ("http://inner.example.org:{port}/page", "not a public address"),
        ("http://169.254.169.254/", "not allowed"),
        ("file:///etc/passwd", "not allowed"),
        ("//127.0.0.2:{port}/page", "not allowed"),
    ],
)
async def test_redirect_is_checked_like_the_first_url(site: Site, to: str, reason: str) -> None:
    allowed = box(site.url, f"http://inner.example.org:{site.port}", private=("127.0.0.1",))
    url = f"{site.url}/moved?to={to.format(port=site.port)}"
    assert reason in await refusal(allowed, url)
    assert site.asked == ["/moved"]


async def test_redirects_without_end_are_given_up(site: Site) -> None:
    assert await refusal(local(site), f"{site.url}/round") == "The host redirects too often."


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/image", "not text"), ("/squeezed", "compressed"), ("/missing", "answered 404 Not Found")],
)
async def test_answer_that_is_no_text_is_refused(site: Site, path: str, reason: str) -> None:
    assert reason in await refusal(local(site), site.url + path)


async def test_large_answer_is_cut(site: Site) -> None:
    found = await fetched(local(site, max_kb=1), f"{site.url}/large")
    assert found == "x" * 1024 + "\n[cut: the first 1024 bytes]"


async def test_slow_answer_is_given_up(site: Site) -> None:
    said = await refusal(local(site, seconds=0.2), f"{site.url}/slow")
    assert said == "No answer within 0.2 seconds."


async def test_closed_port_is_told(unused_tcp_port: int) -> None:
    allowed = box(f"http://127.0.0.1:{unused_tcp_port}", private=("127.0.0.1",))
    assert "cannot be reached" in await refusal(allowed, f"http://127.0.0.1:{unused_tcp_port}/")
