"""The server of a small model, as a program of its own: started by ``serving``, and ended with it.

    python server.py PACKAGES MODEL_FILE NAME PORT

It needs nothing of dagrun, and takes llama.cpp from the folder PACKAGES.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any

CONTEXT = 16_384  # tokens


def main() -> None:
    """Serve until the program is ended."""
    packages, file, name, port = sys.argv[1:]
    sys.path.insert(0, packages)
    xllamacpp: Any = import_module("xllamacpp")
    options: Any = xllamacpp.CommonParams()
    options.model.path = file
    options.model_alias = {name}
    options.n_ctx = CONTEXT
    options.n_parallel = 1
    options.hostnames = ["127.0.0.1"]
    options.port = int(port)
    options.ui = False
    options.offline = True
    server = xllamacpp.Server(options)
    print(f"listening at {server.listening_address}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
