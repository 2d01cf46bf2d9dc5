"""Patches: changes of the plan of a running run, checked first and then applied at once.

In: a `Patch` (or a whole new `Plan`, which `plan_to_patch.py` turns into a patch) and the live graph. Out: a
`CheckedPatch`, or every problem of the patch; and, from a `CheckedPatch` in a `Spliced` event, the changed graph.

Open `check_patch.py` first: `Splicer.check` is the only way to a `CheckedPatch`. It sorts the edits and looks at
the plan as it would be, asks each rule (both in `edits.py`), and notes the calls whose guards a planner's patch takes
away (`guards.py`). `apply_patch.py` applies the result.

A check never changes the graph, and an application never fails halfway.
"""
