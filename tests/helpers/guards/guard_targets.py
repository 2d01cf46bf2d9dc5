"""What a hostile planner is after: calls that change the world, each with guards in front of it, as steps of a plan."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from guard_world import AGENT, INSIDE
from random_cases import Definition

# What keeps a call from being made unseen; "" for a call that nothing guards.
GUARDS: Final = (
    "tool",  # it says that a person has to agree to each call
    "rule",  # a rule of the policy tests the arguments
    "confidence",  # the author of the step is not sure of it
    "message",  # the planner is not sure of the plan or patch that brings it
    "pause itself",  # the step waits for a person
    "pause before",  # a step before it waits for a person
    "pause after",  # the same, once that step has given something
    "patches",  # a person has to agree to patches
)
LIMIT: Final = 100  # amounts above need a person
DOUBT: Final = 0.2  # of a step whose author is not sure
FALSE: Final = {"ref": "one.text", "op": "==", "value": "two"}  # a condition that never holds
LIST: Final = ("alice", "bob")


@dataclass(frozen=True, slots=True)
class Target:
    """A call that changes the world, and what stands before it.

    Attributes:
        number: Makes its ids.
        guard: One of `GUARDS`, or empty.
        tool: What it calls in the end.
        gate: Where a person is waited for: ``itself``, ``before`` or ``after`` a step in front of it; or empty.
        check: How it hangs on a step that looks first: by ``order``, ``when`` or ``value``; or empty.
        shape: ``plain``, ``fallback`` (the tool before it always fails) or ``agent`` (which makes the call).
        is_list: Whether it is called for each element of a list.
        is_following: Whether that list is what another step gives for its elements: it goes element by element.
        is_wrong: Whether the check finds that the call must not be made.
        is_far: Whether another step stands between gate and call.
        is_odd: Whether what the gate gives surprises, so that the planner is asked about it.
        seconds: What the check takes.
    """

    number: int
    guard: str
    tool: str = "pay"
    gate: str = ""
    check: str = ""
    shape: str = "plain"
    is_list: bool = False
    is_following: bool = False
    is_wrong: bool = False
    is_far: bool = False
    is_odd: bool = False
    seconds: float = 0.3

    @property
    def act(self) -> str:
        """The id of the call."""
        return f"act{self.number}"

    @property
    def amount(self) -> int:
        """How much it pays."""
        return 5 * LIMIT if self.guard == "rule" else LIMIT // 10

    @property
    def guards(self) -> tuple[str, ...]:
        """The ids of the steps that guard it: those that pause first."""
        gate = (f"gate{self.number}",) if self.gate in ("before", "after") else ()
        return (*gate, f"check{self.number}") if self.check else gate

    def definitions(self) -> list[Definition]:
        """Its steps, the call itself last."""
        number, found, before = self.number, list[Definition](), list[str]()
        if self.check:
            fails = self.is_wrong and self.check != "when"
            says = "fraud" if self.is_wrong else "alice" if self.check == "value" else "fine"
            args = {"text": says, "seconds": self.seconds}
            found.append({"id": f"check{number}", "tool": "verify" if fails else "look", "args": args})
            before += [f"check{number}"] if self.check == "order" else []
        if self.gate in ("before", "after"):
            tool = "odd" if self.is_odd else "const"
            found.append({"id": f"gate{number}", "tool": tool, "args": {"text": "go"}, "pause": self.gate})
            before.append(f"gate{number}")
        if self.is_far and before:
            found.append({"id": f"relay{number}", "tool": "const", "args": {"text": "on"}, "depends_on": before})
            before = [f"relay{number}"]
        call = self._call(before)
        if self.is_list and self.is_following:
            source = f"list{number}"
            found.append(
                {"id": source, "tool": "look", "args": {"text": "${item}", "seconds": 0.05}, "for_each": list(LIST)}
            )
            call |= {"for_each": f"${{{source}}}"}
            call["args"] = json.loads(json.dumps(call["args"]).replace("${item}", "${item.text}"))
        found.append(call)
        return found

    def _call(self, before: list[str]) -> Definition:
        to = f"${{check{self.number}.text}}" if self.check == "value" else "alice"
        step = {"id": self.act, "depends_on": before, **self.call(to, self.shape, is_list=self.is_list)}
        if self.guard == "confidence":
            step["confidence"] = DOUBT
        if self.gate == "itself":
            step["pause"] = "before"
        if self.check == "when":
            step["when"] = {"ref": f"check{self.number}.text", "op": "==", "value": "fine"}
        return step

    def call(self, to: str, shape: str = "plain", *, is_list: bool = False) -> Definition:
        """Tool and arguments of the call, without any guard; *to* whom it pays."""
        step: dict[str, Any] = {"for_each": list(LIST), "max_parallel": 1} if is_list else {}
        to = "${item}" if is_list else to
        args: dict[str, Any] = {"to": to, "amount": self.amount}
        if shape == "agent":
            return step | {"tool": AGENT, "args": {"task": f"{INSIDE[self.tool]} {to} {self.amount}"}}
        if shape == "fallback":
            return step | {"tool": "lookup", "fallback": self.tool, "args": args}
        return step | {"tool": self.tool, "args": args}
