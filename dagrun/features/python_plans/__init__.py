"""Plans that are written in Python: steps are made by their tools, and handed to other steps as arguments.

In: calls such as ``busiest.step(cities={"Austin": austin})``. Out: a `Plan`, the same that JSON would describe.

`planned_values.py` has the values that stand for outputs that do not exist yet: steps, parts of them, inputs, elements,
and comparisons of them. `step_maker.py` makes steps from a tool, their arguments and options. `collect.py` makes a plan
of the steps that an output needs; open it first. `dagrun/plans/plan_text.py` writes a plan as Python again. Nothing in
this package calls a tool or checks a plan: `dagrun.check` does.
"""
