"""The live graph of one run: its state, and every change of it. Pure and synchronous.

In: a `CheckedPlan` (from `dagrun.kernel.checks`), and events, one by one. Out: which steps may start now, the values
that a call refers to, the remaining budget, and the whole state of a run as plain JSON.

Open `changes.py` first: it says which event changes what. `live_graph.py` has the state and the rules of release and
blocking, and makes the state of a new run; `node.py` has one step of it, `step_order.py` the ready steps in order.
`fold.py` makes the state of a recorded run, and finds the work to repeat when it is resumed. `ledger.py` reserves and
settles what calls use. The sub-package `patches` changes the plan of a run while it goes on.

Nothing here awaits, reads a clock, calls a tool or writes to the journal, and nothing but `changes.apply` changes a
graph.
"""
