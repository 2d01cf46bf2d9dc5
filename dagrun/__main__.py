"""``python -m dagrun`` is ``dagrun``."""

import sys

from dagrun.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
