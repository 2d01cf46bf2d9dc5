"""Execute a notebook in a kernel of its own, and write it with its outputs to stdout; with ``stop``, interrupt it.

    python tests/helpers/views/executed_notebook.py FILE [stop]

It is a program, because the client of kernels leaves sockets and loops behind. ``stop`` is the stop button: it is
pressed a moment after the first display.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


def executed(path: Path, *, stop: bool = False) -> Any:
    """Return a notebook with its outputs, as JSON."""
    command = [sys.executable, __file__, str(path), *(["stop"] if stop else [])]
    with TemporaryDirectory() as folder:
        # The kernel of this environment, whatever kernels and profiles the user has.
        own = {"JUPYTER_PATH": f"{sys.prefix}/share/jupyter", "JUPYTER_RUNTIME_DIR": folder, "IPYTHONDIR": folder}
        ended = subprocess.run(
            command, env={**os.environ, **own}, capture_output=True, text=True, check=False, timeout=55
        )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def shown(notebook: Any, place: int, kind: str = "") -> str:
    """Return what a cell shows, as text; of one kind of output only, if that is named."""
    outputs = [one for one in notebook["cells"][place]["outputs"] if not kind or one["output_type"] == kind]
    return "".join("".join(part) for one in outputs for part in one.get("data", {}).values())


def main(path: str, stop: str = "") -> None:
    """Execute the notebook."""
    from nbclient import NotebookClient

    nbformat: Any = import_module("nbformat")

    class Client(NotebookClient):
        is_stopped = False

        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            if stop and msg["msg_type"] == "display_data" and not self.is_stopped:
                self.is_stopped = True
                kernel: Any = self.km
                threading.Timer(0.3, os.kill, (kernel.provisioner.pid, signal.SIGINT)).start()
            return super().process_message(msg, cell, cell_index)

    notebook: Any = nbformat.read(path, 4)
    Client(notebook, kernel_name="python3", timeout=40, allow_errors=bool(stop)).execute()
    sys.stdout.write(nbformat.writes(notebook))


if __name__ == "__main__":
    main(*sys.argv[1:])
