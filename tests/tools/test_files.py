"""The tools for files: they work below one folder, and cannot leave it.

The names have the numbers of the list of hostile inputs.
"""

from __future__ import annotations

import contextvars
import hashlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import dagrun
from calls import make_call
from dagrun import Artifact, Plan, Status, Step, ToolError
from dagrun.kernel.decide.classify import classify
from dagrun.kernel.model.outcome import ErrorKind
from dagrun_tools.files import confined_files, file_tools
from dagrun_tools.files.confined_files import OutsideRoot
from dagrun_tools.files.file_tools import FileRules, read_file, write_file
from seeds import NIGHT


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """Make the folder of the tools, beside a secret, and beside a folder whose name begins alike."""
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "sub" / "inner.txt").write_text("inner")
    (work / "plain.txt").write_text("plain")
    (tmp_path / "secret").write_text("hunter2")
    (tmp_path / "work-evil").mkdir()
    (tmp_path / "work-evil" / "secret").write_text("hunter2")
    token = file_tools.rules.set(FileRules(root=work, max_bytes=1000))
    yield work
    file_tools.rules.reset(token)


def _read(path: str, **options: Any) -> dict[str, Any]:
    return dict(read_file.function(**make_call(read_file, {"path": path, **options}).arguments))


def _write(path: str, content: str, **options: Any) -> dict[str, Any]:
    call = make_call(write_file, {"path": path, "content": content, **options})
    return dict(write_file.function(**call.arguments))


def _attempts(path: str, content: str = "x") -> list[Callable[[], object]]:
    """Return all calls that the tools could make with *path*."""
    return [lambda: _read(path), lambda: _write(path, content), lambda: _write(path, content, overwrite=True)]


def _all_files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.is_symlink()}


# What they are for ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["sub/inner.txt", "./sub/inner.txt"])
def test_a_file_below_the_root_is_read(root: Path, path: str) -> None:
    """Text is returned as text, with the media type of its name."""
    assert _read(path) == {"path": path, "media_type": "text/plain", "size": 5, "text": "inner"}


def test_a_file_that_is_not_text_is_read_as_an_artifact(root: Path) -> None:
    """Bytes are not a JSON value."""
    (root / "a.png").write_bytes(b"\x89PNG\0")
    found = _read("a.png")
    assert "text" not in found
    assert (found["artifact"].media_type, found["artifact"].size) == ("image/png", 5)


def test_a_file_is_written_with_the_folders_that_it_needs(root: Path) -> None:
    """A plan names `reports/2025/q4.md`, and the folders do not exist."""
    assert _write("reports/2025/q4.md", "größer") == {
        "path": "reports/2025/q4.md",
        "size": 8,
        "sha256": hashlib.sha256("größer".encode()).hexdigest(),
    }
    assert (root / "reports/2025/q4.md").read_text() == "größer"


def test_writing_the_same_again_changes_nothing(root: Path) -> None:
    """The tool is idempotent, so a retry after an unknown outcome must succeed."""
    first = _write("a.txt", "same")
    before = (root / "a.txt").stat()
    assert _write("a.txt", "same") == first
    assert (root / "a.txt").stat() == before
    assert _write("empty", "") == _write("empty", "")


def test_another_content_is_not_overwritten_unless_asked_for(root: Path) -> None:
    """A plan that uses the name of a person's file by chance must not destroy it."""
    with pytest.raises(ToolError, match="exists already"):
        _write("plain.txt", "new")
    assert (root / "plain.txt").read_text() == "plain"

    _write("plain.txt", "new", overwrite=True)
    assert (root / "plain.txt").read_text() == "new"


def test_no_draft_is_left_behind(root: Path) -> None:
    """Neither after a success nor after a refusal."""
    before = set(_all_files(root))
    _write("a.txt", "1")
    with pytest.raises(ToolError):
        _write("a.txt", "2")
    _write("a.txt", "2", overwrite=True)
    assert set(_all_files(root)) == before | {"a.txt"}
    assert (root / "a.txt").stat().st_nlink == 1


def test_readers_see_all_of_a_file_or_nothing(root: Path) -> None:
    """A reader outside the run must never see half of a report."""
    old, new = "a" * 900, "b" * 900
    _write("a.txt", old)
    seen: set[str] = set()
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            seen.add((root / "a.txt").read_text())

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(1_000 if NIGHT else 40):
        _write("a.txt", (new, old)[number % 2], overwrite=True)
    is_over.set()
    reader.join(20)
    assert seen <= {old, new}


