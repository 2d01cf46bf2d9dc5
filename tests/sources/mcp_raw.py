"""An MCP server of the tests without a library, of revision 2025-11-25: it lists what a file says, whatever that is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ANSWERS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "raw", "version": "1"},
    },
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}


def main() -> None:
    """Answer requests until the other end has gone."""
    answers = {**ANSWERS, **json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))}
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        known = request["method"] in answers
        error = {"error": {"code": -32601, "message": "there is no such method"}}
        said = {"result": answers[request["method"]]} if known else error
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
