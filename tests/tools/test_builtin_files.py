"""Files in a workspace: what is read and written, and that nothing leads out of it."""

import asyncio
import ctypes
import os
import stat
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from sk_agents.exceptions import ToolError
from sk_agents.tools.builtin.workspace import FolderOpener, Workspace, Workspaces, parts_of
from tests.missing import lacks
from tests.tools.builtin_box import files
from tests.tools.calls import CONTEXT, call, result

libc = ctypes.CDLL(None)
CWD, EXCHANGE = -100, 2


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    return made


@pytest.fixture(params=[True, False], ids=["kernel", "walk"])
def opener(request: pytest.FixtureRequest) -> FolderOpener:
    return FolderOpener(has_kernel_check=request.param)


async def said(folder: Path, name: str, **arguments: object) -> str:
    return (await result(files(folder), f"Files-{name}", arguments)).content


async def refusal(folder: Path, name: str, **arguments: object) -> str:
    with pytest.raises(ToolError) as caught:
        await said(folder, name, **arguments)
    return str(caught.value)


async def test_written_file_is_read_back_and_listed(tmp_path: Path) -> None:
    text = "grüße\nzwei\n"
    assert await said(tmp_path, "write_file", path="a/b/c.txt", content=text) == (
        "Created a/b/c.txt, 13 bytes."
    )
    assert await said(tmp_path, "read_file", path="a/b/c.txt") == text
    assert await said(tmp_path, "list_files") == "a/"
    assert await said(tmp_path, "list_files", recursive=True) == "a/\na/b/\na/b/c.txt  13"
    assert await said(tmp_path, "list_files", path="a/b", glob="*.md") == "(nothing)"


async def test_part_of_a_file_is_read_by_lines(work: Path) -> None:
    (work / "n.txt").write_text("".join(f"{number}\n" for number in range(1, 101)))
    found = await said(work.parent, "read_file", path="n.txt", start_line=99, lines=5)
    assert found == "99\n100\n\n[lines 99 to 100 of 100]"
    assert "has 100 lines" in await refusal(work.parent, "read_file", path="n.txt", start_line=101)
    assert "counted from 1" in await refusal(work.parent, "read_file", path="n.txt", start_line=0)


async def test_long_file_is_cut_at_a_line_and_says_where(work: Path) -> None:
    (work / "n.txt").write_text("x" * 99 + "\n" + "y" * 99 + "\n" + "z" * 2000)
    box = files(work.parent, files={"result_kb": 1})
    first = (await result(box, "Files-read_file", {"path": "n.txt"})).content
    assert first.endswith("\n\n[lines 1 to 2 of 3]")
    third = (await result(box, "Files-read_file", {"path": "n.txt", "start_line": 3})).content
    assert third.startswith("z" * 1024 + " [line cut]")


async def test_lines_with_a_text_are_found(work: Path) -> None:
    (work / "a.py").write_text("one\nTwo needles\n")
    (work / "sub").mkdir()
    (work / "sub" / "b.py").write_text("NEEDLE\n")
    (work / "c.txt").write_text("needle\n")
    (work / "bin").write_bytes(b"needle\0")
    assert await said(work.parent, "search_files", text="needle", glob="*.py") == (
        "a.py:2: Two needles\nsub/b.py:1: NEEDLE"
    )
    found = await said(work.parent, "search_files", text="NEEDLE", case_sensitive=True)
    assert found == "sub/b.py:1: NEEDLE"
    assert await said(work.parent, "search_files", text="(a+)+$") == "(not found)"


