"""Where a report goes: checked before anything costs time, and never over a file that is not ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dagrun.cli.records.output_folder import writable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.observe.report.report import ENDINGS, FORMS, ReportStyle, form_of, make_report, png_library

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
