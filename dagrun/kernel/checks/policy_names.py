"""Names in a policy: of tools, pools and arguments.

A name that fits nothing would have no effect: a limit would hold nothing back, and a rule would ask no person. So a
name that is close to a known one is a problem of the plan. Any other is only advice, because runs with other tools may
share the policy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from dagrun.kernel.checks.check_context import CheckContext
from dagrun.kernel.checks.checked_plan import EVERY_TOOL, CheckedStep
from dagrun.kernel.checks.findings import WHOLE_PLAN
from dagrun.kernel.model.contracts.schema_types import look_up
from dagrun.kernel.model.flow.boundary import Flow
from dagrun.kernel.model.policy import ApprovalRule, Policy
from dagrun.kernel.model.reference import BadReference, path_text
from dagrun.kernel.model.signature import Arguments
from dagrun.kernel.model.value import Path

REDACT_RECORDS: Final = "policy.redact_records"


def redacts_nothing(policy: Policy, *, is_hooked: bool) -> bool:
    """Whether *policy* requires redacted records, but neither it nor a hook of the host defines what to redact."""
    return policy.redact_records and not policy.redact and not is_hooked


def check_policy_names(steps: Sequence[CheckedStep], context: CheckContext) -> None:
    """Check every name in the policy against the tools, their pools and arguments, and the pools of the steps."""
    tools = [facts.tool for facts in context.tools.values()]
    inner = [tool for outer in tools for tool in outer.inner_tools]
    pools = {tool.pool for tool in (*tools, *inner) if tool.pool is not None}
    pools |= {checked.step.pool for checked in steps if checked.step.pool is not None} | context.executors.keys()
    known = {"tool": {tool.name for tool in (*tools, *inner)}, "pool": pools}
    for place, kind, name in _names(context.policy):
        if name not in known[kind]:
            hint = context.findings.hint(name, known[kind])
            code = "DR214" if hint else "DR913"
            context.findings.add(code, WHOLE_PLAN, place, kind=kind, name=repr(name), hint=hint)
    for number, rule in enumerate(context.policy.approve):
        _check_arguments(number, rule, context)
    if context.policy.flow is not None:
        _check_guarded(context.policy.flow, context)


def _names(policy: Policy) -> Iterator[tuple[str, str, str]]:
    """Yield every name in *policy*: its place, its kind, and the name."""
    by_tool = (
        ("policy.max_running_by_tool", policy.max_running_by_tool),
        ("policy.max_calls_by_tool", policy.max_calls_by_tool),
    )
    for place, limits in by_tool:
        yield from ((place, "tool", name) for name in sorted(limits))
    yield from (("policy.pools", "pool", name) for name in sorted(policy.pools))
    safe = policy.planning.stream_safe
    yield from ((f"policy.planning.stream_safe[{number}]", "tool", name) for number, name in enumerate(safe))
    yield from ((f"policy.unrecorded[{number}]", "tool", name) for number, name in enumerate(policy.unrecorded))
    if policy.hedge is not None:
        yield from ((f"policy.hedge.tools[{number}]", "tool", name) for number, name in enumerate(policy.hedge.tools))
    for number, rule in enumerate(policy.approve):
        if rule.tool != EVERY_TOOL:
            yield f"policy.approve[{number}].tool", "tool", rule.tool
    flow = policy.flow
    if flow is not None and (flow.untrusted or flow.private or flow.outbound or flow.guard or flow.endorse):
        for place, name in _flow_names(flow):
            if "*" not in name:
                yield place, "tool", name


def _flow_names(flow: Flow) -> Iterator[tuple[str, str]]:
    """Yield every name and pattern of a tool in a trust boundary, with its place."""
    # In loops, as most of these lists are empty, and a generator for each is a third of what a small plan pays.
    for field, listed in (("untrusted", flow.untrusted), ("private", flow.private), ("outbound", flow.outbound)):
        for number, name in enumerate(listed):
            yield f"policy.flow.{field}[{number}]", name
    for number, guard in enumerate(flow.guard):
        yield f"policy.flow.guard[{number}].tool", guard.tool
    for number, endorsement in enumerate(flow.endorse):
        yield f"policy.flow.endorse[{number}].tool", endorsement.tool


def _check_guarded(flow: Flow, context: CheckContext) -> None:
    """Check the arguments that a guard names: one that the tool does not take would guard nothing."""
    for number, rule in enumerate(flow.guard):
        facts = context.tools.get(rule.tool)
        if facts is None or facts.tool.arguments.is_open:
            continue
        known = facts.tool.arguments.names
        for name in rule.args or ():
            if name not in known:
                place, hint = f"policy.flow.guard[{number}].args", context.findings.hint(name, known)
                context.findings.add("DR215", WHOLE_PLAN, place, tool=rule.tool, argument=repr(name), hint=hint)


def _check_arguments(number: int, rule: ApprovalRule, context: CheckContext) -> None:
    """Check the argument paths of a rule; a path that the tool does not take would make the rule always hold."""
    facts = context.tools.get(rule.tool)
    if facts is None or rule.when is None or facts.tool.is_on_record:  # a record holds no aliases, and was checked
        return
    contract = facts.tool.arguments
    for leaf in rule.when.leaves():
        try:
            path = leaf.reference.path
        except BadReference:
            continue  # the policy itself refuses it
        missing, known = _missing_part(contract, path)
        if missing:
            place, hint = f"policy.approve[{number}].when", context.findings.hint(missing, known)
            shown = repr(path_text(path).removeprefix("."))
            context.findings.add("DR215", WHOLE_PLAN, place, tool=rule.tool, argument=shown, hint=hint)


def _missing_part(contract: Arguments, path: Path) -> tuple[str, Collection[str]]:
    """Return the part of a path that the arguments of a tool cannot have, or "", and the names that exist there."""
    if not path or not isinstance(path[0], str) or (path[0] not in contract.names and contract.is_open):
        return "", ()
    if path[0] not in contract.names:
        return path[0], contract.names
    found = look_up([(contract.property_schema(path[0]), contract.schema)], path[1:])
    is_field = any(found.missing in pair for pair in contract.aliases)  # the schema has one of the names of each field
    return ("" if found.missing is None or is_field else str(found.missing)), found.known
