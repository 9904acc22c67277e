"""A hook of mkdocs: pages from outside of `docs/`, and links that hold here and on the site.

In the repository a page links to files as they lie there. On the site the same link leads to the
page made from that file; a link to a file that the site does not show is left as plain text.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
AT_ROOT = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
# Code is matched so that nothing in it is taken for a link; a link's text may be code.
CODE_OR_LINK = re.compile(
    r"^```.*?^```"
    r"|(?P<mark>!?)\[(?P<text>(?:`[^`\n]*`|[^\[\]`])*)\]\((?P<target>[^()\s]+)\)"
    r"|`[^`\n]+`",
    re.MULTILINE | re.DOTALL,
)


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
    return CODE_OR_LINK.sub(lambda found: led(found, source, page, shown), markdown)


def led(link: re.Match[str], source: str, page: Page, shown: dict[str, str]) -> str:
    """A link as it has to be on the site; anything else as it is."""
    mark, text, target = link["mark"], link["text"], link["target"] or ""
    path, hash, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", target):
        return link[0]
    linked = os.path.realpath(Path(source).parent / unquote(path))
    uri = shown.get(linked)
    if uri is None:
        # What is not there at all stays a link, so that mkdocs complains.
        return text if os.path.exists(linked) else link[0]
    here = posixpath.dirname(page.file.src_uri) or "."
    return f"{mark}[{text}]({posixpath.relpath(uri, here)}{hash}{anchor})"
