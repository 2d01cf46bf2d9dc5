"""`run_code`: Python code that a plan brings, in a process of its own that can do little more than compute."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import signal
import stat
import sys
import sysconfig
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import anyio
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from dagrun import Artifact, ToolContext, ToolError, run_program, tool
from dagrun_tools.code import sandbox

_SCRIPT: Final = Path(sandbox.__file__)
_MEDIA: Final = {".csv": "text/csv", ".json": "application/json", ".txt": "text/plain", ".png": "image/png"}
_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]


class CodeRules(BaseModel):
    """Limits for the code of a plan. The host program sets them; a plan cannot change them.

    Attributes:
        max_seconds: The time that it may take.
        max_cpu_seconds: The CPU time, of all its threads together, in whole seconds.
        max_memory: Bytes of address space, of Python itself, too; at least 128 MiB.
        max_file_bytes: Bytes of each file that it writes.
        max_output: Characters of what it prints that are kept.
        allow_packages: Whether it may import installed packages, such as numpy; else the standard library alone.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    max_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    max_cpu_seconds: Annotated[int, Field(ge=1, le=3600)] = 10
    max_memory: Annotated[int, Field(ge=128 << 20)] = 1 << 30
    max_file_bytes: Annotated[int, Field(ge=1)] = 16 << 20
    max_output: Annotated[int, Field(ge=0, le=1_000_000)] = 20_000
    allow_packages: bool = False


_DEFAULT: Final = CodeRules()

rules: ContextVar[CodeRules] = ContextVar("dagrun_tools.code.run_code.rules", default=_DEFAULT)


class CodeResult(TypedDict):
    """The result of generated code.

    Attributes:
        result: The value of its variable ``result``; null if it sets none.
        output: What it has printed.
        files: The files that it has written.
    """

    result: Any
    output: str
    files: list[Artifact]


@tool(effect="pure")
async def run_code(
    code: Annotated[str, Field(max_length=200_000)],
    context: ToolContext,
    inputs: dict[str, Any] | None = None,
    files: Annotated[list[_FileName] | None, Field(max_length=20)] = None,
) -> CodeResult:
    """Run Python code in a sandbox without network, and return the value of its variable ``result``.

    Args:
        code: Python. It finds its data in the dict ``inputs``, and puts what it has found in the variable ``result``,
            as plain JSON.
        context: Of the call.
        inputs: The data, such as outputs of other steps.
        files: The names of files that it writes, in its current folder; it can make no others.

    Raises:
        ToolError: The code fails, uses too much, or cannot be confined on this machine.
    """
    current = rules.get()
    if reason := why_unconfined():
        raise ToolError(f"run_code cannot confine code here, so it runs none: {reason}")
    with TemporaryDirectory(prefix="dagrun-code-") as scratch:
        names = list(dict.fromkeys(files or ()))
        for name in (*names, sandbox.RESULT):
            (Path(scratch) / name).touch()
        job = json.dumps(_job(code, inputs or {}, current)).encode()
        ended, output, errors = await _run(job, scratch, current)
        _check(ended, errors, current)
        result = json.loads(_content(scratch, sandbox.RESULT, current.max_file_bytes) or b"null")
        written = [(name, _content(scratch, name, current.max_file_bytes)) for name in names]
        saved = [context.artifacts.save(data, media_type=_media(name), name=name) for name, data in written if data]
    return CodeResult(result=result, output=output, files=saved)


def why_unconfined() -> str:
    """Return why code cannot be confined on this machine; an empty text if it can, as far as known."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return f"that needs Linux on x86-64, and this is {platform.system()} on {platform.machine()}"
    return "" if sys.executable else "this Python does not know its own program"


def _job(code: str, inputs: dict[str, Any], current: CodeRules) -> dict[str, Any]:
    paths = sysconfig.get_paths()
    packages = sorted({paths["purelib"], paths["platlib"]}) if current.allow_packages else []
    libraries = [paths["stdlib"], paths["platstdlib"], f"{sys.base_prefix}/lib", *_LIBRARIES]
    limits = {
        "seconds": math.ceil(current.max_seconds),
        "cpu_seconds": current.max_cpu_seconds,
        "memory": current.max_memory,
        "file_bytes": current.max_file_bytes,
    }
    return {"code": code, "inputs": inputs, "limits": limits, "reads": [*libraries, *packages], "packages": packages}


async def _run(job: bytes, scratch: str, current: CodeRules) -> tuple[int | None, str, str]:
    """Run the sandbox; return its exit code (`None` if it took too long), its output, and its errors."""
    command = [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_SCRIPT)]
    few = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    most = 4 * current.max_output + 4  # bytes; so many have more characters than may be shown
    with anyio.move_on_after(current.max_seconds):
        done = await run_program(command, input=job, cwd=scratch, env=few, output_limit=most, check=False)
        output = done.stdout.decode("utf-8", "replace")
        if len(output) > current.max_output:
            output = f"{output[: current.max_output]}… (more was printed)"
        return done.returncode, output, done.stderr.decode("utf-8", "replace")
    return None, "", ""


def _check(ended: int | None, errors: str, current: CodeRules) -> None:
    """Turn an end that is no success into a failure of the step."""
    if ended == 0:
        return
    if ended is None:
        raise ToolError(f"the code took longer than {current.max_seconds:g} s")
    if ended == sandbox.UNCONFINED:
        raise ToolError(f"run_code cannot confine code here, so it runs none: {errors.strip()}")
    if ended in (-signal.SIGXCPU, -signal.SIGKILL) and not errors:
        raise ToolError(f"the code used more than {current.max_cpu_seconds} s of CPU time, or was killed")
    if ended < 0:
        raise ToolError(f"the code ended its process: {signal.Signals(-ended).name}")
    raise ToolError(f"the code failed: {_last(errors)}")


def _last(errors: str) -> str:
    """Return the message of a traceback, with the last line of the code that is in it."""
    lines = [line for line in errors.strip().splitlines() if line.strip()]
    places = re.findall(r'File "<code>", line (\d+)', errors)
    text = lines[-1].strip() if lines else "it ended without a message"
    return f"{text} (line {places[-1]})" if places else text


def _content(scratch: str, name: str, most: int) -> bytes:
    """Read a file of the scratch folder: a plain one, whatever the code may have put in its place."""
    file = os.open(Path(scratch) / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(file, "rb") as stream:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ToolError(f"{name} is no plain file any more")
        return stream.read(most)


def _media(name: str) -> str:
    return _MEDIA.get(Path(name).suffix.lower(), "application/octet-stream")
