"""Files that commands leave: checked before anything costs time, and never over a file of others."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagrun.cli.terminal.text import to_json
from dagrun.cli.terminal.user_errors import BadInput

if TYPE_CHECKING:
    from dagrun.observe.report.report import ReportStyle

# The folders in which tools look for a file that is not in the current directory, in the form of PATH.
READ_FROM: Final = "DAGRUN_READ_FROM"
# Of files that people expect from an option -o, as other commands have it: nobody calls a folder so.
_ENDINGS: Final = (".json", ".html", ".md", ".svg", ".png", ".txt", ".csv")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder for the files of a run.

    Attributes:
        path: The folder, absolute; `None` if the run leaves no files.
    """

    path: Path | None

    @property
    def artifacts(self) -> Path | None:
        """The folder for the files of tools; `None` for a temporary folder."""
        return artifacts_in(self.path)

    def save(self, record: dict[str, Any]) -> None:
        """Write ``run.json``, completely or not at all.

        Raises:
            OSError: It cannot be written.
        """
        if self.path is None:
            return
        write_whole(self.path / "run.json", to_json(record, indent=2) + "\n")


def artifacts_in(output: Path | None) -> Path | None:
    """Return the folder for the files of tools in *output*; `None` for none."""
    return output.absolute() / "artifacts" if output is not None else None


def write_whole(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file completely or not at all: until the end, readers see the old file. Write to devices directly.

    Raises:
        OSError: It cannot be written.
    """
    if path.exists() and not path.is_file():  # a new file must not replace /dev/stdout
        path.write_text(text, encoding="utf-8")
        return
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(draft, mode)
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def writable(name: str | None, option: str) -> Path | None:
    """Return the absolute path of the file *name*, checked before a run or a planner costs anything.

    Args:
        name: The file; `None` for none.
        option: The option that names it, for the error.

    Raises:
        BadInput: The file cannot be written.
    """
    if name is None:
        return None
    path = Path(name).absolute()
    if path.is_dir():
        raise BadInput(f"{option} {name}: it is a folder")
    if not os.access(path.parent, os.W_OK):
        reason = "may not be written to" if path.parent.is_dir() else "does not exist"
        raise BadInput(f"{option} {name}: the folder {path.parent} {reason}")
    return path


@contextmanager
def run_folder(path: Path | None) -> Iterator[RunFolder]:
    """Make *path* the current directory, so that tools leave their files there.

    The former current directory is named in the environment, so that tools still find its files.

    Raises:
        BadInput: The folder cannot be made or entered, or a file seems to be meant.
    """
    if path is None:
        yield RunFolder(None)
        return
    before = os.getcwd()
    folder = path.absolute()
    if path.suffix.lower() in _ENDINGS and not folder.exists():
        name = path.name
        raise BadInput(
            f"-o {name}: it is the folder for the files of the run; for one file, --report {name}, or --json > {name}"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        change = contextlib.chdir(folder)
        change.__enter__()
    except OSError as error:
        raise BadInput(f"cannot use {path} for the files of the run: {error.strerror}") from error
    named = os.environ.get(READ_FROM)
    os.environ[READ_FROM] = before
    try:
        yield RunFolder(folder)
    finally:
        change.__exit__(None, None, None)
        os.environ.pop(READ_FROM)
        if named is not None:
            os.environ[READ_FROM] = named


# The bytes above which a report is said to be large, with what makes it smaller.
LARGE: Final = 8_000_000


class ReportFile:
    """A file for a report.

    Args:
        name: Its name; the ending says which form it has, if none is given.
        form: The form of the report; `None` for what the ending says, and ``html`` without one.
        option: The option that names it, for errors.
        is_forced: Whether a file that is no report of ours may be overwritten.

    Raises:
        BadInput: It cannot be written, is another file, or has an ending that stands for no form.
        MissingExtra: It is a PNG, and the library that makes it is not installed.
    """

    def __init__(self, name: str, form: str | None = None, *, option: str = "-o", is_forced: bool = False) -> None:
        from dagrun.observe.report.report import FORMS, png_library

        self.form = form or _form_by_ending(name, option)
        assert self.form in FORMS
        if self.form == "png":
            png_library()
        path = writable(name, option)
        assert path is not None
        self.path: Path = path
        if path.is_file() and not is_forced and not _is_ours(path, self.form):
            raise BadInput(
                f"{option} {name}: there is another file, which is no report of dagrun (--force overwrites it)"
            )

    def write(self, view: Mapping[str, Any], style: ReportStyle | None = None) -> int:
        """Write the report, completely or not at all, and return its size in bytes.

        Raises:
            OSError: It cannot be written.
        """
        from dagrun.observe.report.report import make_report

        data = make_report(view, self.form, style)
        if self.path.exists() and not self.path.is_file():  # /dev/stdout
            self.path.write_bytes(data)
            return len(data)
        draft = self.path.with_name(f".{self.path.name}.draft")
        try:
            draft.write_bytes(data)
            draft.replace(self.path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        return len(data)


def _form_by_ending(name: str, option: str) -> str:
    """Return the format for the ending of a file; a page if it has none.

    Raises:
        BadInput: It stands for no form: a page in a file that is called a PDF cannot be opened.
    """
    from dagrun.observe.report.report import ENDINGS, form_of

    ending = Path(name).suffix
    if ending and not form_of(name):
        raise BadInput(f"{option} {name}: there is no form for the ending {ending}; there are {', '.join(ENDINGS)}")
    return form_of(name) or "html"


_MARKS: Final = {
    "html": b'content="dagrun report ',
    "svg": b"dagrun",
    "json": b'"schema_version"',
    "png": b"\x89PNG",
    "markdown": b"## ",
    "dot": b"digraph run",
    "mermaid": b"flowchart LR",
}


def _is_ours(path: Path, form: str) -> bool:
    """Whether a file looks like a report of that form, or is empty."""
    try:
        with path.open("rb") as file:
            start = file.read(8_000)
    except OSError:
        return False
    return not start or _MARKS[form] in start