async def test_piece_of_a_file_is_replaced_and_the_rest_kept(work: Path) -> None:
    (work / "a.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    (work / "a.txt").chmod(0o750)
    answer = await said(
        work.parent, "edit_file", path="a.txt", old_text="one\ntwo", new_text="1\n2"
    )
    assert (work / "a.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"
    assert stat.S_IMODE((work / "a.txt").stat().st_mode) == 0o750
    assert "-one\r\n-two\r\n+1\r\n+2\r\n" in answer


@pytest.mark.parametrize(
    ("old", "reason"), [("x", "2 times"), ("absent", "is not in"), ("", "is empty")]
)
async def test_edit_that_is_not_clear_changes_nothing(work: Path, old: str, reason: str) -> None:
    (work / "a.txt").write_text("x x")
    said = await refusal(work.parent, "edit_file", path="a.txt", old_text=old, new_text="y")
    assert reason in said
    assert (work / "a.txt").read_text() == "x x"


async def test_every_occurrence_is_replaced_when_asked_for(work: Path) -> None:
    (work / "a.txt").write_text("x x")
    await said(work.parent, "edit_file", path="a.txt", old_text="x", new_text="y", replace_all=True)
    assert (work / "a.txt").read_text() == "y y"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
async def test_encoding_is_told_and_kept(work: Path, encoding: str) -> None:
    (work / "a.txt").write_bytes("grüße".encode(encoding))
    assert f"encoding {encoding}" in await said(work.parent, "read_file", path="a.txt")
    await said(work.parent, "edit_file", path="a.txt", old_text="ü", new_text="ä")
    assert (work / "a.txt").read_bytes() == "gräße".encode(encoding)


async def test_character_the_encoding_does_not_have_is_refused(work: Path) -> None:
    (work / "a.txt").write_bytes(b"gr\xfc\xdfe")
    answer = await refusal(work.parent, "edit_file", path="a.txt", old_text="ü", new_text="\u20ac")
    assert "latin-1" in answer
    assert (work / "a.txt").read_bytes() == b"gr\xfc\xdfe"


async def test_binary_file_is_said_to_be_one(work: Path) -> None:
    (work / "a.bin").write_bytes(b"\x7fELF\0\0")
    assert await refusal(work.parent, "read_file", path="a.bin") == (
        "'a.bin' is a binary file of 6 bytes, not text."
    )


async def test_sizes_are_bounded(work: Path) -> None:
    (work / "big.txt").write_text("x" * 3000)
    box = files(work.parent, files={"file_kb": 2})
    for name, arguments in (
        ("Files-read_file", {"path": "big.txt"}),
        ("Files-write_file", {"path": "new.txt", "content": "x" * 3000}),
        ("Files-edit_file", {"path": "big.txt", "old_text": "x", "new_text": "y"}),
    ):
        with pytest.raises(ToolError, match="2048"):
            await result(box, name, arguments)
    assert not (work / "new.txt").exists()


async def test_list_and_search_are_cut(work: Path) -> None:
    for number in range(5):
        (work / f"{number}.txt").write_text("needle\n")
    box = files(work.parent, files={"entries": 3, "matches": 3})
    listed = (await result(box, "Files-list_files", {})).content
    assert listed.endswith("2.txt  7\n[cut: the first 3 entries]")
    found = (await result(box, "Files-search_files", {"text": "needle"})).content
    assert found.splitlines()[3:] == ["[cut: 3 lines]"]


async def test_deleted_file_is_gone_and_a_folder_stays(work: Path) -> None:
    (work / "a.txt").write_text("x")
    (work / "sub").mkdir()
    assert await said(work.parent, "delete_file", path="a.txt") == "Deleted a.txt, a file."
    assert "is a folder" in await refusal(work.parent, "delete_file", path="sub")
    assert "does not exist" in await refusal(work.parent, "delete_file", path="a.txt")
    assert os.listdir(work) == ["sub"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../secret.txt", "'..' cannot be used"),
        ("a/../../secret.txt", "'..' cannot be used"),
        ("/etc/passwd", "relative to the workspace"),
        ("~/x", "relative to the workspace"),
        ("C:\\x", "relative to the workspace"),
        ("\\\\host\\share", "relative to the workspace"),
        ("a\0b", "control characters"),
        ("a\nb", "control characters"),
        ("x" * 1025, "longer than"),
        ("x" * 300, "too long"),
        ("", "names the workspace itself"),
        (".", "names the workspace itself"),
        ("out/secret.txt", "leads out of the workspace"),
        ("out_file", "leads out of the workspace"),
        ("absolute/secret.txt", "leads out of the workspace"),
        ("loop", "symbolic link"),
        ("pipe", "a pipe, not a regular file"),
        ("sub", "a folder, not a regular file"),
        ("file/x", "not a folder"),
        ("gone", "does not exist"),
    ],
)
async def test_path_that_may_not_be_read_is_refused(work: Path, path: str, reason: str) -> None:
    _odd_things(work)
    assert reason in await refusal(work.parent, "read_file", path=path)


@pytest.mark.parametrize(
    "path",
    [
        *("../new.txt", "/tmp/new.txt", "out/new.txt", "absolute/new.txt", "out_file", "loop"),
        *("pipe", "sub", "file/x", ".", "dangling"),
    ],
)
async def test_path_that_may_not_be_written_is_refused(work: Path, path: str) -> None:
    _odd_things(work)
    before = sorted(str(entry) for entry in work.parent.rglob("*"))
    await refusal(work.parent, "write_file", path=path, content="mine")
    assert sorted(str(entry) for entry in work.parent.rglob("*")) == before
    assert (work.parent / "secret.txt").read_text() == "secret"


def _odd_things(work: Path) -> None:
    (work / "out").symlink_to("..")
    (work / "out_file").symlink_to("../secret.txt")
    (work / "absolute").symlink_to(work.parent)
    (work / "loop").symlink_to("loop")
    (work / "dangling").symlink_to("../fresh.txt")
    (work / "sub").mkdir()
    (work / "file").write_text("x")
    os.mkfifo(work / "pipe")


async def test_device_is_refused(work: Path) -> None:
    try:
        os.mknod(work / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        lacks("root", "NOT SHOWN HERE: only root can make devices")
    assert "a device" in await refusal(work.parent, "read_file", path="zero")
    assert "a device" in await refusal(work.parent, "delete_file", path="zero")


async def test_link_is_listed_and_deleted_itself_not_what_it_leads_to(work: Path) -> None:
    (work / "out").symlink_to("..")
    assert await said(work.parent, "list_files", recursive=True) == "out  (a symbolic link)"
    assert await said(work.parent, "search_files", text="secret") == "(not found)"
    await said(work.parent, "delete_file", path="out")
    assert (work.parent / "secret.txt").exists()


async def test_link_within_the_workspace_is_followed_for_reading(work: Path) -> None:
    (work / "real").mkdir()
    (work / "real" / "a.txt").write_text("in")
    (work / "link").symlink_to("real")
    assert await said(work.parent, "read_file", path="link/a.txt") == "in"


async def test_other_names_of_a_file_keep_their_content(work: Path) -> None:
    os.link(work.parent / "secret.txt", work / "linked.txt")
    await said(work.parent, "write_file", path="linked.txt", content="mine")
    assert (work.parent / "secret.txt").read_text() == "secret"
    assert (work / "linked.txt").read_text() == "mine"


async def test_rights_that_come_with_a_file_are_not_passed_on(work: Path) -> None:
    (work / "tool").write_text("old")
    (work / "tool").chmod(0o4755)
    await said(work.parent, "write_file", path="tool", content="new")
    assert stat.S_IMODE((work / "tool").stat().st_mode) == 0o755


async def test_failed_write_leaves_nothing_behind(work: Path) -> None:
    (work / "sub").mkdir()
    await refusal(work.parent, "write_file", path="sub", content="x")
    assert os.listdir(work) == ["sub"]
    assert os.listdir(work / "sub") == []


@pytest.mark.parametrize("path", ["out/secret.txt", "out_file"])
def test_nothing_leads_out_with_either_way_of_opening(
    work: Path, opener: FolderOpener, path: str
) -> None:
    _odd_things(work)
    with Workspaces(work, "everyone", opener).opened(CONTEXT) as workspace:
        with pytest.raises(ToolError), workspace.file(path):
            raise AssertionError("it was opened")
        with pytest.raises(ToolError):
            workspace.replace(path, b"mine")
    assert (work.parent / "secret.txt").read_text() == "secret"


def test_folder_that_turns_into_a_link_never_leads_out(work: Path, opener: FolderOpener) -> None:
    """Another process swaps a folder for a link to the outside while files are read and written."""
    outside = work.parent / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("secret")
    (work / "sub").mkdir()
    (work / "sub" / "a.txt").write_text("mine")
    (work / "link").symlink_to(outside)
    stop = Event()

    def swap() -> None:
        names = os.fsencode(work / "sub"), os.fsencode(work / "link")
        while not stop.is_set():
            assert libc.renameat2(CWD, names[0], CWD, names[1], EXCHANGE) == 0

    swapper = Thread(target=swap)
    swapper.start()
    read: set[bytes] = set()
    try:
        with Workspaces(work, "everyone", opener).opened(CONTEXT) as workspace:
            for number in range(20_000):
                read.add(_tried(workspace, number))
                if number > 1000 and b"mine" in read:
                    break
    finally:
        stop.set()
        swapper.join()
    assert b"secret" not in read
    assert b"mine" in read
    assert (outside / "a.txt").read_text() == "secret"
    assert [path.name for path in outside.iterdir()] == ["a.txt"]


def _tried(workspace: Workspace, number: int) -> bytes:
    try:
        if number % 3:
            with workspace.file("sub/a.txt") as (descriptor, _):
                return os.read(descriptor, 100)
        workspace.replace("sub/a.txt", b"mine")
    except ToolError as error:
        return str(error).encode()
    return b"written"


async def test_readers_see_the_old_file_or_the_new_one(work: Path) -> None:
    contents = ["a" * 50_000, "b" * 50_000]
    (work / "a.txt").write_text(contents[0])
    box = files(work.parent)

    async def write() -> None:
        for number in range(20):
            arguments = {"path": "a.txt", "content": contents[number % 2]}
            await result(box, "Files-write_file", arguments)

    writing = asyncio.create_task(write())
    while not writing.done():
        assert (await result(box, "Files-read_file", {"path": "a.txt"})).content in contents
    await writing


async def test_users_have_folders_of_their_own(tmp_path: Path) -> None:
    box = files(tmp_path, workspace_for="user")
    await result(box, "Files-write_file", {"path": "a.txt", "content": "ann's"})
    other = replace(CONTEXT, user_id="bob")
    with pytest.raises(ToolError, match="does not exist"):
        await result(box, "Files-read_file", {"path": "a.txt"}, other)
    same = replace(CONTEXT, thread_id="t2")
    assert (await result(box, "Files-read_file", {"path": "a.txt"}, same)).content == "ann's"


async def test_threads_can_have_folders_of_their_own(tmp_path: Path) -> None:
    box = files(tmp_path, workspace_for="thread")
    await result(box, "Files-write_file", {"path": "a.txt", "content": "x"})
    with pytest.raises(ToolError, match="does not exist"):
        await result(box, "Files-read_file", {"path": "a.txt"}, replace(CONTEXT, thread_id="t2"))


async def shown(folder: Path, name: str, **arguments: object) -> str | None:
    box = files(folder)
    wanted = call(f"Files-{name}", arguments)
    checked = wanted.model_copy(update={"arguments": box.check(wanted)})
    shown = await box.preview(checked, CONTEXT)
    assert shown is None or isinstance(shown, str)
    return shown


async def test_preview_shows_what_a_call_would_change_and_changes_nothing(work: Path) -> None:
    (work / "a.txt").write_text("one\ntwo\n")
    assert await shown(work.parent, "write_file", path="a.txt", content="one\n2\n") == (
        "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    )
    assert await shown(work.parent, "write_file", path="new/b.txt", content="x") == (
        "--- a/new/b.txt\n+++ b/new/b.txt\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
    )
    edit = await shown(work.parent, "edit_file", path="a.txt", old_text="two", new_text="2")
    assert edit is not None and "-two\n+2\n" in edit
    gone = await shown(work.parent, "delete_file", path="a.txt")
    assert gone is not None and "-one\n-two\n" in gone
    same = await shown(work.parent, "write_file", path="a.txt", content="one\ntwo\n")
    assert same == "(no change)\n"
    assert await shown(work.parent, "read_file", path="a.txt") is None
    assert os.listdir(work) == ["a.txt"]


@pytest.mark.parametrize("path", ["../secret.txt", "out_file"])
async def test_preview_leads_out_no_more_than_the_call(work: Path, path: str) -> None:
    _odd_things(work)
    said = await shown(work.parent, "write_file", path=path, content="x")
    assert said is not None and said.startswith("This call would fail: ")


def test_path_of_half_a_character_is_refused() -> None:
    with pytest.raises(ToolError, match="not valid Unicode"):
        parts_of("a/\ud800")


@pytest.mark.parametrize("path", ["a//b", "./a/b", "a/./b/"])
def test_spellings_of_one_path_are_one(path: str) -> None:
    assert parts_of(path) == ("a", "b")