def test_a_file_that_appears_meanwhile_is_not_replaced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may create the file between the check and the write."""
    draft = confined_files._write_draft

    def slow_draft(folder: int, name: str, data: bytes) -> None:
        draft(folder, name, data)
        (root / "new.txt").write_text("theirs")

    monkeypatch.setattr(confined_files, "_write_draft", slow_draft)
    with pytest.raises(ToolError, match="exists already"):
        _write("new.txt", "ours")
    assert (root / "new.txt").read_text() == "theirs"


def test_an_artifact_is_written_as_it_is(root: Path) -> None:
    """A chart is copied from the folder of the run to a place for people."""
    call = make_call(write_file)
    context = call.context()
    artifact = context.artifacts.save(b"\0\1", media_type="image/png", name="../../evil.png")
    write_file.function(path="charts/a.png", content=artifact, context=context)
    assert (root / "charts/a.png").read_bytes() == b"\0\1"
    with pytest.raises(FileNotFoundError):
        write_file.function(path="b.png", content=Artifact(sha256="0" * 64), context=context)


def test_the_ceiling_of_size_holds_for_both(root: Path) -> None:
    """A file of many gigabytes would fill the memory or the disk."""
    (root / "fits").write_bytes(b"x" * 1000)
    assert _read("fits")["size"] == 1000
    assert _write("copy", "x" * 1000)["size"] == 1000

    (root / "big").write_bytes(b"x" * 1001)
    call = make_call(write_file)
    artifact = call.context().artifacts.save(b"x" * 1001)
    with pytest.raises(ToolError, match="ceiling of 1000"):
        _read("big")
    for content in ("x" * 1001, "ä" * 501, artifact):
        with pytest.raises(ToolError, match="ceiling of 1000"):
            write_file.function(path="out", content=content, context=call.context())
    assert not (root / "out").exists()


@pytest.mark.anyio
@pytest.mark.real_time
async def test_a_plan_copies_a_file(root: Path) -> None:
    """The rules apply in the thread of a plain function."""
    plan = Plan(
        steps=[
            Step(id="in", tool="read_file", args={"path": "plain.txt"}),
            Step(id="out", tool="write_file", args={"path": "copy.txt", "content": "got ${in.text}"}),
            Step(id="file", tool="read_file", args={"path": "plain.txt", "form": "artifact"}),
            Step(id="copy", tool="write_file", args={"path": "b.txt", "content": "${file.artifact}"}),
        ]
    )
    result = await dagrun.run(plan, tools=file_tools.TOOLS)
    assert result.status is Status.SUCCEEDED, result.reason
    assert (root / "copy.txt").read_text() == "got plain"
    assert (root / "b.txt").read_text() == "plain"


def test_the_root_is_the_current_directory_unless_somebody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who types `dagrun run` expects that."""
    (tmp_path / "a.txt").write_text("here")
    monkeypatch.chdir(tmp_path)
    assert contextvars.Context().run(_read, "a.txt")["text"] == "here"


def test_a_root_that_does_not_exist_is_said_so(tmp_path: Path) -> None:
    """ "a.txt does not exist" would send people looking for the wrong thing."""
    token = file_tools.rules.set(FileRules(root=tmp_path / "none"))
    with pytest.raises(ToolError, match="folder for the files of tools does not exist"):
        _read("a.txt")
    file_tools.rules.reset(token)


# Paths ----------------------------------------------------------------------------------------------------------------

ESCAPES = [
    *("../secret", "sub/../../secret", "sub/../plain.txt", "..", "sub/..", "./../secret", "../work-evil/secret"),
    *("..\\secret", "sub\\..\\..\\secret", "%2e%2e/secret", "%2E%2E%2Fsecret", "sub%2f..%2fsecret", "..%5csecret"),
    *("/etc/passwd", "//etc/passwd", "///secret", "~/secret", "~root/x", "C:\\secret", "C:secret", "\\\\host\\share"),
    *("/proc/self/environ", "/dev/zero", "file:///etc/passwd/..", "....//secret", "sub//inner.txt", "sub/./inner.txt"),
]


def _is_refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except ToolError as error:
        return str(error).isprintable() and "hunter2" not in str(error)
    return False


def test_s75_paths_that_lead_out_are_refused(root: Path) -> None:
    """None of them is corrected and used, because programs read them differently."""
    before = _all_files(root.parent)
    assert [path for path in ESCAPES for attempt in _attempts(path) if not _is_refused(attempt)] == []
    assert _all_files(root.parent) == before


def test_s75_the_absolute_path_of_the_root_is_no_way_in_either(root: Path) -> None:
    """A comparison of prefixes as text would also accept `work-evil`."""
    for path in (str(root / "plain.txt"), f"{root}-evil/secret"):
        with pytest.raises(OutsideRoot):
            _read(path)


def test_s75_a_refusal_is_a_matter_of_permission_and_a_missing_file_is_not(root: Path) -> None:
    """Recovery asks a person about a refusal, and lets a planner repair a missing file."""
    kinds: list[ErrorKind] = []
    for path in ("../secret", "missing.txt"):
        with pytest.raises(ToolError) as caught:
            _read(path)
        kinds.append(classify(caught.value, read_file).kind)
    assert kinds == [ErrorKind.PERMISSION, ErrorKind.TOOL]


