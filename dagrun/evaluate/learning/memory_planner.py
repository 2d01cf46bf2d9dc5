"""`MemoryPlanner`: returns a plan that worked for an equal goal before, instead of asking a planner.

A memory that anybody can write to is a way to give orders to later runs. So:

1. Nothing is stored by itself: the host hands a run over, after its end (`MemoryPlanner.keep`).
2. A plan is stored only if its run succeeded, nobody changed or repaired it, no person said no in the run, and its
   policy has a trust boundary by which nothing that others can write was shown to the planner.
3. It stores a route (`dagrun.planners.route_files`): the plan with parameters. Never an approval or an output.
4. It is used only under the same key of the host, such as a tenant, the same policy, and the same contracts of its
   tools; and for a goal that is its sentence, with other values in the places of its parameters. There is no guess
   about what is similar.
5. A plan from the store passes all checks and asks all questions that a new one does. What the checks refuse is asked
   of the inner planner. After two failures in a row, the plan is dropped.
6. Which stored plan a run has used is in its record: the plan that its planner wrote first is the one that the store
   gives for its goal. So any process that has the store and the journal can hand the run over, once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, MutableMapping
from hashlib import sha256
from typing import Any, Final

from dagrun import Brief, Plan, Planner, Policy, Replayed, Status, Toolbox
from dagrun.errors import ContractError
from dagrun.evaluate.learning.learn_routes import hash_of, learn_routes, planned_run
from dagrun.evaluate.plan_shape import first_plan, plain_plan
from dagrun.events import DraftStarted, QuestionAnswered
from dagrun.extend import Journal, RevisedBy, RouteFile, must_be_planner
from dagrun.records import Line, contract_of, decode_or_reason, events_of, replayed

Key = Callable[[str, Any], str]

_FAILURES: Final = 2
_MOST: Final = 200  # plans under one key; the oldest ones go
_MOST_RUNS: Final = 10_000  # that have used a plan and were not handed over
_REMEMBERED: Final = 50  # runs that have used a plan, and were handed over


class MemoryPlanner:
    """Returns the plan that worked for an equal goal before; for any other goal, it asks another planner.

    Args:
        inner: The planner that is asked if nothing fits, and for every change of a plan. A chain is not one: put the
            memory into the chain, in front of it.
        store: Keeps texts by key: a dict, or what the host makes of a database.
        policy: The policy of the runs. Plans of runs under another policy are neither stored nor used.
        key: Returns for a goal and the inputs of a run whose memory it uses: a tenant, say, or a tenant and what it
            wants. Only runs with the same key share plans. By default, all goals of the store have one memory.

    Raises:
        ContractError: *inner* is no planner, or is a fallback chain; or the policy has no trust boundary
            (`Policy.flow`).
    """

    def __init__(
        self, inner: Planner, store: MutableMapping[str, str], *, policy: Policy, key: Key | None = None
    ) -> None:
        must_be_planner(inner, "inner")
        if hasattr(inner, "rungs"):
            raise ContractError(
                "a fallback chain cannot be the inner planner: put the MemoryPlanner first in the chain"
            )
        if policy.flow is None:
            raise ContractError(
                "a memory of plans needs a trust boundary, or anybody whose text a planner has read could write to it:"
                " set flow in the policy"
            )
        self.must_say_confidence = getattr(inner, "must_say_confidence", False)  # as the run asks of it
        self.inner = inner
        self._store = store
        self._policy = _policy_hash(policy)
        self._key = key
        self._used: dict[str, tuple[str, str]] = {}  # by run whose checks may refuse it: the key, the name of the route

    def revise(self, brief: Brief) -> RevisedBy:
        """Return the stored plan for a goal without a plan; else the answer of the inner planner."""
        if brief.is_first and not brief.refused:
            plan = self._recall(brief)
            if plan is not None:
                return _given(plan)
        elif brief.is_first and (used := self._used.pop(brief.run_id, None)) is not None:
            self._judge(*used, brief.run_id, is_good=False)  # the checks have refused the stored plan
        return self.inner.revise(brief)

    def _recall(self, brief: Brief) -> Plan | None:
        place = self._place(brief.goal, brief.raw_inputs)
        for entry in self._entries(place):
            route: RouteFile = entry["route"]
            is_for_it = route.values_in(brief.goal) is not None and route.has_inputs(brief.raw_inputs)
            if is_for_it and _has_tools(brief.toolbox, route, entry["contracts"]):
                while len(self._used) >= _MOST_RUNS:
                    del self._used[next(iter(self._used))]
                self._used[brief.run_id] = (place, route.name)
                return route.fill(brief.goal)
        return None

    async def keep(self, run_id: str, *, journal: Journal) -> str:
        """Store the plan of a run that has ended, if allowed, and judge a stored plan that it has used.

        This may be another process than the one that has planned the run, with the same store, policy and *key*. A run
        counts once.

        Args:
            run_id: The run.
            journal: The journal that has its record.

        Returns:
            The action and its reason, in a sentence.

        Raises:
            JournalError: The record is damaged, or cannot be read.
        """
        lines = await journal.read(run_id)
        past = replayed(run_id, events_of(run_id, lines))
        if not past.has_ended:
            return "not stored: the run has not ended"
        self._used.pop(run_id, None)
        drafts = [event for event in past.events if isinstance(event, DraftStarted)]
        if not drafts or _policy_hash(past.opening.policy) != self._policy:
            return self._take(run_id, past, lines)
        place = self._place(drafts[0].goal, decode_or_reason(past.opening.inputs))
        name = self._given_in(past, drafts[0].goal, place)
        if name is None:
            return self._take(run_id, past, lines)
        return self._judge(place, name, run_id, is_good=past.status is Status.SUCCEEDED and not past.graph.replans)

    def _given_in(self, past: Replayed, goal: str, place: str) -> str | None:
        """Return the name of the stored plan that a run has used; `None` if its plan is another one."""
        written = plain_plan(first_plan(past.opening.plan, past.events))
        contracts = {step["tool"]: past.opening.tools.get(step["tool"], {}) for step in written["steps"].values()}
        for entry in self._entries(place):
            route: RouteFile = entry["route"]
            if route.values_in(goal) is not None and plain_plan(route.fill(goal)) == written:
                return route.name if entry["contracts"] == _contracts(contracts) else None
        return None

    def _judge(self, place: str, name: str, run_id: str, *, is_good: bool) -> str:
        entries = self._entries(place)
        for entry in entries:
            if entry["route"].name == name:
                if run_id in (known := entry["runs"]):
                    return "the run was handed over before"
                entry["runs"] = [*known, run_id][-_REMEMBERED:]
                entry["failures"] = 0 if is_good else entry["failures"] + 1
                if entry["failures"] >= _FAILURES:
                    entries.remove(entry)
                    self._write(place, entries)
                    return f"dropped: {_FAILURES} runs in a row have failed with it"
                self._write(place, entries)
                return "the stored plan has worked" if is_good else "the stored plan has failed"
        return "the stored plan is gone"

    def _take(self, run_id: str, past: Replayed, lines: list[Line]) -> str:
        run = planned_run(run_id, lines)
        if isinstance(run, str):
            return f"not stored: {run}"
        if not run.has_succeeded:
            return "not stored: the run did not succeed"
        if fault := _fault(past, self._policy):
            return f"not stored: {fault}"
        learned = learn_routes([run])
        if not learned.routes:
            return f"not stored: {next(iter(learned.left_out.values()))}"
        route = learned.routes[0]
        contracts = {step["tool"]: past.opening.tools[step["tool"]] for step in run.steps}
        place = self._place(run.goal, run.inputs)
        # The sentence alone decides: a later plan for it takes the place of an earlier one.
        others = [entry for entry in self._entries(place) if entry["route"].goals != route.goals]
        route = route.model_copy(update={"name": f"{route.name}-{hash_of(route.goals)}"})
        self._write(
            place,
            [*others, {"route": route, "contracts": _contracts(contracts), "failures": 0, "runs": [run_id]}][-_MOST:],
        )
        return f"stored: {route.goals[0]}"

    # The store --------------------------------------------------------------------------------------------

    def _place(self, goal: str, inputs: Any) -> str:
        name = "" if self._key is None else self._key(goal, inputs)
        if not isinstance(name, str):
            raise ContractError(f"key returns a text, not {type(name).__name__}")
        return sha256(json.dumps(["dagrun memory 1", name, self._policy]).encode()).hexdigest()

    def _entries(self, place: str) -> list[dict[str, Any]]:
        """Return the plans under a key; one that cannot be read counts as none."""
        try:
            found = json.loads(self._store.get(place, "[]"))
            return [
                {
                    "route": RouteFile.model_validate(entry["route"]),
                    "contracts": str(entry["contracts"]),
                    "failures": int(entry["failures"]),
                    "runs": list(entry.get("runs", ())),
                }
                for entry in found
            ]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return []

    def _write(self, place: str, entries: list[dict[str, Any]]) -> None:
        self._store[place] = json.dumps(
            [{**entry, "route": entry["route"].model_dump(mode="json")} for entry in entries]
        )


async def _given(plan: Plan) -> Plan:
    return plan


def _fault(past: Replayed, policy: str) -> str:
    """Return why the plan of a run that succeeded must not be stored; empty if it may be."""
    from dagrun.records import written_by_others

    if _policy_hash(past.opening.policy) != policy:
        return "the run had another policy"
    if others := written_by_others(past.graph):
        sources = sorted({name for names in others.values() for name in names})
        return f"its planner had seen data that others can write ({', '.join(sources)})"
    answers = [event.answer for event in past.events if isinstance(event, QuestionAnswered)]
    if any(answer is not None and answer.choice not in ("approve", "took_effect") for answer in answers):
        return "a person said no"
    return ""


def _has_tools(toolbox: Toolbox | None, route: RouteFile, contracts: str) -> bool:
    """Whether a run may call the tools of a route, with the contracts they had when it was learned."""
    names = {step["tool"] for step in route.plan["steps"]}
    if toolbox is None or not names <= toolbox.allowed:
        return False
    return contracts == _contracts({name: contract_of(toolbox[name]) for name in names})


def _policy_hash(policy: Policy) -> str:
    return hash_of(policy.model_dump(mode="json", by_alias=True))


def _contracts(contracts: Any) -> str:
    return hash_of(json.loads(json.dumps({name: dict(contract) for name, contract in contracts.items()}, default=list)))
