"""An MCP server of the tests without a library, of revision 2025-11-25: it says what a file says, whatever that is.

The file has the results by method. Under ``calls`` it has a line for each tool whose calls have another answer: *after*
how many seconds, and its *result* or its *error*; with *limit*, the error is for calls beyond so many at once. With
*asks*, it puts this question first, and the result is what the client does with it.
"""

from __future__ import annotations

import json
import sys
import threading
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


WRITING = threading.Lock()
RUNNING: list[str] = []
ASKING: list[Any] = []  # the calls that wait for an answer


def say(number: Any, said: dict[str, Any]) -> None:
    with WRITING:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": number, **said}) + "\n")
        sys.stdout.flush()


def call(number: Any, name: str, line: dict[str, Any]) -> None:
    """Answer a call as its line says."""
    if "asks" in line:
        form = {"message": line["asks"], "requestedSchema": {"type": "object", "properties": {}}}
        say(f"of {number}", {"method": "elicitation/create", "params": form})
        ASKING.append(number)
        return
    is_over = RUNNING.count(name) >= line.get("limit", 1 << 30)
    if "error" in line and ("limit" not in line or is_over):
        say(number, {"error": line["error"]})
        return
    RUNNING.append(name)

    def end() -> None:
        RUNNING.remove(name)
        say(number, {"result": line.get("result", ANSWERS["tools/call"])})

    threading.Timer(line.get("after", 0), end).start()


def main() -> None:
    """Answer requests until the other end has gone."""
    answers = {**ANSWERS, **json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))}
    sys.stderr.write(answers.get("stderr", ""))
    sys.stderr.flush()
    for text in sys.stdin:
        request = json.loads(text)
        if "id" not in request:
            continue
        if "method" not in request:
            said = [{"type": "text", "text": request["result"]["action"]}]
            say(ASKING.pop(), {"result": {"content": said}})
            continue
        name = request.get("params", {}).get("name", "")
        if request["method"] == "tools/call" and name in answers.get("calls", {}):
            call(request["id"], name, answers["calls"][name])
            continue
        known = request["method"] in answers
        error = {"error": {"code": -32601, "message": "there is no such method"}}
        say(request["id"], {"result": answers[request["method"]]} if known else error)


if __name__ == "__main__":
    main()
