"""The page at `/`, and the one at every `docs`: as built, or one that says how to build it.

They are the same for all and say nothing about users. What they may do is held by their
headers: scripts and styles come from here alone, and they talk to this server alone, and to the
issuer at which people sign in if there is one.
"""

from __future__ import annotations

import asyncio
import gzip
import mimetypes
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sk_agents import __version__
from sk_agents.exceptions import AuthorizerUnavailable
from sk_agents.http.operations import Operation
from sk_agents.wire.views import SignInView

BUILT = Path(__file__).parent.parent / "ui_dist"
INDEX = "index.html"
REFERENCE = "reference.html"
ASSETS = "assets"

COMMON_HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
PLAIN_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# Pictures are part of messages, as data. HTML becomes part of the page through its sanitiser alone.
BUILT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src {connect}; "
    "img-src 'self' data: blob:; font-src 'self'; frame-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify"
)
# Swagger UI has pictures of its own as data.
REFERENCE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# What agents write as HTML runs without an origin, so it has nothing of the page, and without a
# network. The page hands it the document: the first message of the window around it, once.
ARTIFACT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; media-src data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
ARTIFACT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Result</title>
<script>
addEventListener("message", (event) => {
  if (event.source !== parent) return;
  document.open();
  document.write(event.data);
  document.close();
}, {once: true});
parent.postMessage("ready", "*");
</script>
</html>
"""
PERMISSIONS = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"
# The names of built files change with what is in them.
FOR_GOOD = "public, max-age=31536000, immutable"
ALWAYS_ASK = "no-cache"
SMALLEST_ZIPPED = 1024
_PLACE = re.compile(r"[A-Za-z0-9._-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")

# For a page that is not built.
PLAIN = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
</head>
<body>
<main>
<h1>{title}</h1>
{content}
</main>
</body>
</html>
"""
PLAIN_HOME = """<p>This server is running, version {version}. Its page is not built:
run <code>make page</code> in the project, then load this again. Building needs Node.js, which
<code>make</code> gets by itself. In a terminal, <code>teal chat</code> does without a page.</p>
<h2>Agents</h2>
{agents}
<h2>Store</h2>
<p>{store}</p>
<nav aria-label="More">
<ul>
<li><a href="/health/ready">Is everything ready?</a></li>
<li><a href="/openapi.json">Interface description</a></li>
</ul>
</nav>"""
PLAIN_REFERENCE = """<p>It is in <a href="openapi.json">openapi.json</a>. The page that shows it is
not built: run <code>make page</code> in the project, then load this again.</p>"""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A built file as it is sent: also smaller, if that is worth it."""

    content: bytes
    zipped: bytes | None
    media_type: str


def page_operations(
    agents: Sequence[str],
    store: str,
    built: Path = BUILT,
    *,
    sign_in: Callable[[], Awaitable[SignInView]] | None = None,
) -> list[Operation]:
    """`agents` and `store` are for the plain page; `built` is where the other one is looked for.

    `sign_in` says at which issuer the page signs people in: it may talk to that one, too.
    """
    plain = _plain_home(agents, store)
    files: dict[str, PageFile] = {}

    async def home(request: Request) -> Response:
        # Looked for each time: building it needs no restart.
        if not (built / INDEX).is_file():
            return _plain_answer("Teal Agents", plain)
        issuer = await _issuer_origins(sign_in)
        policy = BUILT_POLICY.format(connect=" ".join(("'self'", *issuer)))
        return _answer(request, _read(built / INDEX), _policy(policy))

    async def docs(request: Request) -> Response:
        return reference_page(request, built)

    async def asset(request: Request, name: str) -> Response:
        if name not in files:
            # Only what a listing of the folder names is ever opened.
            names = {path.name: path for path in _listing(built / ASSETS)}
            if name not in names:
                raise HTTPException(404)
            # Making the largest ones smaller takes a tenth of a second.
            files[name] = await asyncio.to_thread(_read, names[name])
        return _answer(request, files[name], {"Cache-Control": FOR_GOOD})

    async def artifact(request: Request) -> Response:
        return HTMLResponse(ARTIFACT, headers={**COMMON_HEADERS, **_policy(ARTIFACT_POLICY)})

    paths: dict[str, Callable[..., Any]] = {
        "/": home,
        "/docs": docs,
        f"/{ASSETS}/{{name}}": asset,
        "/frames/artifact": artifact,
    }
    return [
        Operation(method=method, path=path, endpoint=endpoint, who=None, is_described=False)
        for path, endpoint in paths.items()
        for method in ("GET", "HEAD")
    ]


def reference_operations(prefix: str, document: Callable[[], dict[str, Any]]) -> list[Operation]:
    """`openapi.json` under this prefix, made when it is first asked for, and its page."""
    made = cache(document)

    async def openapi() -> Response:
        return Response(orjson.dumps(made()), media_type="application/json")

    async def docs(request: Request) -> Response:
        return reference_page(request)

    return [
        Operation(
            method="GET", path=f"{prefix}{path}", endpoint=endpoint, who=None, is_described=False
        )
        for path, endpoint in (("/openapi.json", openapi), ("/docs", docs))
    ]


def reference_page(request: Request, built: Path = BUILT) -> Response:
    """Shows the `openapi.json` that lies beside it."""
    if not (built / REFERENCE).is_file():
        return _plain_answer("Interface description", PLAIN_REFERENCE)
    # A proxy may have put us under a path of its own.
    root = escape(str(request.scope.get("root_path", "")).rstrip("/"))
    text = (built / REFERENCE).read_text().replace(f'"/{ASSETS}/', f'"{root}/{ASSETS}/')
    return _answer(request, _file(text.encode(), REFERENCE), _policy(REFERENCE_POLICY))


async def _issuer_origins(sign_in: Callable[[], Awaitable[SignInView]] | None) -> list[str]:
    """Where the page gets and gives back its tokens; nowhere while the issuer is away."""
    try:
        known = await sign_in() if sign_in is not None else None
    except AuthorizerUnavailable:
        known = None
    if known is None or known.page_client_id is None:
        return []
    addresses = (known.token_endpoint, known.revocation_endpoint)
    parts = [urlsplit(address) for address in addresses if address is not None]
    # Nothing that could end one rule and begin another.
    places = [f"{one.scheme}://{one.netloc}" for one in parts if _PLACE.fullmatch(one.netloc)]
    return list(dict.fromkeys(places))


def _policy(policy: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": policy,
        "Permissions-Policy": PERMISSIONS,
        "Cache-Control": ALWAYS_ASK,
    }


def _plain_answer(title: str, content: str) -> Response:
    headers = {**COMMON_HEADERS, "Content-Security-Policy": PLAIN_POLICY}
    return HTMLResponse(PLAIN.format(title=title, content=content), headers=headers)


def _answer(request: Request, file: PageFile, headers: Mapping[str, str]) -> Response:
    content = file.content
    sent = {**COMMON_HEADERS, **headers}
    if file.zipped is not None:
        sent["Vary"] = "Accept-Encoding"
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            content = file.zipped
            sent["Content-Encoding"] = "gzip"
    return Response(content, media_type=file.media_type, headers=sent)


def _read(path: Path) -> PageFile:
    return _file(path.read_bytes(), path.name)


def _file(content: bytes, name: str) -> PageFile:
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    zipped = gzip.compress(content, mtime=0) if len(content) >= SMALLEST_ZIPPED else None
    return PageFile(content, zipped, media_type)


def _listing(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []


def _plain_home(agents: Sequence[str], store: str) -> str:
    items = "\n".join(f"<li>{escape(agent)}</li>" for agent in agents)
    return PLAIN_HOME.format(
        version=escape(__version__),
        agents=f"<ul>\n{items}\n</ul>" if items else "<p>None configured.</p>",
        store=escape(store),
    )
