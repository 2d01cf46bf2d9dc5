"""``python -m dagrun`` is ``dagrun``."""

import os
import sys

# `python -m` puts the current folder first: a file there would stand in for a library that dagrun imports.
if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]

from dagrun.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
