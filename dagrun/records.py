"""For programs that read or store the records of runs: events, the state that follows from them, and protocols.

In: the lines of a record. Out: events, graphs and figures. Nothing here runs anything, or changes a record. Each name
is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagrun._lazy import lazy_names

if TYPE_CHECKING:
    from dagrun.api.record_opening import last_opening
    from dagrun.api.replaying import replayed
    from dagrun.api.tool_contracts import contract_of, recorded_toolbox
    from dagrun.codec import events_of, marks_of
    from dagrun.features.redacted_records.records import can_be_shown, redacted_events
    from dagrun.features.redacted_records.sealing import Sealer
    from dagrun.journal.base import check_first
    from dagrun.journal.following import RecordFollower
    from dagrun.journal.hash_chain import verify
    from dagrun.journal.queue import QueuedRun
    from dagrun.kernel.decide.recovery import NO_APPROVER, NO_PLAN_NOR_PLANNER, NO_PLANNER
    from dagrun.kernel.graph.figures import critical_path
    from dagrun.kernel.graph.live_graph import LiveGraph
    from dagrun.kernel.graph.node import Node
    from dagrun.kernel.graph.patches.flow_after import written_by_others
    from dagrun.kernel.model.event import Opening
    from dagrun.kernel.model.journal import Held, HeldRunLog, Line, SupportsFollow, SupportsNotify, SupportsSummaryCache
    from dagrun.kernel.model.outcome import Recovery
    from dagrun.kernel.model.patch import edit_as_dict
    from dagrun.kernel.model.reference import (
        BadReference,
        Reference,
        leading_id,
        parse_reference,
        references_in,
        text_of_reference,
    )
    from dagrun.kernel.model.tool import COMPOSE
    from dagrun.kernel.model.value import decode, decode_or_reason, encode, to_json
    from dagrun.kernel.runtime.result import answer_of
    from dagrun.observe.run_standing import fault_text
    from dagrun.observe.run_summary import Calls, RecordCount, RunSummary, count_record

_NAMES = {
    "dagrun.api.record_opening": "last_opening",
    "dagrun.api.replaying": "replayed",
    "dagrun.features.redacted_records.records": "can_be_shown redacted_events",
    "dagrun.features.redacted_records.sealing": "Sealer",
    "dagrun.journal.base": "check_first",
    "dagrun.journal.following": "RecordFollower",
    "dagrun.journal.hash_chain": "verify",
    "dagrun.journal.queue": "QueuedRun",
    "dagrun.api.tool_contracts": "contract_of recorded_toolbox",
    "dagrun.kernel.decide.recovery": "NO_APPROVER NO_PLANNER NO_PLAN_NOR_PLANNER",
    "dagrun.kernel.graph.figures": "critical_path",
    "dagrun.kernel.graph.live_graph": "LiveGraph",
    "dagrun.kernel.graph.node": "Node",
    "dagrun.kernel.graph.patches.flow_after": "written_by_others",
    "dagrun.codec": "events_of marks_of",
    "dagrun.kernel.model.event": "Opening",
    "dagrun.kernel.model.journal": "Held HeldRunLog Line SupportsFollow SupportsNotify SupportsSummaryCache",
    "dagrun.kernel.model.outcome": "Recovery",
    "dagrun.kernel.model.patch": "edit_as_dict",
    "dagrun.kernel.model.reference": (
        "BadReference Reference leading_id parse_reference references_in text_of_reference"
    ),
    "dagrun.kernel.model.tool": "COMPOSE",
    "dagrun.kernel.model.value": "decode decode_or_reason encode to_json",
    "dagrun.kernel.runtime.result": "answer_of",
    "dagrun.observe.run_standing": "fault_text",
    "dagrun.observe.run_summary": "Calls RecordCount RunSummary count_record",
}

__all__ = [
    "COMPOSE",
    "NO_APPROVER",
    "NO_PLANNER",
    "NO_PLAN_NOR_PLANNER",
    "BadReference",
    "Calls",
    "Held",
    "HeldRunLog",
    "Line",
    "LiveGraph",
    "Node",
    "Opening",
    "QueuedRun",
    "RecordCount",
    "RecordFollower",
    "Recovery",
    "Reference",
    "RunSummary",
    "Sealer",
    "SupportsFollow",
    "SupportsNotify",
    "SupportsSummaryCache",
    "answer_of",
    "can_be_shown",
    "check_first",
    "contract_of",
    "count_record",
    "critical_path",
    "decode",
    "decode_or_reason",
    "edit_as_dict",
    "encode",
    "events_of",
    "fault_text",
    "last_opening",
    "leading_id",
    "marks_of",
    "parse_reference",
    "recorded_toolbox",
    "redacted_events",
    "references_in",
    "replayed",
    "text_of_reference",
    "to_json",
    "verify",
    "written_by_others",
]
if not TYPE_CHECKING:  # or type checkers would take any name
    __getattr__ = lazy_names(__name__, _NAMES)


def __dir__() -> list[str]:
    return sorted(__all__)