# Links ----------------------------------------------------------------------------------------------------------------


def _link_file(root: Path) -> str:
    (root / "link").symlink_to(root.parent / "secret")
    return "link"


def _link_folder(root: Path) -> str:
    (root / "folder").symlink_to(root.parent)
    return "folder/secret"


def _link_inside(root: Path) -> str:
    (root / "here").symlink_to("plain.txt")
    return "here"


def _hard_link(root: Path) -> str:
    os.link(root.parent / "secret", root / "hard")
    return "hard"


def _broken_link(root: Path) -> str:
    (root / "broken").symlink_to(root.parent / "made-by-us")
    return "broken"


def _loop(root: Path) -> str:
    (root / "loop").symlink_to("loop")
    return "loop/x"


@pytest.mark.parametrize("make", [_link_file, _link_folder, _link_inside, _hard_link, _broken_link, _loop])
def test_s76_links_are_refused(root: Path, make: Any) -> None:
    """Anybody who can write into the folder can put a link there, and its target may change at any time."""
    path = make(root)
    before = _all_files(root.parent)
    for call in _attempts(path, "hunter2"):
        with pytest.raises(OutsideRoot):
            call()
    assert _all_files(root.parent) == before


def test_s76_a_folder_that_is_swapped_for_a_link_is_not_followed(root: Path) -> None:
    """A thread swaps them as fast as it can; each call uses the real folder, or refuses."""
    swapped, aside, link = root / "swap", root / "aside", root / "link"
    swapped.mkdir()
    (swapped / "secret").write_text("ours")
    link.symlink_to(root.parent)
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            os.rename(swapped, aside)
            os.rename(link, swapped)
            os.rename(swapped, link)
            os.rename(aside, swapped)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = set()
    for _ in range(20_000 if NIGHT else 500):
        with suppress(ToolError):
            seen.add(_read("swap/secret")["text"])
    is_over.set()
    swapper.join(20)
    assert seen == {"ours"}


def test_s76_a_file_that_becomes_a_link_after_the_check_is_not_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that is checked and the file that is opened may differ."""
    look = confined_files._existing

    def look_and_swap(folder: int, name: str, path: str) -> os.stat_result | None:
        found = look(folder, name, path)
        (root / "plain.txt").unlink(missing_ok=True)
        (root / "plain.txt").symlink_to(root.parent / "secret")
        return found

    monkeypatch.setattr(confined_files, "_existing", look_and_swap)
    with pytest.raises(OutsideRoot, match="is a link"):
        _read("plain.txt")
    (root / "plain.txt").unlink()
    (root / "plain.txt").write_text("plain")
    _write("plain.txt", "ours", overwrite=True)
    assert (root.parent / "secret").read_text() == "hunter2"


# What is no file ------------------------------------------------------------------------------------------------------


def _fifo(root: Path) -> str:
    os.mkfifo(root / "fifo")
    return "fifo"


def _socket(root: Path) -> str:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(root / "sock"))
    return "sock"


@pytest.mark.parametrize("make", [_fifo, _socket, lambda _: "sub", lambda _: "plain.txt/x"])
def test_s77_what_is_no_regular_file_is_refused_without_waiting(root: Path, make: Any) -> None:
    """Opening a FIFO would wait for its other end; the time limit of the test proves that it does not."""
    path = make(root)
    for call in _attempts(path):
        with pytest.raises(OutsideRoot):
            call()


def test_s77_devices_are_refused() -> None:
    """Reading a device never ends."""
    token = file_tools.rules.set(FileRules(root=Path("/dev")))
    for name in ("zero", "null", "tty"):
        with pytest.raises(ToolError):
            _read(name)
        with pytest.raises(ToolError):
            _write(name, "x", overwrite=True)
    file_tools.rules.reset(token)


def test_s77_names_that_are_none_are_refused(root: Path) -> None:
    """The error is clear, does not depend on the system, and fits on one line of a log."""
    before = _all_files(root)
    names = ["", "a\0b", "a\nb", "a\x1b[2Jb", "x" * 5000, "x" * 256, "ä" * 200, "sub/", "/", "./", "."]
    assert [name for name in names for attempt in _attempts(name) if not _is_refused(attempt)] == []
    assert _is_refused(lambda: confined_files.parts_of("\udc80"))
    assert _all_files(root) == before


def test_s77_a_file_that_claims_to_be_empty_is_still_counted() -> None:
    """System files claim 0 bytes and return more, so the bytes that are read are counted."""
    with pytest.raises(ToolError, match="ceiling of 3"):
        confined_files.read(Path("/proc/self"), "status", 3)
