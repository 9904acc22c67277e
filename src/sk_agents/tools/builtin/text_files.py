"""Bytes of a file as text, and back again in the same spelling."""

from __future__ import annotations

import codecs
import io
from dataclasses import dataclass

from sk_agents.exceptions import ToolError
from sk_agents.tools.builtin.workspace import Workspace

# UTF-32 begins as UTF-16 does, so it is looked for first.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True)
class TextFile:
    text: str
    encoding: str = "utf-8"

    @property
    def newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    def encoded(self, text: str) -> bytes:
        """New text as the file spells it.

        Raises:
            ToolError: the file's encoding has no such characters.
        """
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError:
            raise ToolError(f"The text has characters that {self.encoding} cannot spell.") from None


def decoded(content: bytes, path: str) -> TextFile:
    """UTF-8, or what a byte order mark says; other text is read as Latin-1.

    Raises:
        ToolError: it is not text.
    """
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            try:
                return TextFile(content.decode(encoding), encoding)
            except UnicodeDecodeError:
                break
    if b"\0" in content:
        raise ToolError(f"{ascii(path)} is a binary file of {len(content)} bytes, not text.")
    try:
        return TextFile(content.decode())
    except UnicodeDecodeError:
        return TextFile(content.decode("latin-1"), "latin-1")


def read_bytes(workspace: Workspace, path: str, most: int) -> bytes:
    """All of a file.

    Raises:
        ToolError: it cannot be read, or is larger than `most`.
    """
    with workspace.file(path) as (descriptor, known):
        if known.st_size > most:
            raise ToolError(
                f"{ascii(path)} has {known.st_size} bytes; at most {most} are read at once."
            )
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(most + 1)
    if len(content) > most:
        raise ToolError(f"{ascii(path)} grows while it is read.")
    return content


def edited(file: TextFile, old: str, new: str, *, everywhere: bool, path: str) -> str:
    """The text with `old` replaced; written with the file's own line ends if it has others.

    Raises:
        ToolError: `old` is not there, or not exactly once.
    """
    if not old:
        raise ToolError("old_text is empty: use write_file to write a whole file.")
    if old not in file.text and file.newline != "\n":
        old, new = (text.replace("\n", file.newline) for text in (old, new))
    count = file.text.count(old)
    if count == 0:
        raise ToolError(
            f"old_text is not in {ascii(path)}. It must match exactly, blanks included: read the "
            "file first."
        )
    if count > 1 and not everywhere:
        raise ToolError(
            f"old_text is {count} times in {ascii(path)}: give more of the lines around it, or "
            "set replace_all."
        )
    return file.text.replace(old, new)


def lines_of(text: str) -> list[str]:
    """Its lines with their ends. Only a line feed ends one; `splitlines` knows many others."""
    return io.StringIO(text, newline="\n").readlines()
