"""Secrets by name, from environment variables, or from files that only the user may read."""

from __future__ import annotations

import os
import stat
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

from dagrun import Secrets, env
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.terminal.text import SECRETS
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ContractError, shorten
from dagrun.kernel.model.secrets import MAX_LENGTH, AnySecret

RECORD_KEY: Final = "DAGRUN_RECORD_KEY"


def secrets_of(configuration: Configuration) -> Secrets:
    """Return the secrets that the settings name, with their values. From now on, this process shows none of them.

    Raises:
        BadInput: Secrets cannot be used; the error has a line for each, without any value.
    """
    values: dict[str, AnySecret] = {}
    faults: list[str] = []
    for name, kind, place in _places(configuration):
        if name in values:
            faults.append(f"--secret {name} is given twice")
            continue
        try:
            value = env(place) if kind == "env" else _read(configuration.origins["secrets"].folder / place)
            Secrets({name: value})  # refuses a value that cannot be used
            values[name] = value
        except ContractError as error:
            faults.append(f"--{error}")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            faults.append(f"--secret {name}: cannot read {shorten(place)}: {reason}")
    if faults:
        raise BadInput(*faults)
    SECRETS.secrets = secrets = Secrets(values)
    if secrets:
        sys.excepthook = _print_clean
    return secrets


def record_key() -> str | None:
    """Return the key that encrypts the redacted parts of records, from the environment; `None` if there is none."""
    return os.environ.get(RECORD_KEY) or None


def names_of_secrets(configuration: Configuration) -> Secrets:
    """Return the secrets that the settings name, without values: enough to check a plan."""
    return Secrets.named(name for name, _, _ in _places(configuration))


def secret_named(configuration: Configuration, name: str) -> AnySecret | None:
    """Return one secret that the settings name; a variable is not read yet. `None` if there is no such secret.

    Raises:
        BadInput: Its file cannot be read.
    """
    for known, kind, place in _places(configuration):
        if known == name:
            try:
                return env(place) if kind == "env" else _read(configuration.origins["secrets"].folder / place)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                raise BadInput(f"--secret {name}: cannot read {shorten(place)}: {reason}") from error
    return None


def _places(configuration: Configuration) -> list[tuple[str, str, str]]:
    """Return for each secret its name; ``env`` or ``file``; and the variable or the path."""
    places = []
    for text in configuration.settings.secrets:
        name, sign, where = text.partition("=")
        kind, _, place = where.partition(":")
        places.append((name, kind, place) if sign else (name, "env", name))
    return places


def _read(path: Path) -> str:
    """Return the contents of a file that only the user may read.

    Raises:
        OSError: The file cannot be read.
        ValueError: Other users may read or change it, or it is not text.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError("it is no file")
        if facts.st_mode & 0o077 or facts.st_uid not in (os.geteuid(), 0):
            raise ValueError("others may read or change it; make it yours alone: chmod 600")
        data = file.read(4 * MAX_LENGTH + 3)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r")


def _print_clean(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught error without the values of secrets; Python calls it as ``sys.excepthook``."""
    sys.stderr.write(SECRETS.hide("".join(traceback.format_exception(kind, error, trace))))
