"""`oidc-provider` as a process: an issuer that is certified and that nobody here wrote.

`ui/tests/issuer.mjs` says how it is configured. It is among the page's packages for development.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx

from tests.missing import lacks
from tests.patience import seconds

UI = Path(__file__).parents[2] / "ui"
AUDIENCE, SCOPE = "teal", "teal.use"
TIMEOUT = seconds(20)


@dataclass(frozen=True)
class Provider:
    url: str

    def settings(self) -> dict[str, str]:
        """The environment of a server whose users sign in here."""
        return {
            "TA_AUTHORIZER": "oidc",
            "TA_OIDC_ISSUER": self.url,
            "TA_OIDC_AUDIENCE": AUDIENCE,
            "TA_OIDC_SCOPES": SCOPE,
            "TA_OIDC_PAGE_CLIENT_ID": "page",
            "TA_OIDC_CLI_CLIENT_ID": "cli",
        }

    def register_page(self, server_url: str) -> None:
        """Its client, by RFC 7591: from now on the page may send people back to this address."""
        client = {
            # Only a native client may have an address on loopback.
            "application_type": "native",
            "redirect_uris": [f"{server_url}/"],
            "post_logout_redirect_uris": [f"{server_url}/"],
            "grant_types": ["authorization_code", "refresh_token"],
        }
        httpx.post(f"{self.url}/reg", json=client, timeout=TIMEOUT).raise_for_status()

    def set(self, **values: int) -> None:
        """`ttl` of access tokens, and how many seconds its clock is `behind`."""
        httpx.get(f"{self.url}/test/set", params=values, timeout=TIMEOUT).raise_for_status()

    def rotate(self) -> None:
        """A new signing key; the old one is not published any more."""
        httpx.get(f"{self.url}/test/rotate", timeout=TIMEOUT).raise_for_status()


@contextmanager
def running_provider() -> Iterator[Provider]:
    node = shutil.which("node", path=f"{os.environ.get('PATH')}:{Path(sys.executable).parent}")
    if node is None or not (UI / "node_modules" / "oidc-provider").is_dir():
        lacks("page", "oidc-provider is not installed: make page")
    with subprocess.Popen(
        [node, str(UI / "tests" / "issuer.mjs")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            yield Provider(next(line.strip() for line in lines if line.startswith("http://")))
        finally:
            process.kill()


def signed_in(address: str, name: str) -> str:
    """Open the address as a browser without scripts does, sign in there and agree to everything.

    The address with a code to which the issuer leads in the end, or the text of its last page.
    """
    with httpx.Client(timeout=TIMEOUT) as browser:
        answer = browser.get(address)
        for _ in range(20):
            if answer.is_redirect:
                address = urljoin(str(answer.url), answer.headers["Location"])
                if "code=" in address and "/signed-in?" in address:
                    return address
                answer = browser.get(address)
            elif form := re.search(r"<form.*?</form>", answer.text, re.DOTALL):
                action = urljoin(str(answer.url), _attribute(form[0], "action") or "")
                answer = browser.post(action, data=_filled_in(form[0], name))
            else:
                return answer.text
    raise AssertionError("the issuer leads nowhere")


def _filled_in(form: str, name: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for tag in re.findall(r"<(?:input|button)[^>]*>", form):
        field = _attribute(tag, "name")
        if field in ("login", "password"):
            fields[field] = name
        elif field is not None and field != "abort":
            fields[field] = _attribute(tag, "value") or ""
    return fields


def _attribute(tag: str, name: str) -> str | None:
    found = re.search(rf'\b{name}="([^"]*)"', tag)
    return unescape(found[1]) if found else None
