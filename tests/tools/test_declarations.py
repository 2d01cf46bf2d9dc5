"""How the ready-made tools are declared: what `dagrun tools --check` finds in them is known, and has a reason."""

from __future__ import annotations

import dagrun
from dagrun_tools import TOOLS

# What comes from the web or from people has no type; whether a person must agree to a file is for the host to say; and
# a person may take as long as it likes, a page as long as the rules of the host allow.
KNOWN = {
    "DR805": {"fetch_json", "ask_user", "handoff", "join"},
    "DR808": {"handoff"},
    "DR810": {"read_file", "write_file", "fetch_url", "fetch_json", "search_web", "ask_user", "handoff"},
    "DR812": {"generate_chart", "write_report", "write_file"},
}


def test_the_ready_made_tools_are_declared_as_we_advise() -> None:
    """A new tool is either without findings, or its finding is listed here with a reason."""
    found: dict[str, set[str]] = {}
    for problem in dagrun.check_tools(TOOLS):
        found.setdefault(problem.code, set()).add(problem.path)

    assert found == KNOWN
