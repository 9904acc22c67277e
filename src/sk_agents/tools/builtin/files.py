"""Reading, searching and changing text files in a workspace.

Docstrings of the tools and notes on their parameters are what the model reads.
"""

from __future__ import annotations

import codecs
import fnmatch
import io
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Annotated, Any

from pydantic import Field

from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolContext
from sk_agents.exceptions import ToolError
from sk_agents.tools.builtin.function_tool import BuiltinFunction
from sk_agents.tools.builtin.workspace import Workspace, Workspaces, kind_of, parts_of, stat_of
from sk_agents.tools.operator_config import StrictModel

PLUGIN = "Files"
MOST_DEPTH = 32
SEARCH_SECONDS = 10.0
MOST_LINE = 300

FilePath = Annotated[str, "The file's path relative to the workspace, such as notes/today.txt"]
FolderPath = Annotated[str, "The folder's path relative to the workspace"]
Glob = Annotated[str, "Only files whose name matches, such as *.py"]

# UTF-32 begins as UTF-16 does, so it is looked for first.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

CONTEXT = 3
# Old lines times new ones. Texts that differ in more are not compared line by line: the time for
# that grows with the product, and a preview is made before anything was allowed.
MOST_COMPARED = 4_000_000

Opcode = tuple[str, int, int, int, int]


class FileLimits(StrictModel):
    file_kb: Annotated[int, Field(ge=1, le=1 << 16)] = 4096
    result_kb: Annotated[int, Field(ge=1, le=8192)] = 128
    entries: Annotated[int, Field(ge=1, le=100_000)] = 1000
    matches: Annotated[int, Field(ge=1, le=100_000)] = 200


