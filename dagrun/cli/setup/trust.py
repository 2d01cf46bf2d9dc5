"""Which files of settings the user trusts: by path and content, as direnv does.

A file of settings in a checkout comes with the checkout. It may say how the command line runs plans; but it may not
name code that is imported, addresses, secrets or records, before the user has said yes to this file with this content.
Each yes is a small file of the user, whose name is the hash of both. What the command line, the environment or the
settings of the user name needs no yes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from dagrun.cli.terminal.user_errors import BadInput
from dagrun.journal.base import without_password
from dagrun.journal.private_folders import keep_private

# What a setting would do, for people.
_MEANING: Final[Mapping[str, str]] = {
    "tools": "import and call the code of tools",
    "openapi": "send requests, and secrets of yours, to the addresses of these services",
    "mcp_files": "start programs, and send requests to addresses, that these files name as MCP servers",
    "mcp_pins": "say which descriptions of tools of MCP servers somebody has agreed to",
    "mcp": "say what tools of MCP servers may do without a question",
    "deps": "import and call the code that makes objects for tools",
    "planner": "choose the planner, which may be code, or a model that is asked with your key",
    "base_url": "send your key and your goals to this address",
    "secrets": "pass secrets of yours to tools",
    "prices": "decide how much a model costs, so that a limit on cost may not hold",
    "runs": "use records of runs that it brings along",
    "journal": "use records of runs in this database, and write them there",
    "artifacts": "write files of runs into this folder",
    "output": "write files outside of its own folder",
    "policy": "loosen what a policy forbids by default, or set up tools",
}
_POLICY: Final = ("tools", "default_answer", "min_confidence", "stream_safe", "brief")
_TABLES: Final = ("planning", "questions")
_MAX_SHOWN: Final = 200


def needs_trust(name: str, value: object, folder: Path) -> bool:
    """Return whether a setting of a file counts only if the user trusts the file.

    Args:
        name: The name of the setting.
        value: Its value in the file.
        folder: The folder of the file.
    """
    match name, value:
        case "policy", dict():
            return policy_needs_trust(value)
        case "policy", _:
            return False  # the file that it names is asked by itself
        case "output", str():
            return not (folder / value).resolve().is_relative_to(folder.resolve())
        case _:
            return name in _MEANING


def policy_needs_trust(fields: Mapping[str, Any]) -> bool:
    """Return whether a policy does more than to set limits: configure tools, or let calls pass that need a person."""
    rules = fields.get("approve", ())
    is_answered = isinstance(rules, list) and any(isinstance(rule, dict) and "default_answer" in rule for rule in rules)
    tables = [fields, *(table for name in _TABLES if isinstance(table := fields.get(name), dict))]
    return is_answered or any(name in table for table in tables for name in _POLICY)


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A file of settings whose author may be anybody.

    Attributes:
        path: The file.
        fields: Its content; of ``pyproject.toml``, only the table ``tool.dagrun``.
    """

    path: Path
    fields: Mapping[str, Any]

    @property
    def _place(self) -> str:
        return os.path.realpath(self.path)

    @property
    def _hash(self) -> str:
        text = json.dumps([self._place, self.fields], sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def is_trusted(self) -> bool:
        """Whether the user trusts this file with this content."""
        try:
            return _text(_folder() / self._hash) == self._place
        except BadInput:  # without a home folder, nothing is trusted
            return False

    def trust(self) -> None:
        """Trust this file with its present content alone.

        Raises:
            BadInput: The answer cannot be stored.
        """
        folder = _folder()
        self.distrust()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(folder / self._hash, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(self._place)
        except OSError as error:
            raise BadInput(f"cannot write in {folder}: {error.strerror}") from error

    def distrust(self) -> bool:
        """Stop trusting this file, whatever its content; return whether it was trusted.

        Raises:
            BadInput: The answer cannot be stored.
        """
        answers = self._answers()
        try:
            for answer in answers:
                answer.unlink(missing_ok=True)
        except OSError as error:
            raise BadInput(f"cannot write in {_folder()}: {error.strerror}") from error
        return bool(answers)

    def refusal(self, names: Sequence[str]) -> BadInput:
        """Return the error for settings of an untrusted file, with their effects, and the command to trust it.

        Args:
            names: The settings; empty for the whole file, which is then a policy.
        """
        what = "has changed since you trusted it" if self._answers() else "is not trusted"
        named = names or ("policy",)
        lines = [f"  {name}{self._shown(name)}: it would {_MEANING[name]}" for name in named]
        return BadInput(
            f"{self.path} {what}, so what it names is not used:",
            *lines,
            f"look at it; if you trust it, say so once: dagrun config trust {self.path}",
        )

    def _shown(self, name: str) -> str:
        if name not in self.fields:
            return ""
        text = without_password(json.dumps(self.fields[name], default=str, ensure_ascii=False))
        return f" = {text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + '…'}"

    def _answers(self) -> list[Path]:
        """Return the answers to this file, whatever its content was."""
        try:
            return [answer for answer in _folder().iterdir() if _text(answer) == self._place]
        except (OSError, BadInput):
            return []


class _Closed:
    """The folders of the last `close_to_tools` call, which file tools cannot use."""

    folders: tuple[Path, ...] = ()


_closed = _Closed()


def close_to_tools() -> None:
    """Close the folders of trust and of the user's settings to file tools, which could trust themselves."""
    global _closed  # noqa: PLW0603  (the state of the process, as the current folder is)
    try:
        folders = _folder(), Path(click.get_app_dir("dagrun"))
    except BadInput:  # without a home folder, nothing is trusted
        return
    if folders != _closed.folders:
        _closed = _Closed()
        _closed.folders = folders
        keep_private(_closed, *folders)


def _folder() -> Path:
    """Return the folder of the answers.

    Raises:
        BadInput: The user has no home folder.
    """
    return state_folder() / "trusted"


def state_folder() -> Path:
    """Return the user's folder for dagrun: the records of runs, and the list of trusted files.

    Raises:
        BadInput: The user has no home folder.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        home = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    except RuntimeError:
        raise BadInput("there is no home folder for what dagrun keeps: set XDG_STATE_HOME, or HOME") from None
    return home / "dagrun"


def _text(answer: Path) -> str | None:
    """Return the path that an answer is for; `None` for a file that another user could have put there."""
    try:
        status = answer.lstat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return None
        return answer.read_text(encoding="utf-8", errors="surrogateescape")
    except (OSError, ValueError):
        return None
