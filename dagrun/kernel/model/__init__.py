"""The data types of dagrun: plans, steps, tools, policies, events, records, and the protocols of the other packages.

Plans come in as pydantic models (`Plan`, `Step`, `Patch`, `Policy`), because they come from outside. What dagrun makes
itself, such as outcomes, events and questions, are dataclasses. The protocols that plug-ins implement are here, too:
`Planner`, `Critic`, `Executor`, `Journal`.

Open `plan.py` first, then `tool.py`, `outcome.py` and `event.py`: together they name nearly everything that happens in
a run. The package `contracts` completes the contracts of tools where pydantic does not. `secrets.py` finds secrets in
texts, and the package `redaction` replaces them.

This package knows no other part of dagrun except the errors. It never awaits, reads no clock and no random numbers, and
changes no run.
"""
