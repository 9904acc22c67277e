"""A hook of mkdocs: pages from outside of `docs/`, and links that hold here and on the site.

In the repository a page links to files as they lie there. On the site the same link leads to the
page made from that file; a link to a file that the site does not show is left as plain text.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
AT_ROOT = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    sources = {"index.md": ROOT / "README.md"}
    sources |= {name: ROOT / name for name in AT_ROOT}
    sources |= {path.relative_to(ROOT).as_posix(): path for path in ROOT.glob("demos/**/README.md")}
    for uri, path in sources.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    shown = {
        os.path.realpath(file.abs_src_path): file.src_uri for file in files if file.abs_src_path
    }
    source = os.path.realpath(page.file.abs_src_path or "")
    return in_prose(
        markdown, lambda text: LINK.sub(lambda link: led(link, source, page, shown), text)
    )


def in_prose(markdown: str, change: Callable[[str], str]) -> str:
    """The text changed everywhere but in code."""
    parts, at = [], 0
    for code in CODE.finditer(markdown):
        parts += [change(markdown[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, change(markdown[at:])])


def led(link: re.Match[str], source: str, page: Page, shown: dict[str, str]) -> str:
    """The link as it has to be on the site."""
    mark, text, target = link.groups()
    path, hash, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", target):
        return link[0]
    uri = shown.get(os.path.realpath(Path(source).parent / unquote(path)))
    if uri is None:
        return text
    here = posixpath.dirname(page.file.src_uri) or "."
    return f"{mark}[{text}]({posixpath.relpath(uri, here)}{hash}{anchor})"