class FileTools:
    def __init__(self, workspaces: Workspaces, limits: FileLimits) -> None:
        self._workspaces, self._limits = workspaces, limits

    def functions(self) -> Iterator[BuiltinFunction]:
        place = [str(self._workspaces.path), self._workspaces.shared_by]
        for function in (self.read_file, self.list_files, self.search_files):
            yield BuiltinFunction(
                PLUGIN, function, Effect.READ_ONLY, asks=None, timeout=30, bound_to=place
            )
        yield BuiltinFunction(
            PLUGIN, self.write_file, Effect.IDEMPOTENT, bound_to=place, preview=self._preview_write
        )
        yield BuiltinFunction(PLUGIN, self.edit_file, bound_to=place, preview=self._preview_edit)
        yield BuiltinFunction(
            PLUGIN, self.delete_file, bound_to=place, preview=self._preview_delete
        )

    def read_file(
        self,
        path: FilePath,
        start_line: Annotated[int, "The first line to read, counted from 1"] = 1,
        lines: Annotated[int | None, "How many lines; all that fit if left out"] = None,
        *,
        context: ToolContext,
    ) -> str:
        """Read a text file of the workspace."""
        with self._workspaces.opened(context) as workspace:
            file = decoded(read_bytes(workspace, path, self._most), path)
        if start_line < 1 or (lines is not None and lines < 1):
            raise ToolError("start_line and lines are counted from 1.")
        every = lines_of(file.text)
        wanted = every[start_line - 1 :][:lines]
        if every and not wanted:
            raise ToolError(f"{ascii(path)} has {len(every)} lines.")
        text, taken = _fitting(wanted, self._limits.result_kb * 1024)
        notes = []
        if taken < len(wanted) or start_line > 1 or lines is not None:
            last = start_line + taken - 1
            notes.append(f"lines {start_line} to {last} of {len(every)}")
        if file.encoding != "utf-8":
            notes.append(f"encoding {file.encoding}")
        return f"{text}\n[{', '.join(notes)}]" if notes else text

    def list_files(
        self,
        path: FolderPath = ".",
        recursive: Annotated[bool, "Also list what is in folders below"] = False,
        glob: Glob = "*",
        *,
        context: ToolContext,
    ) -> str:
        """List the files of a folder in the workspace, with their sizes in bytes."""
        listed: list[str] = []
        with self._workspaces.opened(context) as workspace:
            for found, known in _walk(workspace, path, deep=recursive):
                if not fnmatch.fnmatchcase(os.path.basename(found), glob):
                    continue
                if len(listed) == self._limits.entries:
                    listed.append(f"[cut: the first {self._limits.entries} entries]")
                    break
                listed.append(_listed(found, known.st_mode, known.st_size))
        return "\n".join(listed) or "(nothing)"

    def search_files(
        self,
        text: Annotated[str, "The text to look for, taken literally"],
        path: FolderPath = ".",
        glob: Glob = "*",
        case_sensitive: bool = False,
        *,
        context: ToolContext,
    ) -> str:
        """Find the lines of text files in the workspace that contain a text."""
        if not text or "\n" in text:
            raise ToolError("Give a text of one line to look for.")
        sought = text if case_sensitive else text.casefold()
        hits: list[str] = []
        deadline = time.monotonic() + SEARCH_SECONDS
        with self._workspaces.opened(context) as workspace:
            for found, known in _walk(workspace, path, deep=True):
                is_wanted = fnmatch.fnmatchcase(os.path.basename(found), glob)
                if not stat.S_ISREG(known.st_mode) or not is_wanted:
                    continue
                if time.monotonic() > deadline:
                    hits.append(f"[stopped after {SEARCH_SECONDS:g} seconds; search less]")
                    break
                for number, line in enumerate(self._lines(workspace, found), 1):
                    if sought in (line if case_sensitive else line.casefold()):
                        hits.append(f"{found}:{number}: {line.strip()[:MOST_LINE]}")
                if len(hits) >= self._limits.matches:
                    hits[self._limits.matches :] = [f"[cut: {self._limits.matches} lines]"]
                    break
        return "\n".join(hits) or "(not found)"

    def write_file(
        self,
        path: FilePath,
        content: Annotated[str, "The whole new content"],
        *,
        context: ToolContext,
    ) -> str:
        """Write a text file in the workspace, replacing it if it is there. Makes its folders."""
        encoded = self._encoded(content)
        with self._workspaces.opened(context) as workspace:
            is_new = workspace.replace(path, encoded)
        return f"{'Created' if is_new else 'Replaced'} {path}, {len(encoded)} bytes."

    def edit_file(
        self,
        path: FilePath,
        old_text: Annotated[str, "Text that is in the file exactly once"],
        new_text: Annotated[str, "What takes its place"],
        replace_all: Annotated[bool, "Replace every occurrence"] = False,
        *,
        context: ToolContext,
    ) -> str:
        """Replace a piece of a text file in the workspace."""
        with self._workspaces.opened(context) as workspace:
            file = decoded(read_bytes(workspace, path, self._most), path)
            after = edited(file, old_text, new_text, everywhere=replace_all, path=path)
            if len(after) > self._most:
                raise ToolError(f"The file would have more than {self._most} bytes.")
            workspace.replace(path, file.encoded(after))
        return f"Edited {path}.\n{unified_diff(file.text, after, path)}"

    def delete_file(self, path: FilePath, *, context: ToolContext) -> str:
        """Delete a file of the workspace."""
        with self._workspaces.opened(context) as workspace:
            kind = workspace.delete(path)
        return f"Deleted {path}, {kind}."

    @property
    def _most(self) -> int:
        return self._limits.file_kb * 1024

    def _encoded(self, content: str) -> bytes:
        try:
            encoded = content.encode()
        except UnicodeEncodeError:
            raise ToolError("The content is not valid Unicode.") from None
        if len(encoded) > self._most:
            raise ToolError(f"The content has more than {self._most} bytes.")
        return encoded

    def _lines(self, workspace: Workspace, path: str) -> list[str]:
        """None of a file that is not text, too large or gone."""
        try:
            return lines_of(decoded(read_bytes(workspace, path, self._most), path).text)
        except ToolError:
            return []

    def _preview_write(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        before = self._before(arguments["path"], context)
        return unified_diff(before, arguments["content"], arguments["path"])

    def _preview_edit(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        path = arguments["path"]
        with self._workspaces.opened(context) as workspace:
            file = decoded(read_bytes(workspace, path, self._most), path)
        after = edited(
            file,
            arguments["old_text"],
            arguments["new_text"],
            everywhere=arguments["replace_all"],
            path=path,
        )
        return unified_diff(file.text, after, path)

    def _preview_delete(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        before = self._before(arguments["path"], context)
        return unified_diff(before, "", arguments["path"])

    def _before(self, path: str, context: ToolContext) -> str:
        """The present text; nothing if there is none."""
        *above, name = parts_of(path) or ("",)
        with self._workspaces.opened(context) as workspace:
            try:
                with workspace.folder("/".join(above)) as folder:
                    os.stat(name, dir_fd=folder, follow_symlinks=False)
            except (ToolError, OSError):
                return ""
            return decoded(read_bytes(workspace, path, self._most), path).text


def _fitting(lines: list[str], most: int) -> tuple[str, int]:
    """As many whole lines as there is room for, at least one, which may be cut."""
    size = 0
    for taken, line in enumerate(lines):
        size += len(line.encode())
        if size > most and taken:
            return "".join(lines[:taken]), taken
        if size > most:
            return line.encode()[:most].decode(errors="ignore") + " [line cut]", 1
    return "".join(lines), len(lines)


def _listed(path: str, mode: int, size: int) -> str:
    if stat.S_ISREG(mode):
        return f"{path}  {size}"
    return f"{path}/" if stat.S_ISDIR(mode) else f"{path}  ({kind_of(mode)})"


def _walk(workspace: Workspace, path: str, *, deep: bool) -> Iterator[tuple[str, os.stat_result]]:
    """What lies in a folder, in order of names, by its path in the workspace. Links and other file
    systems are not entered."""
    ahead = ["/".join(parts_of(path))]
    first = ahead[0]
    while ahead:
        at, below = ahead.pop(), []
        try:
            with workspace.folder(at) as folder:
                for name in sorted(os.listdir(folder)):
                    known = stat_of(folder, name)
                    if known is None:
                        continue
                    found = f"{at}/{name}" if at else name
                    yield found, known
                    if deep and stat.S_ISDIR(known.st_mode) and at.count("/") < MOST_DEPTH:
                        below.append(found)
        except ToolError:
            if at == first:
                raise
            # Renamed or removed since it was listed, or not ours to read.
            continue
        ahead.extend(reversed(below))


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


def unified_diff(before: str, after: str, path: str) -> str:
    old, new = lines_of(before), lines_of(after)
    if old == new:
        return "(no change)\n"
    return "".join([f"--- a/{path}\n", f"+++ b/{path}\n", *_hunks(old, new)])


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    first, left = _equal_ends(old, new)
    start, end = max(0, first - CONTEXT), max(0, left - CONTEXT)
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    for group in _groups(old, new, first - start, left - end):
        (_, old_from, _, new_from, _), (_, _, old_to, _, new_to) = group[0], group[-1]
        ranges = _range(start + old_from, start + old_to), _range(start + new_from, start + new_to)
        yield "@@ -{} +{} @@\n".format(*ranges)
        for kind, old_at, old_end, new_at, new_end in group:
            if kind == "equal":
                yield from (_diff_line(" ", line) for line in old[old_at:old_end])
                continue
            yield from (_diff_line("-", line) for line in old[old_at:old_end])
            yield from (_diff_line("+", line) for line in new[new_at:new_end])


def _equal_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many lines at the start and at the end are the same; no line counts twice."""
    most = min(len(old), len(new))
    first = 0
    while first < most and old[first] == new[first]:
        first += 1
    last = 0
    while last < most - first and old[-1 - last] == new[-1 - last]:
        last += 1
    return first, last


def _groups(
    old: Sequence[str], new: Sequence[str], above: int, below: int
) -> Iterator[Sequence[Opcode]]:
    """Changes with their surroundings; `above` and `below` lines are known to be the same."""
    if len(old) * len(new) <= MOST_COMPARED:
        yield from SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT)
        return
    old_end, new_end = len(old) - below, len(new) - below
    yield [
        ("equal", 0, above, 0, above),
        ("replace", above, old_end, above, new_end),
        ("equal", old_end, len(old), new_end, len(new)),
    ]


def _range(start: int, end: int) -> str:
    """Lines are counted from 1; of none at all, the one before is named."""
    length = end - start
    if length == 1:
        return f"{start + 1}"
    return f"{start + 1 if length else start},{length}"


def _diff_line(sign: str, line: str) -> str:
    ending = "" if line.endswith("\n") else "\n\\ No newline at end of file\n"
    return f"{sign}{line}{ending}"
